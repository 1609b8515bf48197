"""What would keep a user's job from running here, looked for before it is submitted.

A probe is a function from a patient to results; it asks one thing, knows no other probe, and cannot stop one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request
from hpclaunch.profile.search import Profile

ASK_SECONDS = 10.0  # for a scheduler's command
RUN_SECONDS = 60.0  # for a job's environment, and for importing torch
LEFT_SECONDS = 5.0  # for a probe to report that its command took too long

Verdict = Literal["ok", "warning", "problem"]


class Result(Struct, frozen=True):
    """What a probe found, and what to do about it unless it is ok."""

    probe: str
    verdict: Verdict
    found: str
    remedy: str = ""
    out_of_reach: bool = False


def ok(probe: str, found: str) -> Result:
    """Return the result of a probe that found nothing wrong."""
    return Result(probe, "ok", found)


def warning(probe: str, found: str, remedy: str) -> Result:
    """Return what may keep a job from running."""
    return Result(probe, "warning", found, remedy)


def problem(probe: str, found: str, remedy: str, out_of_reach: bool = False) -> Result:
    """Return what keeps a job from running."""
    return Result(probe, "problem", found, remedy, out_of_reach)


class Patient(Struct, frozen=True, kw_only=True):
    """What is examined: a request on a site, its plan and script or why there is none, the folder of submission.

    `strange` names the files that write lines of the script's environment and may come from anybody.
    """

    profile: Profile
    request: Request
    plan: Plan | None
    script: str
    refusal: str
    folder: Path
    strange: list[str] = []


Probe = Callable[[Patient], Iterator[Result]]


def examine(patient: Patient) -> list[Result]:
    """Run all probes beside each other and return what they found, in a fixed order.

    One that hangs, on a dead file system say, is left behind when its time is over.
    """
    from hpclaunch.doctor import environment, folders, scheduler

    probes: list[tuple[str, Probe, float]] = [
        *((name, probe, 3 * ASK_SECONDS) for name, probe in scheduler.PROBES.items()),
        *((name, probe, 2 * RUN_SECONDS) for name, probe in environment.PROBES.items()),
        *((name, probe, 2 * ASK_SECONDS) for name, probe in folders.PROBES.items()),
    ]
    runs = [(name, seconds, *_start(name, probe, patient)) for name, probe, seconds in probes]
    results = []
    for name, seconds, thread, found in runs:
        thread.join(seconds + LEFT_SECONDS)
        results += list(found)
        if thread.is_alive():
            remedy = "a file system may hang: try `ls` there, and tell the site's support"
            results.append(problem(name, f"no answer after {seconds:g} s", remedy))
    return results


def _start(name: str, probe: Probe, patient: Patient) -> tuple[threading.Thread, list[Result]]:
    found: list[Result] = []

    def run() -> None:
        try:
            for result in probe(patient):
                found.append(result)  # noqa: PERF402 - what it found before it hangs or fails counts
        except Exception as error:  # whatever it is, the other probes go on
            said = " ".join(str(error).split()) or type(error).__name__
            found.append(warning(name, f"cannot tell: {said}", ""))

    thread = threading.Thread(target=run, daemon=True)  # the interpreter does not wait for it
    thread.start()
    return thread, found
