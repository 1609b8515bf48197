"""Why a job waits, or why it died, in words, from what the scheduler says and the run folder records."""

from __future__ import annotations

import os
import pwd
import re
import time
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from hpclaunch.runs import logs
from hpclaunch.runs.causes import ENDS, WAITS, exit_words, hint
from hpclaunch.runs.registry import CANCELLED, COMPLETED, ENDED, FAILED, PENDING, REQUEUED, RUNNING, TIMEOUT, Run, State
from hpclaunch.schedulers.pbs import NEVER_RAN
from hpclaunch.scripts.values import pbs_gb

__all__ = ["exit_words", "explain", "headline"]

_WAITING = (PENDING, REQUEUED)  # what stands in the run folder is of the attempt before
_TOLD_TO_END = (75, 130, 138, 143)  # exit codes of what was told to end
_SHOWN = 20  # lines of the log that tells most
_SEARCHED = 60  # lines in which to look for something known


class Failure(NamedTuple):
    """The first failure of a run, as the job script recorded it."""

    code: int
    log: Path | None
    who: str

    @property
    def seen(self) -> bool:
        """Whether the job script saw it from outside: the code is then the script's own, not a command's."""
        return self.log is None and ", which " in self.who

    def __str__(self) -> str:
        if self.seen:  # "node n1, which is silent"
            return self.who.replace(", which ", " ", 1)
        if self.who.startswith(("rank ", "node ", "torchrun ")):
            return f"{self.who} exited with {self.code}"
        return f"{self.who}, exit code {self.code}"


def explain(run: Run, state: State) -> list[str]:
    """Return what to tell a person about this run: the headline, the cause, its last words, what may help."""
    lines = [headline(run, state)]
    failure = _failure(run, state)
    if state.word not in ENDED:
        lines += _not_ended(run, state, failure)
        return lines + (_last_words(run, failure, advise=True) if failure else [])
    if state.word == COMPLETED:
        return [*lines, f"It ended well, with exit code 0. Its logs are in {run.folder}"]
    end = _end(state)
    told = failure is not None and state.word in (CANCELLED, TIMEOUT) and failure.code in _TOLD_TO_END
    blamed = None if told else failure  # what was told to end did not fail
    if end:
        lines.append(f"The scheduler's word is {state.reason or state.word}: {end}.")
    if blamed and blamed.seen:
        lines += [f"Likely {ENDS['NODE_FAIL']}."] if blamed.who.startswith("node ") else []
    elif not end or (blamed and _first_word(state) == "OUT_OF_MEMORY"):
        code = blamed.code if blamed else state.exit_code
        lines += [f"Exit code {code}: {exit_words(code)}."] if code is not None else []
    if blamed and end:
        lines.append(f"The first to fail: {blamed}.")
    never_began = state.reason in (NEVER_RAN, "DependencyNeverSatisfied") or _first_word(state) == "0:53"
    if never_began or (state.word == CANCELLED and not blamed):
        return lines
    return lines + _last_words(run, failure, advise=not end)  # else what the ranks say is a consequence


def headline(run: Run, state: State) -> str:
    """Return the run, its state and the cause in one line: `1234 (gadi, train) FAILED: rank 3 on n1 exited with 7`."""
    start = f"{run.id} ({run.site}, {run.job_name}) {state.word}"
    failure = _failure(run, state)
    end = _end(state).split(". ")[0] if state.word in ENDED else ""
    if end and (failure is None or _first_word(state) != "OUT_OF_MEMORY"):
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


def _not_ended(run: Run, state: State, failure: Failure | None) -> list[str]:
    if state.word == RUNNING:
        if run.exit_code is not None or failure:
            over = "has ended" if run.exit_code is not None else "is about to end"
            return [f"Its job script {over}. Until its nodes have answered, the scheduler lists it as running."]
        return [f"It is running. `hpclaunch logs --follow {run.id}` shows what the ranks write."]
    if state.word in _WAITING:
        waits = _waits(run, state) if state.reason else "The scheduler gives no reason (yet)."
        again = "It ran before and waits to start again, after a walltime, a dead node or a pre-emption. "
        lines = [(again if state.word == REQUEUED else "") + waits]
        if state.expected_start:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(state.expected_start))
            lines.append(f"{'PBS' if run.scheduler == 'pbs' else 'Slurm'} expects it to start at {when}.")
        return lines
    if state.reason:
        return [f"The scheduler's word is: {state.reason}. Its logs, if it has any, are in {run.folder}"]
    return [
        "The scheduler knows nothing of it: it was submitted a moment ago, ended so long ago that it is forgotten, was "
        f"dropped (PBS does so silently), or runs on another machine. Its logs, if it has any, are in {run.folder}"
    ]


def _waits(run: Run, state: State) -> str:
    reason = state.reason.strip("()").replace("_", " ")
    if _never_fits(reason):
        reason = "Can Never Run"
    for pattern, words in WAITS.items():
        if fnmatchcase(reason, pattern):
            return words.replace("JOB", run.id)
    return f"The scheduler's reason: {reason}."


def _never_fits(reason: str) -> bool:
    """Tell whether PBS's comment has more requested than there is in total: `ngpus (R: 8 A: 0 T: 4)`."""
    found = re.search(r"\(R: (\S+) A: \S+ T: (\w+)", reason)
    with suppress(ValueError):
        return found is not None and pbs_gb(found[1]) > pbs_gb(found[2])
    return False


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


def _failure(run: Run, state: State) -> Failure | None:
    """Read `failed`: EXIT_CODE LOG WHO; a LOG of - is none, and so is what is no file of the run folder.

    What was told to end is not why a job script died of a signal of its own.
    """
    if state.word in (*_WAITING, COMPLETED):
        return None
    try:
        code, log, who = (run.path / "failed").read_text(errors="replace").split("\n")[0].split(" ", 2)
        path = run.path / log
        failure = Failure(int(code), path if _own(run, path) else None, who.strip().rstrip(","))
    except (OSError, ValueError):
        return None
    script_died = state.word == FAILED and state.exit_code not in (None, failure.code)
    return None if script_died and failure.code in _TOLD_TO_END else failure


def _own(run: Run, path: Path) -> bool:
    """Tell whether `path` is a file of the run folder, and no link out of it."""
    return path.is_file() and path.resolve().is_relative_to(run.path.resolve())


def _last_words(run: Run, failure: Failure | None, advise: bool) -> list[str]:
    """Return the end of the log that tells most, and what may help."""
    first = (run.path / name for name in ("rank-0.log", "node-0/rank-0.log", "node-0.log"))
    log = (failure and failure.log) or logs.own_output(run) or next((path for path in first if _own(run, path)), None)
    if log is None:
        return [f"There is no log: the job ended before it wrote anything. Its folder is {run.folder}"]
    err = log.with_suffix(".err")
    both = (log, err) if _own(run, err) or not _own(run, log) else (log,)
    ends = {path: logs.tail(path, _SEARCHED) for path in both}
    if not any(ends.values()):
        return [f"{log} is empty."]
    said = []
    for path, lines in ends.items():
        if lines:
            said += [f"The end of {path}:", *(f"    {line}" for line in lines[-_SHOWN:])]
    advice = hint([line for lines in ends.values() for line in lines]) if advise else ""
    return [*said, *([f"Likely: {advice}."] if advice else [])]
