"""How a key of the request is written: as an option of hpclaunch or, about a script, as a directive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpclaunch.job.diagnostic import Edit, Suggestion
    from hpclaunch.job.plan import Plan


def option(plan: Plan, key: str, value: Any) -> str:
    """Return how users of this plan write a key with its value: --walltime 1h, or in a script -l walltime=1h."""
    if plan.script is not None:
        from hpclaunch.job.directives.written import written

        return written(plan, key, value)
    name = "-A" if key == "account" else f"--{key.replace('_', '-')}"
    text = f"{value:.12g}" if isinstance(value, float) else str(value)
    return f"no {name}" if value is None else f"{name} {text}"


def edits(suggestion: Suggestion, after: Plan) -> list[Edit]:
    """Return the changes in a script that make it ask for the plan `after`, which a suggestion makes."""
    from hpclaunch.job.directives.written import edits

    return edits(after, set(suggestion))


def spelled(suggestion: Suggestion, after: Plan) -> str:
    """Return a suggestion as users write it; "" if no directive says so. `after` is the plan that it makes."""
    if after.script is None:
        return " ".join(option(after, key, value) for key, value in suggestion.items())
    from hpclaunch.job.directives.written import changed

    return " ".join(text for _, text in changed(after, set(suggestion)))
