"""The states of PBS jobs, from qstat's JSON. https://github.com/openpbs/openpbs/tree/master/doc/man1/qstat.1B."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import structs

from hpclaunch.schedulers import run_folder
from hpclaunch.schedulers.command import STATE_SECONDS, call
from hpclaunch.schedulers.job import (
    CANCELLED,
    COMPLETED,
    FAILED,
    NEVER_RAN,
    PENDING,
    REQUEUED,
    RUNNING,
    TIMEOUT,
    UNKNOWN,
    Job,
    State,
    Usage,
)
from hpclaunch.schedulers.values import pbs_gb, pbs_seconds

# https://github.com/openpbs/openpbs/blob/master/doc/man1/qstat.1B, "job_state"
STATES = {
    "Q": PENDING,  # queued
    "H": PENDING,  # held, by a user or until another job ends
    "W": PENDING,  # waiting for the time given by qsub -a
    "T": PENDING,  # in transit to another queue or server
    "R": RUNNING,
    "E": RUNNING,  # exiting: its output is being delivered
    "B": RUNNING,  # array of which a subjob has begun
    "S": RUNNING,  # suspended
    "U": RUNNING,  # suspended while somebody sits at the workstation
    "F": COMPLETED,  # finished, one way or another: Exit_status tells
    "X": COMPLETED,  # subjob that is finished while its array is not
    "M": UNKNOWN,  # moved to another server
}
# Exit statuses that are not the script's. Below 0: https://github.com/openpbs/openpbs/blob/master/src/include/job.h,
# JOB_EXEC_*; above 256: 256 + the signal that ended the job's shell.
KILLED = {
    -29: (TIMEOUT, ""),
    -27: (FAILED, "OUT_OF_MEMORY"),
    -26: (FAILED, "OUT_OF_MEMORY"),  # virtual memory
    -20: (FAILED, "NODE_FAIL"),  # its first node was lost, and it is not rerunnable
    265: (CANCELLED, ""),  # qdel -W force
    271: (CANCELLED, ""),  # qdel
}
DELETED = 91  # substate of a job that qdel ended
WENT_WELL = 92  # substate of a job that did, or that never ran since a job it depends on failed
WAITS_FOR_JOB = 22  # substate of a job that is held by a dependency
NO_START = "too many failed attempts to run"  # in the comment of a job that never ran; run_count counts them
# Exit codes of qstat and qdel: wrong options; one of the ids has finished, is unknown; there is no history.
USAGE, FINISHED, NO_HISTORY, UNKNOWN_ID = 2, 35, 36, 153


def states(jobs: Sequence[Job]) -> dict[str, State]:
    """Ask for all jobs and their attempts at once; the run folder counts if qstat does not know one."""
    asked = {job.id: [job.id, *job.further_ids] for job in jobs}
    open_ids = [job_id for job in jobs if not job.recorded_end for job_id in asked[job.id]]
    found = _ask([job_id for ids in asked.values() for job_id in ids], open_ids)
    return {job.id: _of_run(job, asked[job.id], found) for job in jobs}


def usage(job: Job) -> Usage:
    """Return the sums of the attempts' resources_used; their memory is of all nodes, 0b where a host does not count."""
    ids = [job.id, *job.further_ids]
    found, _ = _jobs(ids, ids, subjobs="[" in job.id)
    with suppress(ValueError, AttributeError, TypeError):  # an answer may be anything
        used = [found[job_id].get("resources_used", {}) for job_id in ids if job_id in found]
        return Usage(
            seconds=sum(pbs_seconds(str(one.get("walltime", 0))) for one in used) or None,
            cpu_seconds=sum(pbs_seconds(str(one.get("cput", 0))) for one in used) or None,
            mem_gb=max((pbs_gb(str(one.get("mem", 0))) for one in used), default=0) or None,
        )
    return Usage()


