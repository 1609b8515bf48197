"""Why a job waits or failed, in sentences: from what the scheduler says and what the run folder records."""

import os
import pwd
import time
from contextlib import suppress

from hpclaunch.profile.model import Messages
from hpclaunch.runs import hangs, logs, messages
from hpclaunch.runs.registry import Run
from hpclaunch.schedulers import run_folder, scheduler
from hpclaunch.schedulers.job import CANCELLED, COMPLETED, ENDED, FAILED, PENDING, REQUEUED, RUNNING, TIMEOUT, State
from hpclaunch.schedulers.run_folder import Failure

_WAITING = (PENDING, REQUEUED)  # what stands in the run folder is of the attempt before
_ASKED_TO_END = (75, 130, 138, 143)  # exit codes of what was asked to end
_NOT_KNOWN = (
    "The scheduler does not know this job: it was submitted a moment ago, ended so long ago that it is forgotten, "
    "was dropped silently, or runs on another machine."
)
_SHOWN = 20  # lines of the log
_SEARCHED = 60  # lines in which to look for something known


def explain(run: Run, state: State, site: Messages | None = None) -> list[str]:
    """Return the lines to print about this run: the headline, the cause, the end of its log, what may help.

    `site` has the messages of the site's profile.
    """
    known = messages.combined(run.scheduler, site)
    failure = _failure(run, state)
    end = _end(known, state)
    lines = [_headline(run, state, failure, end), *_restarts(run)]
    if state.word not in ENDED:
        lines += _not_ended(run, state, failure, known)
        return lines + (_end_of_log(run, failure, known) if failure else [])
    if state.word == COMPLETED:
        return [*lines, f"It ended with exit code 0. Its logs are in {run.folder}"]
    asked = failure is not None and state.word in (CANCELLED, TIMEOUT) and failure.code in _ASKED_TO_END
    blamed = None if asked else failure  # what was asked to end did not fail
    if end:
        lines.append(f"The scheduler's reason is {state.reason or state.word}: {end}.")
    if blamed and blamed.seen:
        lines += hangs.describe(run.path)
        lines += [f"Likely {known.ends['NODE_FAIL']}."] if blamed.who.endswith(", which is silent") else []
    elif not end or (blamed and _first_word(state) == "OUT_OF_MEMORY"):
        code = blamed.code if blamed else state.exit_code
        lines += [f"Exit code {code}: {messages.exit_code(known, code)}."] if code is not None else []
    if blamed and end:
        lines.append(f"The first to fail: {blamed}.")
    if state.word == CANCELLED and not blamed:
        return lines
    return lines + _end_of_log(run, failure, None if end else known)  # else what the ranks print is a consequence


def _headline(run: Run, state: State, failure: Failure | None, end: str) -> str:
    """Return the run, its state and the cause in one line: `1234 (gadi, train) FAILED: rank 3 on n1 exited with 7`."""
    if state.word in ENDED and end and (failure is None or _first_word(state) != "OUT_OF_MEMORY"):
        cause = end.partition(". ")[0]
    elif failure:
        cause = str(failure)
    elif state.word in (COMPLETED, RUNNING):
        cause = f"on {state.hosts}" if state.hosts else ""
    elif state.exit_code is not None:
        cause = f"the job script exited with {state.exit_code}"
    else:
        cause = state.reason
    start = f"{run.id} ({run.site}, {run.job_name}) {state.word}"
    return f"{start}: {cause}" if cause else start


def _restarts(run: Run) -> list[str]:
    count, out = run_folder.restarts(run.path)
    if not count:
        return []
    left = f"; {', '.join(out)} {'were' if out[1:] else 'was'} left out" if out else ""
    return [f"Its ranks were started again {'once' if count == 1 else f'{count} times'} in its allocation{left}."]


def _not_ended(run: Run, state: State, failure: Failure | None, known: Messages) -> list[str]:
    if state.word == RUNNING:
        if run.exit_code is not None or failure:
            over = "has ended" if run.exit_code is not None else "is about to end"
            return [f"Its job script {over}. Until its nodes have answered, the scheduler lists it as running."]
        if state.reason == "suspended":
            return ["It is suspended: nothing of it runs until the scheduler lets it go on. Nothing to fix."]
        return [f"It is running. `hpclaunch logs --follow {run.id}` shows what the ranks write."]
    if state.word in _WAITING:
        again = "It ran before and waits to start again, after a walltime, a dead node or a pre-emption. "
        reason = state.reason.strip("()").replace("_", " ")
        waits = messages.waits(known, reason, run.id) if reason else "The scheduler gives no reason (yet)."
        lines = [(again if state.word == REQUEUED else "") + waits]
        if state.expected_start:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(state.expected_start))
            lines.append(f"The scheduler expects it to start at {when}.")
        return lines
    what = f"The scheduler's reason: {state.reason}." if state.reason else _NOT_KNOWN
    return [f"{what} Its logs, if it has any, are in {run.folder}"]


def _first_word(state: State) -> str:
    return (state.reason or state.word).split(" ")[0]


def _end(known: Messages, state: State) -> str:
    """Return how the scheduler ended the job, or "" if the job ended by itself."""
    keys = (state.reason, _first_word(state), state.word)
    end = next((known.ends[key] for key in keys if key in known.ends), "")
    if state.reason.startswith("CANCELLED by "):
        end += f" by {_user(state.reason.removeprefix('CANCELLED by '))}"
    return end


def _user(name: str) -> str:
    """Return what to call a user given by name or number."""
    with suppress(KeyError, ValueError):
        if name in (str(os.getuid()), pwd.getpwuid(os.getuid()).pw_name):
            return "you"
        return pwd.getpwuid(int(name)).pw_name
    return f"user {name}"


def _failure(run: Run, state: State) -> Failure | None:
    """Return the recorded failure, unless it is only that a rank was asked to end after the job script had died."""
    if state.word in (*_WAITING, COMPLETED) or (failure := run_folder.failure(run.path)) is None:
        return None
    script_died = state.word == FAILED and state.exit_code not in (None, failure.code)
    return None if script_died and failure.code in _ASKED_TO_END else failure


def _end_of_log(run: Run, failure: Failure | None, known: Messages | None) -> list[str]:
    """Return the end of the log that says most and, by the `known` messages, what may help."""
    firsts = (run_folder.logs(run.path, name).get(0) for name in (run_folder.RANK_LOG, run_folder.NODE_LOG))
    first = next((path for path in firsts if path and run_folder.holds(run.path, path)), None)
    log = (failure and failure.log) or scheduler(run.scheduler).output(run) or first
    if log is None:
        return [f"There is no log: the job ended before it wrote anything. Its folder is {run.folder}"]
    err = log.with_suffix(".err")
    both = (log, err) if run_folder.holds(run.path, err) or not run_folder.holds(run.path, log) else (log,)
    ends = {path: lines for path in both if (lines := logs.tail(path, _SEARCHED))}
    if not ends:
        return [f"{log} is empty."]
    shown = []
    for path, lines in ends.items():
        shown += [f"The end of {path}:", *(f"    {line}" for line in lines[-_SHOWN:])]
    advice = messages.hint(known, [line for lines in ends.values() for line in lines]) if known else ""
    return [*shown, *([f"Likely: {advice}."] if advice else [])]
