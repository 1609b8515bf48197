"""PBS's part in a rehearsal: the job, the further attempts that it submits, and its end at the walltime.

Each behaviour was seen on OpenPBS 23.06. At the walltime, as after qdel, TERM goes to the first node only; what is left
some seconds later is killed. The end of the script kills the tasks on all nodes at once.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hpclaunch.rehearsal.batch import Output, catch_interrupts, hosts
from hpclaunch.rehearsal.pbs.demux import Demux
from hpclaunch.rehearsal.pbs.job import Job, Node
from hpclaunch.rehearsal.pbs.qsub import FIRST, NO_QSUB, QUEUE, Submission
from hpclaunch.rehearsal.processes import MARK, in_sessions, kill, marked, send
from hpclaunch.rehearsal.programs import write_programs

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan

KILL_DELAY = 8.0  # seconds between TERM and KILL; 10 to 20 on a cluster
PROGRAMS = tuple(f"hpclaunch.rehearsal.{name}" for name in ("pbs.qsub", "pbs.pbsdsh", "mpirun", "module"))


def rehearse(plan: Plan, script: str, folder: Path) -> int:
    """Submit the job script and run all that is submitted, one after the other; return the exit code of the last.

    An array's is that of the first of its jobs that failed. `folder` is for what this rehearsal needs.
    """
    from hpclaunch.runs.submit import hand_over  # the programs, which import this package, start without it

    os.environ |= write_programs(folder, PROGRAMS)
    (folder / QUEUE).mkdir()
    (folder / FIRST).write_text(str(os.getpid()))
    if not plan.site.resubmit:
        (folder / NO_QSUB).touch()
    received = catch_interrupts()
    hand_over(plan, script)
    codes: dict[int | None, int] = {}  # by index in the array, None for other jobs
    while not received and (waiting := sorted((folder / QUEUE).glob("[0-9]*"))):
        job = Submission(**json.loads(waiting[0].read_text()))
        waiting[0].unlink()
        codes[job.index] = _run(plan, job, folder, received)
    return 128 + received[0] if received else next(filter(None, codes.values()), 0)


def _run(plan: Plan, submitted: Submission, folder: Path, received: list[int]) -> int:
    """Run one job; return its exit code, 1 if the walltime ended it."""
    resources = submitted.options.get("l", "")
    mpiprocs = re.search(r"mpiprocs=(\d+)", resources)
    lines = int(mpiprocs[1]) if mpiprocs else 1 if "select=" in resources else plan.cpus_per_node
    totals = {"NCPUS": plan.cpus_per_node * plan.nodes, "NGPUS": plan.gpus_per_node * plan.nodes, "NNODES": plan.nodes}
    hook = {f"PBS_{name}": str(total) for name, total in totals.items()}  # of sites with totals instead of chunks
    job = Job(
        submitted.id,
        submitted.name,
        plan.partition_name,
        submitted.variables | hook | {MARK: str(folder)},
        [Node(host, plan.cpus_per_node, lines) for host in hosts(plan.nodes)],
        room=folder / "run" / submitted.id,
        path=f"{folder / 'bin'}:{Path(sys.executable).parent}",
    )
    job.set_up()
    with Output(*submitted.outputs()) as output:
        out, error = output.written[0].fileno(), output.written[-1].fileno()
        demux = Demux(job.room, out, error)
        demux.start()
        in_home = "wd" not in resources.split(",")
        shell = job.start(Path(submitted.script), job.home if in_home else submitted.workdir, out, error)
        ended = output.follow(shell, lambda seconds: received or seconds > plan.seconds)
        if not ended:
            if not received:
                os.write(
                    error, f"=>> PBS: job killed: walltime {plan.seconds + 1} exceeded limit {plan.seconds}\n".encode()
                )
            send(signal.SIGTERM, in_sessions([shell.pid, *job.tasks(0)]))
            deadline = time.monotonic() + KILL_DELAY
            while in_sessions([shell.pid]) and time.monotonic() < deadline:
                output.show()
                time.sleep(0.1)
        kill(lambda: in_sessions([shell.pid, *job.tasks()]) + marked(folder))
        demux.end()
        code = shell.wait()
    return 1 if not ended else 128 - code if code < 0 else code
