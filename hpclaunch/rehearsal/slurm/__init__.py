"""Slurm's part in a rehearsal: the batch job, its walltime, its warning signal and its requeue, on this machine.

What it copies was seen on Slurm 22.05: --signal=B:USR1@N goes to the batch shell alone, N seconds before the walltime;
`scontrol requeue` from inside sends TERM to all and starts the script again under the same job id, with
SLURM_RESTART_COUNT one higher; the walltime and scancel send TERM to all, and KILL some seconds later.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from hpclaunch import walltime
from hpclaunch.rehearsal.programs import end, processes, write_programs
from hpclaunch.rehearsal.slurm.environment import of_job

KILL_WAIT = 5.0  # seconds between TERM and KILL, as KillWait in slurm.conf
PROGRAMS = ("slurm.srun", "slurm.scontrol", "mpirun", "module")


def options(script: str) -> dict[str, str]:
    """Return the script's #SBATCH options, long names only, as our templates write them."""
    return dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", script, re.MULTILINE))


def rehearse(script: Path, folder: Path) -> int:
    """Run the job script as Slurm would and return its exit code; what it prints is shown and kept as Slurm keeps it.

    `folder` is for what this run needs: programs on PATH, and notes between them.
    """
    defaults = {"job-name": "job.sh", "output": "slurm-%j.out"}
    asked = defaults | options(script.read_text(errors="surrogateescape"))
    job_id = str(os.getpid())
    output = Path(asked["output"].replace("%x", asked["job-name"]).replace("%j", job_id))
    hosts = [f"127.0.0.{node + 1}" for node in range(int(asked.get("nodes", 1)))]
    environment = os.environ | write_programs(folder, PROGRAMS) | of_job(asked, job_id, hosts)
    told: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: told.append(number))
    restarts = 0
    while (code := _attempt(script, output, environment, asked, folder, told)) is None:
        restarts += 1
        environment["SLURM_RESTART_COUNT"] = str(restarts)
    return 128 + told[0] if told else code


def _attempt(
    script: Path, output: Path, environment: dict[str, str], asked: dict[str, str], folder: Path, told: list[int]
) -> int | None:
    """Run the script once; return its exit code, None where it is to be started again."""
    requeue = folder / "requeue"
    requeue.unlink(missing_ok=True)
    began, warned = time.monotonic(), False
    limit = math.inf
    with suppress(KeyError, ValueError):  # a directive of a person's own may say it in another of Slurm's ways
        limit = walltime.parse(asked["time"])
    warning = re.fullmatch(r"B:USR1@(\d+)", asked.get("signal", ""))
    with output.open("ab") as written, output.open("rb") as shown:
        shown.seek(0, os.SEEK_END)
        batch = subprocess.Popen(
            ["bash", str(script)], env=environment, stdin=subprocess.DEVNULL, stdout=written, stderr=written,
            start_new_session=True,
        )  # fmt: skip
        while batch.poll() is None:
            _show(shown.read())
            passed = time.monotonic() - began
            if warning and not warned and passed >= limit - int(warning.group(1)):
                warned = True
                batch.send_signal(signal.SIGUSR1)
            if requeue.exists() or told or passed >= limit:
                break
            time.sleep(0.1)
        over = batch.poll() is None
        end(lambda: processes(folder), KILL_WAIT)
        code = batch.wait()
        _show(shown.read())
    if requeue.exists() and not told:
        return None
    if over and not told:
        print(f"rehearsal: the walltime {asked['time']} is used up: TIMEOUT", file=sys.stderr)
    return 128 - code if code < 0 else code


def _show(text: bytes) -> None:
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()
