"""Slurm's commands. https://slurm.schedmd.com/sbatch.html and its neighbours sacct, squeue, scontrol, scancel."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from glob import escape
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

from hpclaunch.errors import HpclaunchError, SchedulerError
from hpclaunch.schedulers import Scheduler
from hpclaunch.schedulers.command import STATE_SECONDS, call
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
    Allocation,
    Job,
    State,
    directive,
    leading_number,
)

if TYPE_CHECKING:
    from hpclaunch.schedulers.machine import Machine

# https://slurm.schedmd.com/squeue.html#SECTION_JOB-STATE-CODES
STATES = {
    "PENDING": PENDING,
    "REQUEUE_HOLD": PENDING,
    "RESV_DEL_HOLD": PENDING,
    "SPECIAL_EXIT": PENDING,
    "REQUEUED": REQUEUED,
    "REQUEUE_FED": REQUEUED,
    "RUNNING": RUNNING,
    "COMPLETING": RUNNING,
    "CONFIGURING": RUNNING,
    "RESIZING": RUNNING,
    "SIGNALING": RUNNING,
    "STAGE_OUT": RUNNING,
    "STOPPED": RUNNING,
    "SUSPENDED": RUNNING,
    "COMPLETED": COMPLETED,
    "CANCELLED": CANCELLED,
    "TIMEOUT": TIMEOUT,
    "DEADLINE": TIMEOUT,
    "BOOT_FAIL": FAILED,
    "FAILED": FAILED,
    "NODE_FAIL": FAILED,
    "OUT_OF_MEMORY": FAILED,
    "PREEMPTED": FAILED,
    "REVOKED": FAILED,
}
MAY_GO_ON = {"PREEMPTED", "NODE_FAIL", "BOOT_FAIL"}  # sacct's word for seconds before the job is requeued, too
OUTPUT_MISSING = 53  # the "signal" of a job whose --output could not be opened


def submit(script: str, after: Sequence[str] = (), name: str = "") -> str:
    """Submit the script through sbatch's stdin, so that no file is left where it is refused.

    Raises HpclaunchError in a folder where no job can write its output.
    """
    here, own = str(Path.cwd()), re.search(r"^#SBATCH\s+(-o\s*|--output[= ]\s*)/", script, re.MULTILINE)
    if not own and (read := re.search(r"\\|%[\w%]", here)):
        raise HpclaunchError(
            f"{here}: Slurm reads {read[0]} in the path of a job's output as a sign of its own, and the job dies",
            "submit from a folder without % and \\ in its path",
        )
    options = [f"--dependency=afterok:{':'.join(after)}"] if after else []
    options += [f"--job-name={name}"] if name else []
    answer = call(["sbatch", "--parsable", *options], stdin=script).stdout.strip()
    job_id = answer.split(";")[0]  # ID;CLUSTER where there are several
    if not job_id:
        raise SchedulerError(
            "sbatch printed no job id: a limit on submitted jobs is reached (QOSMaxSubmitJobPerUserLimit)"
        )
    return job_id


def states(jobs: Sequence[Job]) -> dict[str, State]:
    """Ask sacct once; squeue too for what sacct does not settle, or where there is no sacct."""
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


def _of_array(job_id: str, found: dict[str, State]) -> State | None:
    """Return the state of an array from its jobs': alive while one is, then the end of one that did not go well."""
    jobs = [state for other, state in found.items() if other.startswith(f"{job_id}_")]
    order = [RUNNING, PENDING, REQUEUED, UNKNOWN, FAILED, TIMEOUT, CANCELLED, COMPLETED]
    return min(jobs, key=lambda state: order.index(state.word), default=None)


def cancel(jobs: Sequence[Job]) -> None:
    """Cancel with one scancel, which leaves alone what has ended."""
    call(["scancel", "--quiet", *(job.id for job in jobs)])


def _accounted(jobs: Sequence[Job]) -> tuple[dict[str, State], set[str]]:
    """Return what sacct says, and the ids of those that have ended and whose exit code is sure.

    sacct of Slurm 22.05 shows a script's exit code of 128 and more less 128, that of 25.11 does not. So one below 128
    counts only if the run folder agrees.
    """
    asked = {job.id: job for job in jobs}
    fields = "JobID,State,ExitCode,NodeList"
    # Ids of another cluster, of which the home folder may know, may be those of other users' jobs here.
    words = ["sacct", f"--user={os.getuid()}", f"--jobs={','.join(asked)}", f"--format={fields}"]
    words += ["--allocations", "--parsable2", "--noheader"]
    found, settled = {}, set()
    for job_id, word, exit_code, hosts in _rows(call(words, seconds=STATE_SECONDS).stdout, 4):
        code, number = map(_number, exit_code.partition(":")[::2])
        if doubtful := word == "FAILED" and code < 128 and not number:
            left = (asked[job_id].exit_code or 0) if job_id in asked else 0
            code = left if left % 128 == code else 0
        found[job_id] = _state(word, code, number, hosts)
        if found[job_id].ended and word not in MAY_GO_ON and (code or not doubtful):
            settled.add(job_id)
    return found, settled


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
    """Yield the rows of a table; other lines, a site's greeting for instance, are none of it."""
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
    ours = STATES.get(first, UNKNOWN)
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


