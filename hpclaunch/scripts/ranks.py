"""From directives and launch to a request: launcher, ranks on a node, cores for each."""

import math
import re
from typing import Any

from hpclaunch.job.directives.asked import Asked
from hpclaunch.schedulers import scheduler
from hpclaunch.schedulers.values import whole
from hpclaunch.scripts.launch import Launch

_NODES = re.compile(r"\$\{?(?:SLURM_)?(?:JOB_)?(?:NNODES|NUM_NODES)\}?")


def step_size(asked: Asked, launch: Launch) -> int:
    """Return how many tasks on a node a script's srun starts; unsaid, what the job has."""
    srun = launch.layer("srun")
    options = srun.options if srun else {}
    nodes, tasks, per_node = (
        asked.nodes if _NODES.fullmatch(text) else whole(text)
        for text in (options.get(name, "") for name in ("nodes", "ntasks", "ntasks-per-node"))
    )
    if "nodelist" in options and "NODELIST" not in options["nodelist"]:
        nodes = nodes or 1  # one host
    return per_node or (math.ceil(tasks / (nodes or min(asked.nodes, tasks))) if tasks else asked.starts)


def complete(asked: Asked, launch: Launch | None) -> dict[str, Any]:
    """Return the values of the request that asks for the same job."""
    launcher, ranks = _ranks(asked, launch)
    values = asked.values | {"nodes": asked.nodes, "launcher": launcher, "tasks_per_node": ranks}
    values["gpus_per_node"] = asked.gpus
    if asked.cpus and (asked.cpus_said or not asked.gpus) and not (asked.gpus and asked.partition.cpus_per_gpu_exact):
        values["cpus_per_task"] = max(asked.cpus // ranks, 1)
    if launch and launch.words:
        values["command"] = [str(word) for word in launch.words]
    return values


def _ranks(asked: Asked, launch: Launch | None) -> tuple[str, int]:
    """Return the launcher and the ranks that it starts on a node."""
    starts = asked.starts if scheduler(asked.profile.site.scheduler).starts_ranks else 1
    if launch is None:
        return "tasks", starts if starts > 1 else asked.gpus or 1
    if launch.layer("srun"):
        starts = step_size(asked, launch)
    if own := launch.layer("torchrun", "deepspeed", "accelerate"):
        total, per_node = (_first(own.options, names) for names in ("num-processes", "nproc-per-node num-gpus"))
        return "torchrun", (total and max(total // asked.nodes, 1)) or per_node or asked.gpus or 1
    if mpirun := launch.layer("mpirun"):
        return "mpirun", _mpi(asked, mpirun.options, starts)
    if starts > 1:  # where nothing starts them it is one process, which has the cores of all the tasks
        return "tasks", starts if asked.gpus or launch.parallel else 1
    if asked.gpus > 1 and launch.python:
        return "lightning", asked.gpus  # one process that uses all of the node's GPUs, or starts the other ranks
    return "tasks", 1


def _first(options: dict[str, str], names: str) -> int:
    """Return the first number that one of these options has, or 0."""
    return next(filter(None, (whole(options.get(name, "")) for name in names.split())), 0)


def _mpi(asked: Asked, options: dict[str, str], starts: int) -> int:
    per_node = re.match(r"ppr:([1-9]\d{0,3}):node", options.get("map-by", ""))
    if ranks := int(per_node[1]) if per_node else _first(options, "npernode ppn perhost N"):
        return ranks
    if total := _first(options, "np n c"):
        return math.ceil(total / asked.nodes)
    if any("NGPUS" in options.get(name, "").upper() for name in ("np", "n")):
        return asked.gpus or 1
    return starts if scheduler(asked.profile.site.scheduler).starts_ranks else asked.gpus or asked.cpus or 1
