"""Slurm's part in a rehearsal: the batch job, its walltime, its warning signal and its requeue, on this machine.

What it copies was seen on Slurm 22.05: --signal=B:USR1@N goes to the batch shell only, N seconds before the walltime;
`scontrol requeue` from inside sends TERM to all and starts the script again under the same job id, with
SLURM_RESTART_COUNT one higher; the walltime and scancel send TERM to all, and KILL some seconds later.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from hpclaunch.rehearsal.batch import Output, catch_interrupts, hosts
from hpclaunch.rehearsal.processes import KILL_WAIT, end, marked, write_programs
from hpclaunch.rehearsal.slurm.environment import job_variables

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan

PROGRAMS = tuple(f"hpclaunch.rehearsal.{name}" for name in ("slurm.srun", "slurm.scontrol", "mpirun", "mpiexec"))


def rehearse(plan: Plan, script: str, folder: Path) -> int:
    """Run the job script as Slurm would, again after each requeue; return the exit code of the last attempt.

    `folder` is for what this rehearsal needs.
    """
    (folder / "job.sh").write_text(script, encoding="utf-8", errors="surrogateescape")
    defaults = {"job-name": "job.sh", "output": "slurm-%j.out"}
    options = defaults | dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", script, re.MULTILINE))
    job_id = str(os.getpid())
    output = Path(options["output"].replace("%x", options["job-name"]).replace("%j", job_id))
    variables = job_variables(options, job_id, hosts(int(options.get("nodes", 1))))
    environment = os.environ | write_programs(folder, PROGRAMS) | variables
    warning = re.fullmatch(r"B:USR1@(\d+)", options.get("signal", ""))
    warn_at = plan.seconds - int(warning[1]) if warning else threading.TIMEOUT_MAX
    received = catch_interrupts()
    restarts = 0
    while (code := _attempt(plan.seconds, warn_at, output, environment, folder, received)) is None:
        restarts += 1
        environment["SLURM_RESTART_COUNT"] = str(restarts)
    return 128 + received[0] if received else code


def _attempt(
    limit: int, warn_at: float, path: Path, environment: dict[str, str], folder: Path, received: list[int]
) -> int | None:
    """Run the script once; return its exit code, or None if it is to be started again."""
    requeue = folder / "requeue"
    requeue.unlink(missing_ok=True)
    with Output(path) as output:
        batch = subprocess.Popen(
            ["bash", str(folder / "job.sh")], env=environment, stdin=subprocess.DEVNULL, stdout=output.written[0],
            stderr=output.written[0], start_new_session=True,
        )  # fmt: skip
        timer = threading.Timer(warn_at, batch.send_signal, [signal.SIGUSR1])
        timer.start()
        ended = output.follow(batch, lambda seconds: received or requeue.exists() or seconds >= limit)
        timer.cancel()
        end(lambda: marked(folder), KILL_WAIT)
        code = batch.wait()
    if received:
        return code
    if requeue.exists():
        return None
    if not ended:
        print(f"rehearsal: TIMEOUT, the walltime of {limit} s is over", file=sys.stderr)
    return 128 - code if code < 0 else code
