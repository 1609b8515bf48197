"""What a finding suggests instead: only what nothing refuses in its turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import structs

if TYPE_CHECKING:
    from hpclaunch.job.checks.finding import Finding, Suggestion
    from hpclaunch.job.request import Request

_MOST = 3  # suggestions of one finding


def with_suggestions(
    findings: list[Finding], request: Request, check: Callable[[Request], Iterable[Finding]]
) -> Iterator[Finding]:
    """Yield the findings, each with the shortest of its suggestions that work; `check` finds what a request has."""
    for finding in findings:
        working = [one for one in finding.suggestions if one and _works(finding, one, findings, request, check)]
        shortest = min(map(len, working), default=0)
        kept = [one for one in working if len(one) == shortest][:_MOST]
        use = f"; use {' or '.join(map(_as_options, kept))}" if kept else ""
        yield structs.replace(finding, suggestions=kept, message=finding.message + use)


def _works(
    finding: Finding, suggestion: Suggestion, findings: list[Finding], request: Request,
    check: Callable[[Request], Iterable[Finding]],
) -> bool:  # fmt: skip
    """Return whether the request loses the finding by the suggestion and gets no refusal that it did not have."""
    others = {other.check for other in findings if other.refuses} - {finding.check}
    before = {other.key for other in findings if other.refuses and other.check == finding.check} - {finding.key}
    after = list(check(structs.replace(request, **suggestion)))
    gone = all((other.check, other.key) != (finding.check, finding.key) for other in after)
    return gone and all(
        other.check in others or (other.check == finding.check and other.key in before)
        for other in after
        if other.refuses
    )


def _as_options(suggestion: Suggestion) -> str:
    """Return a suggestion as options of the command line."""
    words = []
    for name, value in suggestion.items():
        option = "-A" if name == "account" else f"--{name.replace('_', '-')}"
        text = f"{value:.12g}" if isinstance(value, float) else str(value)
        words.append(f"no {option}" if value is None else f"{option} {text}")
    return " ".join(words)
