"""Slurm's commands. https://slurm.schedmd.com/sbatch.html and its neighbours sacct, squeue, scontrol, scancel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from hpclaunch.errors import HpclaunchError, SchedulerError
from hpclaunch.runs import CANCELLED, COMPLETED, FAILED, PENDING, REQUEUED, RUNNING, TIMEOUT, UNKNOWN, Run, State
from hpclaunch.schedulers.command import call

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
OUTPUT_MISSING = 53  # the "signal" of a job whose --output could not be opened


def submit(script: str, after: Sequence[str] = ()) -> str:
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
    answer = call(["sbatch", "--parsable", *options], stdin=script).strip()
    job_id = answer.split(";")[0]  # ID;CLUSTER where there are several
    if not job_id:
        raise SchedulerError(
            "sbatch printed no job id: a limit on submitted jobs is reached (QOSMaxSubmitJobPerUserLimit)"
        )
    return job_id


def states(runs: Sequence[Run]) -> dict[str, State]:
    """Ask sacct once; squeue too where a job has not ended, for its reason; scontrol alone where there is no sacct."""
    ids = [run.id for run in runs]
    try:
        found = _accounted(ids)
    except SchedulerError:
        return _remembered(ids)
    if any(job_id not in found or not found[job_id].ended for job_id in ids):
        queued = _queued()
        found |= {job_id: queued[job_id] for job_id in ids if job_id in queued}
    return found


def cancel(runs: Sequence[Run]) -> None:
    """Cancel with one scancel, which leaves alone what has ended."""
    call(["scancel", "--quiet", *(run.id for run in runs)])


def _accounted(ids: Sequence[str]) -> dict[str, State]:
    fields = "JobID,State,ExitCode,NodeList"
    answer = call(
        ["sacct", "--allocations", "--parsable2", "--noheader", f"--format={fields}", f"--jobs={','.join(ids)}"]
    )
    rows = (line.split("|") for line in answer.splitlines())
    return {job_id: _state(word, exit_code, hosts) for job_id, word, exit_code, hosts in rows}


def _queued() -> dict[str, State]:
    fields = "JobArrayID:|,State:|,Reason:|,RestartCnt:|,NodeList:|"
    answer = call(["squeue", "--me", "--array", "--noheader", "--states=all", f"--Format={fields}"])
    found = {}
    for line in answer.splitlines():
        job_id, word, reason, restarts, hosts = (field.strip() for field in line.split("|")[:5])
        state = _state(word, "", hosts, "" if reason == "None" else reason)
        if not state.ended:
            again = state.word == PENDING and restarts not in ("", "0")
            found[job_id] = State(REQUEUED, state.reason) if again else state
    return found


def _remembered(ids: Sequence[str]) -> dict[str, State]:
    """Ask the controller, which remembers jobs for some minutes after their end."""
    found = {}
    for line in call(["scontrol", "--oneliner", "show", "jobs"]).splitlines():
        values = dict(re.findall(r"(\S+?)=(\S*)", line))
        job_id = values.get("JobId", "")
        if "ArrayTaskId" in values:
            job_id = f"{values['ArrayJobId']}_{values['ArrayTaskId']}"
        if job_id in ids:
            reason = values.get("Reason", "None")
            state = _state(values["JobState"], values.get("ExitCode", ""), values.get("NodeList", ""))
            if not state.ended and reason != "None":
                state = State(state.word, reason, None, state.hosts)
            found[job_id] = state
    return found


def _state(word: str, exit_code: str, hosts: str, reason: str = "") -> State:
    """Translate Slurm's state ("CANCELLED by 1000") and exit code ("7:0", "0:9": code and signal)."""
    first = word.split(" ", 1)[0].rstrip("+")
    ours = STATES.get(first, UNKNOWN)
    code, _, number = exit_code.partition(":")
    ended = ours in (COMPLETED, FAILED, CANCELLED, TIMEOUT)
    status = None
    if ended and exit_code:
        status = 128 + int(number) if int(number or 0) else int(code)
    if int(number or 0) == OUTPUT_MISSING:
        return State(ours, "0:53", None, hosts)
    if ended and first not in ("COMPLETED", "FAILED"):
        reason = word
    return State(ours, reason, status, "" if hosts in ("None assigned", "(null)") else hosts)
