"""Why a job waits, or why it died, in words, from what the scheduler says and the run folder keeps."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from hpclaunch import logs
from hpclaunch.causes import ENDS, WAITS, exit_words, hint
from hpclaunch.runs import CANCELLED, COMPLETED, ENDED, PENDING, REQUEUED, RUNNING, TIMEOUT, Run, State

__all__ = ["exit_words", "explain", "headline"]

_WAITING = (PENDING, REQUEUED)  # what stands in the run folder is of the attempt before
_SHOWN = 20  # lines of the log that tells most
_SEARCHED = 60  # lines in which to look for something known


class Failure(NamedTuple):
    """The first failure of a run, as the job script noted it."""

    code: int
    log: Path | None
    who: str

    def __str__(self) -> str:
        if " on " in self.who or self.who.startswith("node"):
            return f"{self.who} exited with {self.code}"
        return f"{self.who}, exit code {self.code}"


def explain(run: Run, state: State) -> list[str]:
    """Return what to tell a person about this run: the headline, the cause, its last words, what may help."""
    lines = [headline(run, state)]
    if state.word not in ENDED:
        lines.append(_not_ended(run, state))
        failure = None if state.word in _WAITING else _failure(run)
        return lines + (_last_words(run, failure, advise=True) if failure else [])
    if state.word == COMPLETED:
        return [*lines, f"It ended well, with exit code 0. Its logs are in {run.folder}"]
    failure = _failure(run)
    end = _end(state)
    if end:
        lines.append(f"The scheduler's word is {state.reason or state.word}: {end}.")
    code = failure.code if failure else state.exit_code
    if code is not None and (failure or not end):
        lines.append(f"Exit code {code}: {exit_words(code)}.")
    if failure and end:
        lines.append(f"The first to fail: {failure}.")
    if _never_began(state) or (state.word == CANCELLED and not failure):
        return lines
    return lines + _last_words(run, failure, advise=not end)  # else what the ranks say is a consequence


def headline(run: Run, state: State) -> str:
    """Return the run, its state and the cause in one line: `1234 (gadi, train) FAILED: rank 3 on n1 exited with 7`."""
    start = f"{run.id} ({run.site}, {run.job_name}) {state.word}"
    failure = None if state.word in (*_WAITING, COMPLETED) else _failure(run)
    end = _end(state).split(". ")[0] if state.word in ENDED else ""
    if end and (failure is None or state.word in (CANCELLED, TIMEOUT) or _first_word(state) != "OUT_OF_MEMORY"):
        cause = end
    elif failure:
        cause = str(failure)
    elif state.word in (COMPLETED, RUNNING):
        cause = f"on {state.hosts}" if state.hosts else ""
    elif state.exit_code is not None:
        cause = f"the job script exited with {state.exit_code}"
    else:
        cause = state.reason
    return f"{start}: {cause}" if cause else start


def _not_ended(run: Run, state: State) -> str:
    if state.word == RUNNING:
        return f"It is running. `hpclaunch logs --follow {run.id}` shows what the ranks write."
    if state.word in _WAITING:
        waits = _waits(run, state) if state.reason else "The scheduler gives no reason (yet)."
        again = "It ran before and waits to start again, after a walltime, a dead node or a pre-emption. "
        return (again if state.word == REQUEUED else "") + waits
    if state.reason:
        return f"The scheduler's word is: {state.reason}. Its logs, if it has any, are in {run.folder}"
    return (
        "The scheduler knows nothing of it: it was submitted a moment ago, ended so long ago that it is forgotten, was "
        f"dropped (PBS does so silently), or runs on another machine. Its logs, if it has any, are in {run.folder}"
    )


def _waits(run: Run, state: State) -> str:
    reason = state.reason.strip("()").replace("_", " ")
    for pattern, words in WAITS.items():
        if fnmatchcase(reason, pattern):
            return words.replace("JOB", run.id)
    return f"The scheduler's reason: {reason}."


def _first_word(state: State) -> str:
    return (state.reason or state.word).split(" ")[0]


def _end(state: State) -> str:
    """Return how the scheduler ended the job, nothing where the job ended by itself."""
    words = ENDS.get(state.reason) or ENDS.get(_first_word(state)) or ENDS.get(state.word, "")
    if state.reason.startswith("CANCELLED by "):
        words += f" by {_person(state.reason.removeprefix('CANCELLED by '))}"
    return words


def _person(uid: str) -> str:
    with suppress(ValueError, KeyError):
        if uid == pwd.getpwuid(os.getuid()).pw_name:
            return "you"
        return "you" if int(uid) == os.getuid() else pwd.getpwuid(int(uid)).pw_name
    return f"user {uid}"


def _never_began(state: State) -> bool:
    return state.reason in ("deleted before it ran", "DependencyNeverSatisfied") or _first_word(state) == "0:53"


def _failure(run: Run) -> Failure | None:
    """Read `failed`: EXIT_CODE LOG WHO, where a LOG of - is none."""
    try:
        code, log, who = (run.path / "failed").read_text(errors="replace").split("\n")[0].split(" ", 2)
        return Failure(int(code), None if log == "-" else run.path / log, who.strip().rstrip(","))
    except (OSError, ValueError):
        return None


def _last_words(run: Run, failure: Failure | None, advise: bool) -> list[str]:
    """Return the end of the log that tells most, and what may help."""
    first = (run.path / name for name in ("rank-0.log", "node-0.log"))
    log = (failure and failure.log) or logs.own_output(run) or next(filter(Path.exists, first), None)
    if log is None:
        return [f"There is no log: the job ended before it wrote anything. Its folder is {run.folder}"]
    ends = {path: logs.tail(path, _SEARCHED) for path in (log, log.with_suffix(".err"))}
    if not any(ends.values()):
        return [f"{log} is empty."]
    said = []
    for path, lines in ends.items():
        if lines:
            said += [f"The end of {path}:", *(f"    {line}" for line in lines[-_SHOWN:])]
    advice = hint([line for lines in ends.values() for line in lines]) if advise else ""
    return [*said, *([f"Likely: {advice}."] if advice else [])]
