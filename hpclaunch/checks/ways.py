"""The ways out that a finding names: only those that nothing refuses in its turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import structs

if TYPE_CHECKING:
    from hpclaunch.checks.finding import Finding, Way
    from hpclaunch.request import Request

_MOST = 3  # of them a person reads


def with_ways(
    findings: list[Finding], request: Request, judge: Callable[[Request], Iterable[Finding]]
) -> Iterator[Finding]:
    """Yield the findings, each with the simplest of its ways that `judge`, which finds again, takes."""
    for finding in findings:
        sound = [way for way in finding.ways if way and _is_sound(finding, way, findings, request, judge)]
        simplest = min(map(len, sound), default=0)
        ways = [way for way in sound if len(way) == simplest][:_MOST]
        text = " or ".join(map(_said, ways))
        yield structs.replace(finding, ways=ways, message=f"{finding.message}; use {text}" if text else finding.message)


def _is_sound(
    finding: Finding, way: Way, findings: list[Finding], request: Request,
    judge: Callable[[Request], Iterable[Finding]],
) -> bool:  # fmt: skip
    """Tell whether the request with `way` is rid of the finding, and refused for nothing that it was not before."""
    others = {other.check for other in findings if other.refuses} - {finding.check}
    before = {other.key for other in findings if other.refuses and other.check == finding.check} - {finding.key}
    after = list(judge(structs.replace(request, **way)))
    gone = all((other.check, other.key) != (finding.check, finding.key) for other in after)
    return gone and all(
        other.check in others or (other.check == finding.check and other.key in before)
        for other in after
        if other.refuses
    )


def _said(way: Way) -> str:
    """Return a way as options of the command line."""
    words = []
    for name, value in way.items():
        option = "-A" if name == "account" else f"--{name.replace('_', '-')}"
        text = f"{value:.12g}" if isinstance(value, float) else str(value)
        words.append(f"no {option}" if value is None else f"{option} {text}")
    return " ".join(words)
