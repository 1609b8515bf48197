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
from hpclaunch.rehearsal.pbs.job import ERROR, OUTPUT, set_up, start
from hpclaunch.rehearsal.pbs.qsub import NO_QSUB, QUEUE, directives
from hpclaunch.rehearsal.processes import MARK, end, kill, marked, write_programs

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan

KILL_DELAY = 8.0  # seconds between TERM and KILL; 10 to 20 on a cluster
PROGRAMS = tuple(f"hpclaunch.rehearsal.{name}" for name in ("pbs.qsub", "pbs.pbsdsh", "mpirun", "mpiexec"))


def rehearse(plan: Plan, script: str, folder: Path) -> int:
    """Submit the job script and run all that is submitted, one after the other; return the exit code of the last.

    Of an array only the first job runs. `folder` is for what this rehearsal needs.
    """
    from hpclaunch.runs.submit import hand_over  # the programs, which import this package, start without it

    os.environ |= write_programs(folder, PROGRAMS)
    os.environ.pop("PBS_JOBID", None)
    (folder / QUEUE).mkdir(parents=True)
    if not plan.site.resubmit:
        (folder / NO_QSUB).touch()
    received = catch_interrupts()
    hand_over(plan, script)
    code = 0
    while not received and (waiting := sorted((folder / QUEUE).glob("*.json"))):
        job = json.loads(waiting[0].read_text())
        waiting[0].unlink()
        code = _run(plan, folder, received, **job)
    return 128 + received[0] if received else code


def _run(plan: Plan, folder: Path, received: list[int], job_id: str, path: str, variables: dict[str, str]) -> int:
    """Run one job; return its exit code, 1 if the walltime ended it."""
    room, workdir = folder / "run" / job_id, variables["PBS_O_WORKDIR"]
    options = {"N": "STDIN", "l": ""} | directives(Path(path).read_text(errors="surrogateescape"))
    mpiprocs = re.search(r"mpiprocs=(\d+)", options["l"])
    lines = int(mpiprocs[1]) if mpiprocs else 1 if "select=" in options["l"] else plan.cpus_per_node
    ncpus = dict.fromkeys(hosts(plan.nodes), plan.cpus_per_node)
    variables |= {
        MARK: str(folder),
        "PBS_O_QUEUE": plan.partition_name,
        "PBS_QUEUE": plan.partition_name,
        "PBS_JOBID": job_id,
        "PBS_JOBNAME": options["N"],
        # By the hooks of sites where a request has totals instead of chunks.
        "PBS_NCPUS": str(plan.cpus_per_node * plan.nodes),
        "PBS_NGPUS": str(plan.gpus_per_node * plan.nodes),
        "PBS_NNODES": str(plan.nodes),
    }
    if "J" in options:
        variables["PBS_ARRAY_INDEX"] = options["J"].partition("-")[0]
    environment = set_up(room, variables, [host for host in ncpus for _ in range(lines)], ncpus)
    paths = _outputs(Path(workdir), job_id, options)
    for name, output_path in ((OUTPUT, paths[0]), (ERROR, paths[-1])):
        (room / name).symlink_to(output_path)
    with Output(*paths) as output:
        begin = workdir if "wd" in options["l"].split(",") else environment["HOME"]
        shell = start(room, Path(path), environment, begin, output.written[0], output.written[-1])
        ended = output.follow(shell, lambda seconds: received or seconds > plan.seconds)
        if not ended:
            if not received:
                output.written[-1].write(f"=>> PBS: job killed: walltime exceeded limit {plan.seconds}\n".encode())
            end(lambda: marked(folder, "PBS_NODENUM=0"), KILL_DELAY)
        kill(lambda: marked(folder))
        code = shell.wait()
    return 1 if not ended else 128 - code if code < 0 else code


def _outputs(folder: Path, job_id: str, options: Mapping[str, str]) -> list[Path]:
    """Return the paths of the job's output and, unless they are joined, of its errors."""
    found = []
    for kind in {"oe": "o", "eo": "e"}.get(options.get("j", ""), "oe"):
        default = f"{options['N']}.{kind}{job_id.partition('.')[0]}"
        path = folder / (options.get(kind, "").rpartition(":")[2] or default)
        found.append(path / f"{job_id}.{'OU' if kind == 'o' else 'ER'}" if path.is_dir() else path)
    return found
