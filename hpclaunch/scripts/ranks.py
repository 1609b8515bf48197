"""From directives and launch to a request: launcher, ranks on a node, cores for each."""

from __future__ import annotations

import math
import re
from typing import Any

from hpclaunch.scripts.asked import Asked
from hpclaunch.scripts.launch import Launch
from hpclaunch.scripts.values import whole

_NODES = re.compile(r"\$\{?(?:SLURM_)?(?:JOB_)?(?:NNODES|NUM_NODES)\}?")


def step_size(asked: Asked, launch: Launch) -> tuple[int, int]:
    """Return the nodes on which a script's srun starts something, and how much on each; unsaid, what the job has."""
    srun = launch.layer("srun")
    options = srun.options if srun else {}

    def number(name: str) -> int | None:
        text = options.get(name, "")
        return asked.nodes if _NODES.fullmatch(text) else whole(text) or None

    nodes, tasks, per_node = number("nodes"), number("ntasks"), number("ntasks-per-node")
    if re.fullmatch(r"[\w.${}-]+", hosts := options.get("nodelist", "")) and "NODELIST" not in hosts:
        nodes = nodes or 1  # one host
    nodes = nodes or min(asked.nodes, tasks or asked.nodes)
    return nodes, per_node or (math.ceil(tasks / nodes) if tasks else asked.starts)


def complete(asked: Asked, launch: Launch | None) -> dict[str, Any]:
    """Return the values of the request that asks for the same job."""
    site, part = asked.profile.site, asked.partition
    launcher, ranks = _ranks(asked, launch)
    values = {**asked.values, "nodes": asked.nodes, "launcher": launcher, "tasks_per_node": ranks}
    values["gpus_per_node"] = asked.gpus
    if asked.cpus and (asked.cpus_said or not asked.gpus) and not (part.cpus_per_gpu_exact and asked.gpus):
        over = part.cores_per_node and asked.cpus > part.cores_per_node
        values["cpus_per_task"] = max(math.ceil(asked.cpus / ranks) if over else asked.cpus // ranks, 1)
    if asked.nodes == 1 and site.scheduler == "pbs" and part.cores_per_node is None and not part.max_cores:
        values["cpus_per_task"] = max((asked.cpus or 1) // ranks, 1)
    if launch and launch.words:
        values["command"] = [str(word) for word in launch.words]
    return values


def _ranks(asked: Asked, launch: Launch | None) -> tuple[str, int]:
    """Return the launcher and the ranks that it starts on a node."""
    starts = asked.starts if asked.profile.site.scheduler == "slurm" else 1
    if launch and launch.layer("srun"):
        starts = step_size(asked, launch)[1]
    if launch is None:
        return "tasks", starts if starts > 1 else asked.gpus or 1
    if own := launch.layer("torchrun", "deepspeed", "accelerate"):
        asked_for = own.options.get("nproc-per-node") or own.options.get("num-gpus") or ""
        ranks = int(asked_for) if re.fullmatch(r"[1-9]\d{0,4}", asked_for) else asked.gpus or 1
        total = own.options.get("num-processes", "")
        if re.fullmatch(r"[1-9]\d{0,4}", total):
            ranks = max(int(total) // asked.nodes, 1)
        return "torchrun", ranks
    if mpirun := launch.layer("mpirun"):
        return "mpirun", _mpi(asked, mpirun.options, starts)
    if starts > 1:  # where nothing starts them it is one process, which has the cores of all the tasks
        return "tasks", starts if asked.gpus or launch.parallel else 1
    if asked.gpus > 1 and launch.python:
        return "lightning", asked.gpus  # one process that uses all of the node's GPUs, or starts the other ranks
    return "tasks", 1


def _mpi(asked: Asked, options: dict[str, str], starts: int) -> int:
    for name in ("npernode", "ppn", "perhost", "N"):
        if re.fullmatch(r"[1-9]\d{0,4}", options.get(name, "")):
            return int(options[name])
    if found := re.match(r"ppr:(\d{1,4}):node", options.get("map-by", "")):
        return max(int(found[1]), 1)
    total = next((options[name] for name in ("np", "n", "c") if name in options), "")
    if re.fullmatch(r"[1-9]\d{0,5}", total):
        return max(math.ceil(int(total) / asked.nodes), 1)
    if "NGPUS" in total.upper():
        return asked.gpus or 1
    if asked.profile.site.scheduler == "pbs":
        return asked.gpus or asked.cpus or 1
    return starts
