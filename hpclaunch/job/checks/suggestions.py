"""What a diagnostic suggests instead: only what is not refused in its turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import structs

from hpclaunch.job.checks.spelling import edits, spelled

if TYPE_CHECKING:
    from hpclaunch.job.diagnostic import Diagnostic, Suggestion
    from hpclaunch.job.plan import Plan
    from hpclaunch.job.request import Request

_MOST = 3  # suggestions of one diagnostic


def with_suggestions(
    diagnostics: list[Diagnostic], request: Request, plan: Callable[[Request], Plan],
    check: Callable[[Plan], Iterable[Diagnostic]],
) -> Iterator[Diagnostic]:  # fmt: skip
    """Yield the diagnostics, each with the shortest of its suggestions that work.

    `plan` makes the plan of a request, `check` returns the diagnostics of a plan.
    """
    for one in diagnostics:
        working: list[tuple[Suggestion, str]] = []
        for suggestion in filter(None, one.suggestions):
            after = plan(structs.replace(request, **suggestion))
            if _works(one, diagnostics, list(check(after))) and (text := spelled(suggestion, after)):
                working.append((suggestion, text))
        shortest = min((len(suggestion) for suggestion, _ in working), default=0)
        kept = [pair for pair in working if len(pair[0]) == shortest][:_MOST]
        changes = one.edits
        if one.certain and kept and plan(request).script:
            changes = edits(kept[0][0], plan(structs.replace(request, **kept[0][0])))
        use = f"; use {' or '.join(dict.fromkeys(text for _, text in kept))}" if kept else ""
        yield structs.replace(
            one, suggestions=[suggestion for suggestion, _ in kept], message=one.message + use, edits=changes
        )


def _works(one: Diagnostic, before: list[Diagnostic], after: list[Diagnostic]) -> bool:
    """Tell whether a suggestion removes the diagnostic and brings no refusal that was not there before."""
    others = {other.check for other in before if other.refuses} - {one.check}
    keys = {other.key for other in before if other.refuses and other.check == one.check} - {one.key}
    gone = all((other.check, other.key) != (one.check, one.key) for other in after)
    return gone and all(
        other.check in others or (other.check == one.check and other.key in keys) for other in after if other.refuses
    )
