"""What a diagnostic suggests instead: only what is not refused in its turn, as users write it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import structs

from hpclaunch.job.diagnostic import Diagnostic, Edit, Suggestion
from hpclaunch.job.directives.options import Script
from hpclaunch.job.directives.read import dialect
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request

_MOST = 3  # suggestions of one diagnostic
_SIZES = {"nodes", "gpus_per_node", "tasks_per_node", "cpus_per_task"}
_TOTALS = {"mem_gb", "jobfs_gb"}


def option(plan: Plan, key: str, value: Any) -> str:
    """Return how users of this plan write a key with its value: --walltime 1h, or in a script -l walltime=1h."""
    if plan.script and key == "account":
        return plan.site.account_form.replace("{account}", value)
    if plan.script:
        return dialect(plan.site.scheduler).WORDS[key].format(value)
    name = "-A" if key == "account" else f"--{key.replace('_', '-')}"
    text = f"{value:.12g}" if isinstance(value, float) else str(value)
    return f"no {name}" if value is None else f"{name} {text}"


def changes(after: Plan, script: Script, keys: Iterable[str]) -> list[tuple[str, Edit]]:
    """Return the directives by which a script would ask for the plan `after`, of those about `keys`, with their edits.

    Where the sizes are totals, one that changes changes the others.
    """
    own, given, keys = dialect(after.site.scheduler), script.directives, set(keys)
    together = own.TOGETHER and keys & _SIZES
    found = []
    for name, (key, value, text) in own.planned(after).items():
        resource = name.startswith("l.")
        option = given.first(name) if resource else given.last(name)
        either = set(key.split(" or --"))  # --ntasks stands for both, and stays alone
        other = len(either) > 1 or (key == "tasks_per_node" and given.last("ntasks"))
        about = keys & either or (together and (key in _SIZES or (option and key in _TOTALS)))
        if value in ("0", "gpu:0"):
            if about and option and not resource:
                found.append((f"no {option.written}", Edit(option.line, rf"\s*{option.pattern}", "")))
        elif value and about and option is None and not other:
            found.append((text, Edit(script.last, "$", f"\n#{after.scheduler.prefix} {text}")))
        elif value and about and option and own.same(option) != value:
            found.append((text, Edit(option.line, option.pattern, text[3:] if resource else text)))
    return found


def with_suggestions(
    diagnostics: list[Diagnostic], request: Request, plan: Callable[[Request], Plan],
    check: Callable[[Plan], Iterable[Diagnostic]],
) -> Iterator[Diagnostic]:  # fmt: skip
    """Yield the diagnostics, each with the shortest of its suggestions that work.

    `plan` makes the plan of a request, `check` returns the diagnostics of a plan.
    """
    for one in diagnostics:
        working: list[tuple[Suggestion, str, list[Edit]]] = []
        for suggestion in filter(None, one.suggestions):
            after = plan(structs.replace(request, **suggestion))
            written = changes(after, after.script, suggestion) if after.script else []
            texts = [text for text, _ in written]
            if not after.script:
                texts = [option(after, key, value) for key, value in suggestion.items()]
            if texts and _works(one, diagnostics, list(check(after))):
                working.append((suggestion, " ".join(texts), [edit for _, edit in written]))
        shortest = min((len(suggestion) for suggestion, _, _ in working), default=0)
        kept = [row for row in working if len(row[0]) == shortest][:_MOST]
        use = f"; use {' or '.join(dict.fromkeys(text for _, text, _ in kept))}" if kept else ""
        yield structs.replace(
            one,
            suggestions=[suggestion for suggestion, _, _ in kept],
            message=one.message + use,
            edits=kept[0][2] or one.edits if one.certain and kept else one.edits,
        )


def _works(one: Diagnostic, before: list[Diagnostic], after: list[Diagnostic]) -> bool:
    """Tell whether a suggestion removes the diagnostic and brings no refusal that was not there before."""

    def refusals(diagnostics: list[Diagnostic]) -> set[tuple[str, str]]:
        return {(other.check, other.key if other.check == one.check else "") for other in diagnostics if other.refuses}

    same = (one.check, one.key)
    return refusals(after) <= refusals(before) - {same} and same not in {(other.check, other.key) for other in after}