def _ask(ids: Sequence[str], open_ids: Sequence[str]) -> dict[str, State]:
    """Return qstat's answer for `ids`, repeated for `open_ids`; those that it does not know are absent."""
    names = {job_id: re.sub(r"\[\d+\]", "[]", job_id) for job_id in ids}  # a job of an array is shown with its array
    needed = {names[job_id] for job_id in open_ids}
    jobs, unknown = _jobs(list(dict.fromkeys(names.values())), needed, subjobs=any("[" in job_id for job_id in ids))
    return {job_id: _state(job_id, jobs.get(job_id)) for job_id in ids if names[job_id] not in unknown}


def _jobs(ids: Sequence[str], needed: Container[str], subjobs: bool) -> tuple[dict[str, Any], set[str]]:
    """Return the jobs that qstat shows, and those of `ids` that it says it does not know.

    One of `needed` that is absent from an answer about several is asked for again: newer versions answer for the
    first only (https://github.com/openpbs/openpbs/issues/2672), unless called with -E, which older ones may not have.
    A server without a history refuses -x, whatever the job's state (PBSE_JOBHISTNOTSET in OpenPBS's req_stat.c).
    An answer that cannot be read, as a variable's value may break its JSON, is asked for again by halves.
    """
    several, refused = len(ids) > 1, "?"
    options = ["-x", *(["-t"] if subjobs else []), "-f", "-F", "json", *(["-E"] if several else [])]
    while refused:
        fine = (0, FINISHED, NO_HISTORY, UNKNOWN_ID, *([USAGE] if "-E" in options else []))
        answer = call(["qstat", *options, *ids], fine=fine, seconds=STATE_SECONDS)
        unset = "-x" in options and "not configured to maintain job history" in answer.stderr
        refused = "-E" if answer.returncode == USAGE else "-x" if unset else ""
        options = [option for option in options if option != refused]
    jobs: dict[str, Any] = {}
    size = len(ids) // 2
    with suppress(ValueError, AttributeError, TypeError):
        jobs, size = dict(json.loads(answer.stdout, strict=False).get("Jobs", {})), 1
    said = re.findall(r"Unknown Job Id:? *(\S*)", answer.stderr) if answer.returncode == UNKNOWN_ID else []
    if not several:
        return jobs, set(ids) if said and ids[0] not in jobs else set()
    unknown = set(said) & set(ids)
    rest = [job_id for job_id in ids if job_id in needed and job_id not in jobs and job_id not in unknown]
    for start in range(0, len(rest), size):
        more, others = _jobs(rest[start : start + size], needed, subjobs)
        jobs, unknown = jobs | more, unknown | others
    return jobs, unknown


def _of_run(run: Job, ids: Sequence[str], found: Mapping[str, State]) -> State:
    """Return the state of a run from those of its attempts."""
    known = [found[job_id] for job_id in ids if job_id in found]
    ended = [state for state in known if state.ended]
    ran = [state for state in ended if state.reason != NEVER_RAN]
    if 0 < len(ran) < len(ended):  # the attempts that waited were deleted; did the run need them?
        ended = [State(CANCELLED)] if _goes_on(run, len(ran) + 1) else ran
    if running := next((state for state in known if state.word == RUNNING), None):
        return running
    code = run.exit_code
    waiting = next((i for i in ids if i in found and found[i].word in (PENDING, REQUEUED)), None)
    if waiting and (waiting == ids[0] or code is None or _goes_on(run, ids.index(waiting) + 1)):
        return found[waiting] if waiting == ids[0] else structs.replace(found[waiting], word=REQUEUED)
    if len(run.further_ids) >= len(ids):
        return State(REQUEUED)  # it submitted its next attempt while qstat was asked
    if ids[-1] in found and found[ids[-1]].ended:
        return ended[-1]
    if unknown := next((state for state in known if state.word == UNKNOWN), None):
        return run.recorded_end or unknown
    return ended[-1] if ended and waiting else _gone(run, code)