class Slurm(Scheduler):
    """Slurm, 22.05 and later."""

    prefix = "SBATCH"
    starts_ranks = True
    lightning_requeues = True
    job_variable = "SLURM_JOB_ID"
    host_variables = (
        *Scheduler.host_variables,
        *("SLURMD_NODENAME", "SLURM_GTIDS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_PROCID", "SLURM_TASK_PID"),
    )
    # lightning/fabric/plugins/environments/slurm.py
    interactive_names = frozenset({"bash", "interactive"})
    arrays = True
    signal_directive = "--signal=USR2@90"
    needs = ("sbatch", "squeue", "scontrol", "scancel")
    useful = ("sacct", "sacctmgr")
    describes = ("scontrol",)

    submit = staticmethod(submit)
    states = staticmethod(states)
    cancel = staticmethod(cancel)

    def requeue(self, environment: Mapping[str, str], folder: Path) -> None:
        """Let Slurm start the same job again."""
        call(["scontrol", "requeue", environment[self.job_variable]], seconds=STATE_SECONDS)

    def output(self, job: Job) -> Path | None:
        """Return NAME_ID.out or slurm-ID.out, or the file that the script names by --output."""
        array, _, index = job.id.partition("_")
        known = {"j": job.id, "A": array, "a": index, "x": job.job_name, "%": "%"}
        if named := directive(job, r"SBATCH\s+(?:--output(?:=|\s+)|-o\s*)"):
            name = re.sub(r"%(\d*)([jAax%])", lambda part: known[part[2]].zfill(int(part[1] or 0)), named)
            if (path := job.submitted_from / name).is_file():
                return path
        return next(iter(sorted(job.submitted_from.glob(f"*[_-]{escape(job.id)}.out"))), None)

    def array_directives(self, indices: str) -> list[str]:
        """Return Slurm's directive of an array."""
        return [f"--array={indices}"]

    def array_ids(self, array: str, count: int) -> list[str]:
        """Return ARRAY_INDEX for each job."""
        return [f"{array}_{index}" for index in range(count)]

    def allocation(self, environment: Mapping[str, str]) -> Allocation:
        """Read what Slurm sets in the environment of a step, a job script or salloc's shell."""
        job_id = environment[self.job_variable]
        cpus = map(int, re.findall(r"(?:^|,)(\d+)", environment.get("SLURM_JOB_CPUS_PER_NODE", "")))
        return Allocation(
            scheduler=self.name,
            job_id=job_id,
            nodes=leading_number(environment.get("SLURM_JOB_NUM_NODES")) or 1,
            cpus=min(cpus, default=0),
            gpus=leading_number(environment.get("SLURM_GPUS_ON_NODE")) or _gpus_of(job_id),
            tasks=leading_number(environment.get("SLURM_NTASKS_PER_NODE")) or None,
        )

    def ping(self, seconds: float) -> str:
        """Ask for the controllers."""
        answer = call(["scontrol", "ping"], seconds=seconds).stdout
        if "is UP" not in answer:  # some releases say DOWN and exit with 0
            raise SchedulerError(answer)
        return "; ".join(answer.split("\n")).strip("; ")

    def closed(self, partition: str, seconds: float) -> str:
        """Return the state of a partition that is not UP."""
        answer = call(["scontrol", "--oneliner", "show", "partition", partition], seconds=seconds).stdout
        found = re.search(r"\bState=(?!UP\b)\S+", answer)
        return found[0] if found else ""

    def accounts(self) -> tuple[list[str], bool]:
        """Return the accounts of the user's associations; Slurm keeps them in lower case."""
        from hpclaunch.schedulers.machine import user
        from hpclaunch.schedulers.slurm.limits import table

        if not which("sacctmgr"):
            return [], False
        rows = table("assoc", "Account", f"user={user()}")
        return list(dict.fromkeys(row[0] for row in rows if row[0])), True

    def try_script(self, script: str, seconds: float) -> str:
        """Let sbatch check the script."""
        call(["sbatch", "--test-only"], stdin=script, seconds=seconds)
        return "sbatch --test-only"

    def detect(self) -> Machine:
        """Ask the controller and the accounting."""
        from hpclaunch.schedulers.slurm.detect import ask

        return ask()


def _gpus_of(job_id: str) -> int:
    """Ask Slurm for the GPUs of a node: the shell of a salloc on a login node has no variable for them."""
    try:
        answer = call(["squeue", "--noheader", f"--jobs={job_id}", "--Format=tres-per-node:.80"]).stdout
    except SchedulerError:
        return 0
    found = re.search(r"gpu(?::[\w.-]+)?:(\d+)", answer)
    return int(found.group(1)) if found else 0
