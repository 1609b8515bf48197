"""The states of Slurm jobs, from sacct and squeue."""

import os
from collections.abc import Iterable, Iterator, Sequence

from hpclaunch.errors import SchedulerError
from hpclaunch.schedulers.command import ELSEWHERE, STATE_SECONDS, call
from hpclaunch.schedulers.job import (
    CANCELLED,
    COMPLETED,
    ENDED,
    FAILED,
    PENDING,
    REQUEUED,
    RUNNING,
    TIMEOUT,
    UNKNOWN,
    Job,
    State,
    Usage,
)
from hpclaunch.schedulers.values import slurm_gb

# https://slurm.schedmd.com/squeue.html#SECTION_JOB-STATE-CODES
_STATES = {
    PENDING: ("PENDING", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
    REQUEUED: ("REQUEUED", "REQUEUE_FED"),
    RUNNING: ("RUNNING", "COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"),
    COMPLETED: ("COMPLETED",),
    CANCELLED: ("CANCELLED",),
    TIMEOUT: ("TIMEOUT", "DEADLINE"),
    FAILED: ("FAILED", "BOOT_FAIL", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED"),
}
_WORDS = {theirs: ours for ours, words in _STATES.items() for theirs in words}
MAY_GO_ON = {"PREEMPTED", "NODE_FAIL", "BOOT_FAIL"}  # sacct's word for seconds before the job is requeued, too
OUTPUT_MISSING = 53  # the "signal" of a job whose --output could not be opened


def states(jobs: Sequence[Job]) -> dict[str, State]:
    """Ask sacct once; squeue too for what sacct does not settle, or if there is no sacct."""
    try:
        found, settled = _accounted(jobs)
    except SchedulerError:
        found, settled = {}, set()
    if left := {job.id for job in jobs} - settled:
        try:
            queued = _queued()
        except SchedulerError:
            if not settled:
                raise
            queued = dict.fromkeys(left, State(UNKNOWN, "no answer from squeue"))
        found |= {job_id: state for job_id, state in queued.items() if {job_id, job_id.split("_")[0]} & left}
    return found | {job_id: array for job_id in left - found.keys() if (array := _of_array(job_id, found))}


def usage(job: Job) -> Usage:
    """Return what sacct says of all starts of a job. The largest task's memory counts for each task of its step."""
    fields = "JobID,ElapsedRaw,ConsumedEnergyRaw,NTasks,MaxRSS,TotalCPU"
    seconds, joules, memory, cpu = 0, 0, [0.0], 0.0
    for name, elapsed, energy, tasks, rss, clock in _sacct(fields, [job.id], "--duplicates"):
        memory += [slurm_gb(rss) * max(_number(tasks), 1)] if rss.strip("0") else []
        if name == job.id:
            days, _, rest = clock.replace("INVALID", "").rpartition("-")  # [DAYS-[HOURS:]]MINUTES:SECONDS.FRACTION
            cpu += sum(float(part or 0) * 60**i for i, part in enumerate(rest.split(":")[::-1])) + 86400 * _number(days)
            seconds += _number(elapsed)
            joules += _number(energy) if _number(energy) < 10**15 else 0  # 2^64 - 2 without a plugin
    return Usage(seconds or None, cpu or None, max(memory) or None, joules or None)


def _of_array(job_id: str, found: dict[str, State]) -> State | None:
    """Return the state of an array from its jobs': alive while one is, then the worst end."""
    jobs = [state for other, state in found.items() if other.startswith(f"{job_id}_")]
    order = [RUNNING, PENDING, REQUEUED, UNKNOWN, FAILED, TIMEOUT, CANCELLED, COMPLETED]
    return min(jobs, key=lambda state: order.index(state.word), default=None)


def _accounted(jobs: Sequence[Job]) -> tuple[dict[str, State], set[str]]:
    """Return what sacct says, and the ids of those that have ended and whose exit code is sure.

    sacct of Slurm 22.05 shows a script's exit code of 128 and more less 128, that of 25.11 does not. So one below 128
    counts only if the run folder agrees.
    """
    asked = {job.id: job for job in jobs}
    fields = "JobID,State,ExitCode,NodeList"
    names = dict.fromkeys(name.partition("_")[0] for name in asked)  # all ids of a large array would be too long
    found, settled = {}, set()
    for job_id, word, exit_code, hosts in _sacct(fields, names, "--allocations"):
        code, number = map(_number, exit_code.partition(":")[::2])
        if doubtful := word == "FAILED" and code < 128 and not number:
            left = (asked[job_id].exit_code or 0) if job_id in asked else 0
            code = left if left % 128 == code else 0
        found[job_id] = _state(word, code, number, hosts)
        if found[job_id].ended and word not in MAY_GO_ON and (code or not doubtful):
            settled.add(job_id)
    # Jobs of an array that were cancelled before they ran are one row, 12_[3-5%2].
    rows = {job_id.partition("_")[0]: found[job_id] for job_id in settled if "[" in job_id}
    never = {name: rows[array] for name in asked.keys() - found if (array := name.partition("_")[0]) in rows}
    return found | never, settled | never.keys()


def _sacct(fields: str, ids: Iterable[str], *options: str) -> Iterator[list[str]]:
    """Return the rows that sacct has of these jobs of this user. Raises SchedulerError."""
    # Ids of another cluster that shares the home folder may be those of other users' jobs here.
    own = [] if ELSEWHERE.get() else [f"--user={os.getuid()}"]
    words = ["sacct", *own, f"--jobs={','.join(ids)}", f"--format={fields}", *options, "--parsable2", "--noheader"]
    return _rows(call(words, seconds=STATE_SECONDS).stdout, fields.count(",") + 1)


def _queued() -> dict[str, State]:
    """Return what squeue says, which remembers jobs for some minutes after their end, with their true exit codes."""
    fields = "JobArrayID:|,State:|,RestartCnt:|,exit_code:|,StartTime:|,NodeList:|,Reason:|"
    words = ["squeue", "--me", "--array", "--noheader", "--states=all", f"--Format={fields}"]
    answer = call(words, seconds=STATE_SECONDS, variables={"SLURM_TIME_FORMAT": "%s"}).stdout  # seconds since 1970
    found = {}
    for job_id, word, restarts, status, start, hosts, reason, _ in _rows(answer, 8):
        state = _state(word, _number(status) >> 8, _number(status) & 127, hosts, "" if reason == "None" else reason)
        if state.word in (PENDING, REQUEUED):
            again = state.word == REQUEUED or _number(restarts) > 0
            state = State(REQUEUED if again else PENDING, state.reason, expected_start=_number(start) or None)
        found[job_id] = state
    return found


def _rows(answer: str, columns: int) -> Iterator[list[str]]:
    """Yield the rows of a table; skip other lines, a site's greeting for instance."""
    for line in answer.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) == columns:
            yield fields


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _state(word: str, code: int, number: int, hosts: str, reason: str = "") -> State:
    """Translate Slurm's state ("CANCELLED by 1000"), the script's exit code and the number of the signal that ended it.

    Only a job that ended by itself has an exit code: those of others are Slurm's own, as 0:125 of OUT_OF_MEMORY.
    """
    first = word.split(" ", 1)[0].rstrip("+")
    ours = _WORDS.get(first, UNKNOWN)
    hosts = "" if hosts in ("None assigned", "(null)") else hosts
    if ours not in ENDED:
        return State(ours, reason if ours != UNKNOWN else word, None, hosts)
    if number == OUTPUT_MISSING:
        return State(ours, "0:53", None, hosts)
    if first == "COMPLETED":
        return State(ours, "", 0, hosts)
    if first == "FAILED":
        return State(ours, "", 128 + number if number else code or None, hosts)
    return State(ours, word, None, hosts)