def _goes_on(run: Job, attempt: int) -> bool:
    """Tell whether the attempt that waits has something to do; of those submitted with the first, many have not."""
    return (run.path / run_folder.ATTEMPT.format(attempt)).exists()


def _gone(run: Job, code: int | None) -> State:
    """Return the state of a run that qstat does not know, from what is in its folder."""
    if run.cancelled and code in (None, 143):
        return State(CANCELLED, "", code)
    if code is not None:
        return State(FAILED if code else COMPLETED, "", code)
    if not run.path.is_dir():
        return State(UNKNOWN)
    return State(FAILED, "" if (run.path / run_folder.FAILED).exists() else "vanished")


def _state(job_id: str, job: Any) -> State:
    """Translate a job as qstat shows it; it may be anything, or None."""
    with suppress(ValueError, AttributeError, TypeError, KeyError):
        return _shown(job_id, job)
    return State(UNKNOWN, "qstat's answer cannot be read")


def _shown(job_id: str, job: Mapping[str, Any]) -> State:
    letter = job["job_state"]
    word = STATES.get(letter, UNKNOWN)
    hosts = ",".join(dict.fromkeys(part.split("/")[0] for part in job.get("exec_host", "").split("+") if part))
    if word == COMPLETED:
        return _end(job_id, job, hosts)
    if word == PENDING:
        again = int(job.get("run_count", 0)) > 0 and NO_START not in job.get("comment", "")
        return State(REQUEUED if again else PENDING, _waits(job), expected_start=_expected_start(job))
    reasons = {"S": "suspended", "U": "suspended", "M": "moved to another server"}
    return State(word, reasons.get(letter, f"job_state {letter}" if word == UNKNOWN else ""), None, hosts)


def _expected_start(job: Mapping[str, Any]) -> float | None:
    """Return the scheduler's estimate, which it makes for some jobs only; PBS shows times as ctime(3) does."""
    start = str(job.get("estimated", {}).get("start_time", ""))
    with suppress(ValueError, OverflowError):
        return float(start) if start.isdecimal() else time.mktime(time.strptime(start))
    return None


def _waits(job: Mapping[str, Any]) -> str:
    """Return why a job waits, in PBS's words if it has any."""
    if job["job_state"] == "W":
        return "BeginTime"
    if job["job_state"] == "H":
        if job.get("substate") == WAITS_FOR_JOB or "depend" in job:
            return "Dependency"
        if NO_START in job.get("comment", ""):
            return NO_START
        return "held by qhold" if job.get("Hold_Types", "u") == "u" else "held by the site"
    comment = str(job.get("comment", "")).strip()
    # More than there is in total: "ngpus (R: 8 A: 0 T: 4)", "mem (R: 400gb A: 100gb T: 190gb)".
    found = re.search(r"\(R: (\d{1,18}[kmgtp]?b?) A: \S+ T: (\d{1,18}[kmgtp]?b?)\)", comment)
    never = found and pbs_gb(found[1]) > pbs_gb(found[2])
    return f"Can Never Run: {comment}" if never else comment


def _end(job_id: str, job: Mapping[str, Any], hosts: str) -> State:
    status, substate = job.get("Exit_status"), job.get("substate")
    if status is None:
        unmet = substate == WENT_WELL and not job.get("comment")
        return State(CANCELLED, "DependencyNeverSatisfied" if unmet else NEVER_RAN)
    if status in KILLED:
        word, reason = KILLED[status]
    elif substate == DELETED:
        word, reason = CANCELLED, ""
    elif status == 0 and "[]" in job_id and substate != WENT_WELL:
        return State(FAILED, "a subjob failed", 1, hosts)
    else:
        word, reason = FAILED if status else COMPLETED, ""
    if word == CANCELLED and (who := re.search(r"terminated by (\w\S*)", str(job.get("comment", "")))):
        reason = f"CANCELLED by {who[1].split('@')[0]}"
    return State(word, reason, status, hosts)
