"""What a probe of the doctor is given, and what it yields."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from hpclaunch.job.diagnostic import Diagnostic
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request
from hpclaunch.profile.search import Profile

ASK_SECONDS = 10.0  # for a scheduler's command
RUN_SECONDS = 60.0  # for a job's environment, and for importing torch


class Result(Diagnostic, frozen=True):
    """A diagnostic of a probe, named as its `check`, with what to do about it unless it is ok."""

    verdict: Literal["ok", "warning", "problem"] = "ok"
    remedy: str = ""
    out_of_reach: bool = False

    def record(self) -> dict[str, Any]:
        """Return the result for JSON: a diagnostic as in every command, with its verdict and remedy."""
        return Diagnostic.record(self) | {"verdict": self.verdict, "remedy": self.remedy}


def ok(probe: str, found: str) -> Result:
    """Return the result of a probe that found nothing wrong."""
    return Result(probe, found, refuses=False)


def warning(probe: str, found: str, remedy: str) -> Result:
    """Return what may keep a job from running."""
    return Result(probe, found, refuses=False, verdict="warning", remedy=remedy)


def problem(probe: str, found: str, remedy: str, out_of_reach: bool = False) -> Result:
    """Return what keeps a job from running."""
    return Result(probe, found, verdict="problem", remedy=remedy, out_of_reach=out_of_reach)


def one_line(error: Exception) -> str:
    """Return an error's text in one line."""
    return " ".join(str(error).split()) or type(error).__name__


class Patient(Struct, frozen=True, kw_only=True):
    """What is examined: a request on a site, its plan and script or why there is none, the folder of submission.

    `foreign` names the files that write lines of the script's environment and may come from anybody.
    """

    profile: Profile
    request: Request
    plan: Plan | None = None
    script: str = ""
    refusal: str = ""
    folder: Path
    foreign: list[str] = []


Probe = Callable[[Patient], Iterator[Result]]
