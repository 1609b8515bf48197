"""PBS's part in a rehearsal: the job, the further attempts that it submits, and its end at the walltime.

Each behaviour was seen on OpenPBS 23.06. At the walltime, as after qdel, TERM goes to the first node only; what is left
some seconds later is killed. The end of the script kills the tasks on all nodes at once.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hpclaunch.rehearsal.batch import Output, catch_interrupts, hosts
from hpclaunch.rehearsal.pbs.demux import Demux
from hpclaunch.rehearsal.pbs.job import sessions, set_up, start
from hpclaunch.rehearsal.pbs.qsub import FIRST, NO_QSUB, QUEUE, SERVER, directives
from hpclaunch.rehearsal.processes import MARK, end, in_sessions, kill, marked
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
    (folder / QUEUE).mkdir(parents=True)
    (folder / FIRST).write_text(str(os.getpid()))
    if not plan.site.resubmit:
        (folder / NO_QSUB).touch()
    received = catch_interrupts()
    hand_over(plan, script)
    codes: dict[str, int] = {}  # by index in the array
    while not received and (waiting := sorted((folder / QUEUE).glob("*.json"))):
        job = json.loads(waiting[0].read_text())
        waiting[0].unlink()
        codes[job["variables"].get("PBS_ARRAY_INDEX", "")] = _run(plan, folder, received, **job)
    return 128 + received[0] if received else next(filter(None, codes.values()), 0)


def _run(plan: Plan, folder: Path, received: list[int], job_id: str, path: str, variables: dict[str, str]) -> int:
    """Run one job; return its exit code, 1 if the walltime ended it."""
    room, workdir = folder / "run" / job_id, variables["PBS_O_WORKDIR"]
    options = directives(Path(path).read_text(errors="surrogateescape"))
    resources = options.get("l", "")
    mpiprocs = re.search(r"mpiprocs=(\d+)", resources)
    lines = int(mpiprocs[1]) if mpiprocs else 1 if "select=" in resources else plan.cpus_per_node
    ncpus = dict.fromkeys(hosts(plan.nodes), plan.cpus_per_node)
    variables |= {
        MARK: str(folder),
        "PBS_O_QUEUE": plan.partition_name,
        "PBS_QUEUE": plan.partition_name,
        "PBS_JOBID": job_id,
        "PBS_JOBNAME": options.get("N", "STDIN"),
        # By the hooks of sites where a request has totals instead of chunks.
        "PBS_NCPUS": str(plan.cpus_per_node * plan.nodes),
        "PBS_NGPUS": str(plan.gpus_per_node * plan.nodes),
        "PBS_NNODES": str(plan.nodes),
    }
    environment = set_up(room, variables, [host for host in ncpus for _ in range(lines)], ncpus)
    with Output(*_outputs(Path(workdir), job_id, options)) as output:
        out, error = output.written[0], output.written[-1]
        demux = Demux(room, out, error)

        def is_over(seconds: float) -> bool:
            demux.copy()
            return bool(received) or seconds > plan.seconds

        begin = workdir if "wd" in resources.split(",") else environment["HOME"]
        shell = start(room, Path(path), environment, begin, out, error)
        ended = output.follow(shell, is_over)
        if not ended:
            if not received:
                error.write(f"=>> PBS: job killed: walltime exceeded limit {plan.seconds}\n".encode())
            end(lambda: in_sessions([shell.pid, *sessions(room, 0)]), KILL_DELAY)
        kill(lambda: in_sessions([shell.pid, *sessions(room)]) + marked(folder))
        demux.close()
        code = shell.wait()
    return 1 if not ended else 128 - code if code < 0 else code


def _outputs(folder: Path, job_id: str, options: Mapping[str, str]) -> list[Path]:
    """Return the paths of the job's output and, unless they are joined, of its errors."""
    found = []
    number = job_id.removesuffix(f".{SERVER}").replace("[", ".").rstrip("]")
    for kind in {"oe": "o", "eo": "e"}.get(options.get("j", ""), "oe"):
        path = folder / (options.get(kind, "").rpartition(":")[2] or f"{options.get('N', 'STDIN')}.{kind}{number}")
        found.append(path / f"{job_id}.{'OU' if kind == 'o' else 'ER'}" if path.is_dir() else path)
    return found
