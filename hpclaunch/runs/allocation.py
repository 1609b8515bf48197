"""The allocation at hand: the nodes that a scheduler has given already, to an interactive job or a job script."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path

from msgspec import Struct, structs

from hpclaunch import paths
from hpclaunch.errors import HpclaunchError, SchedulerError
from hpclaunch.job.plan import Plan, make_plan
from hpclaunch.job.request import Request
from hpclaunch.profile.model import Partition
from hpclaunch.profile.search import Profile
from hpclaunch.runs.registry import FOLDER
from hpclaunch.schedulers.command import call


class Allocation(Struct, frozen=True):
    """Nodes of a running job; cpus and GPUs are per node, `tasks` is what the person asked the scheduler for."""

    scheduler: str
    job_id: str
    nodes: int
    cpus: int
    gpus: int
    tasks: int | None = None


def find(environment: Mapping[str, str]) -> Allocation:
    """Read the allocation from what the scheduler set in the environment.

    Raises HpclaunchError outside of one.
    """
    if "SLURM_JOB_ID" in environment:
        return _slurm(environment)
    if "PBS_JOBID" in environment:
        return _pbs(environment)
    raise HpclaunchError(
        "launch: there is no allocation here, neither Slurm's (SLURM_JOB_ID) nor PBS's (PBS_JOBID)",
        "ask for one (salloc, qsub -I) and launch in it, use `hpclaunch submit` for a job, or `hpclaunch run` here",
    )


def plan_in(found: Allocation, profile: Profile, request: Request) -> Plan:
    """Make the plan of a launch on the nodes that are there, in the environment that is there: no modules, no limits.

    Raises RequestError as `make_plan` does, and where more nodes are asked for than there are.
    """
    if request.nodes and request.nodes > found.nodes:
        raise HpclaunchError(f"launch: --nodes {request.nodes}, but job {found.job_id} has {found.nodes}")
    here = Partition(cores_per_node=found.cpus or None, gpus_per_node=found.gpus)
    site = structs.replace(
        profile.site,
        partitions={"allocation": here},
        default_partition="allocation",
        multi_node="shared",
        account=None,
        account_help=None,
        ask_memory=False,
        ask_jobfs=False,
        storage=[],
        storage_roots={},
        module_paths=[],
        module_purge=False,
        modules=[],
        setup=[],
        teardown=[],
        directives=[],
        max_attempts=1,
    )
    request = structs.replace(
        request, nodes=request.nodes or found.nodes, tasks_per_node=request.tasks_per_node or found.tasks
    )
    plan = make_plan(Profile(profile.name, profile.layers, site), request)
    return structs.replace(plan, run_id=_new_run(found.job_id))


def _new_run(job_id: str) -> str:
    """Name a run folder after the job and the number of the launch in it, which no other launch has, on any node."""
    claims = paths.user_state() / "launches"
    names = (f"{job_id}-{number}" for number in count(1))
    return next(name for name in names if not Path(FOLDER, name).exists() and _claim(claims / name))


def _claim(file: Path) -> bool:
    """Make a file that was not there; a folder that cannot be written keeps nobody from launching."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
    try:
        file.touch(exist_ok=False)
    except OSError as error:
        return not isinstance(error, FileExistsError)
    return True


def _slurm(environment: Mapping[str, str]) -> Allocation:
    job_id = environment["SLURM_JOB_ID"]
    tasks = environment.get("SLURM_NTASKS_PER_NODE", "")
    return Allocation(
        scheduler="slurm",
        job_id=job_id,
        nodes=_number(environment.get("SLURM_JOB_NUM_NODES")) or 1,
        cpus=min(map(int, re.findall(r"(?:^|,)(\d+)", environment.get("SLURM_JOB_CPUS_PER_NODE", ""))), default=0),
        gpus=_number(environment.get("SLURM_GPUS_ON_NODE")) or _slurm_gpus(job_id),
        tasks=_number(tasks) or None,
    )


def _slurm_gpus(job_id: str) -> int:
    """Ask Slurm, since the shell of a salloc on a login node has no variable for it."""
    try:
        answer = call(["squeue", "--noheader", f"--jobs={job_id}", "--Format=tres-per-node:.80"]).stdout
    except SchedulerError:
        return 0
    found = re.search(r"gpu(?::[\w.-]+)?:(\d+)", answer)
    return int(found.group(1)) if found else 0


def _pbs(environment: Mapping[str, str]) -> Allocation:
    job_id = environment["PBS_JOBID"]
    try:
        hosts = dict.fromkeys(Path(environment.get("PBS_NODEFILE", "")).read_text().split())
    except OSError:
        hosts = {}
    if not hosts:
        raise HpclaunchError(
            f"launch: job {job_id} has no PBS_NODEFILE here; launch on its first node, in the job's own shell"
        )
    # Gadi counts the GPUs of the whole job in PBS_NGPUS.
    gpus = _number(environment.get("PBS_NGPUS")) // len(hosts)
    seen = [word for word in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
    return Allocation(
        scheduler="pbs",
        job_id=job_id,
        nodes=len(hosts),
        cpus=_number(environment.get("NCPUS")),
        gpus=gpus or len(seen),
    )


def _number(text: str | None) -> int:
    """Return the number that the text begins with, 0 where there is none."""
    found = re.match(r"\d+", text or "")
    return int(found.group()) if found else 0
