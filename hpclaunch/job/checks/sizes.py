"""Nodes, GPUs and cores against what a partition has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpclaunch.errors import counted
from hpclaunch.job.checks.check import partition_key
from hpclaunch.job.diagnostic import Found

if TYPE_CHECKING:
    from hpclaunch.job.diagnostic import Suggestion
    from hpclaunch.job.directives.options import Script
    from hpclaunch.job.plan import Plan

LIGHTNING_SLURM = (
    "https://github.com/Lightning-AI/pytorch-lightning/blob/2.6.2/src/lightning/fabric/plugins/environments/slurm.py"
)

RANKS_PER_CORE = 8


def gpus(plan: Plan) -> Iterator[Found]:
    """Refuse more GPUs per node than a node has, and none at all where a partition is for GPU jobs."""
    where, most = plan.partition_name, plan.partition.gpus_per_node
    if plan.scheduler.here:
        return
    if plan.gpus_per_node > most and not plan.site.any_partition:
        with_gpus = [{"partition": name} for name, partition in plan.site.partitions.items() if partition.gpus_per_node]
        yield Found(
            f"{counted(plan.gpus_per_node, 'GPU')} per node, but a {where} node has {most or 'none'}",
            partition_key(plan, "gpus_per_node"),
            suggestions=[{"gpus_per_node": most}, *(with_gpus if not most else [])],
        )
    elif most and not plan.gpus_per_node and not plan.partition.small_jobs:
        yield Found(
            f"no GPUs requested, but {where} is for jobs with 1 to {most} per node",
            partition_key(plan, "gpus_per_node"),
            suggestions=[{"gpus_per_node": most}, {"gpus_per_node": 1}],
        )


def tasks(plan: Plan) -> Iterator[Found]:
    """Refuse more ranks on a node than GPUs; warn, under the launcher tasks, of several ranks that leave GPUs idle."""
    gpus, ranks = plan.gpus_per_node, plan.tasks_per_node
    if plan.scheduler.here or not plan.partition.gpus_per_node:
        return
    if 0 < gpus < ranks:
        yield Found(
            f"{ranks} ranks per node with {counted(gpus, 'GPU')}: two ranks cannot share a GPU under NCCL",
            suggestions=[{"tasks_per_node": gpus}, {"gpus_per_node": ranks}],
        )
    elif plan.launcher == "tasks" and 1 < ranks < gpus:
        yield Found(
            f"{ranks} ranks per node leave {gpus - ranks} of {gpus} GPUs idle, and Lightning's devices must be {ranks}",
            warns=True,
            source=LIGHTNING_SLURM,
            suggestions=[{"tasks_per_node": gpus}, {"gpus_per_node": ranks}, {"tasks_per_node": 1}],
        )


def ranks(plan: Plan) -> Iterator[Found]:
    """Refuse more ranks on this machine than 8 for each of its cores: they only wait for each other."""
    cores = plan.request.machine.cores
    if cores and plan.world_size > (most := RANKS_PER_CORE * cores):
        yield Found(
            f"{plan.world_size} ranks exceed this machine's limit of {most}, {RANKS_PER_CORE} for each of "
            f"{counted(cores, 'core')}; use fewer --nodes or --tasks-per-node"
        )


def whole_nodes(plan: Plan) -> Iterator[Found]:
    """Refuse a part of each of several nodes where a site splits jobs by whole nodes."""
    gpus, most = plan.gpus_per_node, plan.partition.gpus_per_node
    if plan.site.multi_node == "whole" and plan.nodes > 1 and 0 < gpus < most:
        total = plan.nodes * gpus
        one_node = {"nodes": 1, "gpus_per_node": total}
        yield Found(
            f"{plan.nodes} nodes with {gpus} of {most} GPUs each: on several nodes {plan.name} takes whole nodes only",
            ("multi_node",),
            suggestions=[one_node if total <= most else {"gpus_per_node": most}],
        )
    cores, written = plan.partition.cores_per_node, plan.script.cpus if plan.script else None
    if plan.site.multi_node == "whole" and cores and written and written > cores and written % cores and not gpus:
        yield Found(
            f"{written} cores are not whole nodes: on several nodes {plan.name} takes multiples of {cores}",
            ("multi_node",),
            suggestions=[{"cpus_per_task": None}],
            certain=True,
        )


def exclusive(plan: Plan) -> Iterator[Found]:
    """Warn of a job on several nodes that is charged for all of each, whatever it asks for."""
    gpus, most = plan.gpus_per_node, plan.partition.gpus_per_node
    if plan.site.multi_node == "exclusive" and plan.nodes > 1 and 0 < gpus < most:
        all_of_them = plan.nodes * most
        yield Found(
            f"{plan.nodes} nodes with {gpus} of {most} GPUs each: {plan.name} charges a job on several nodes for all "
            f"{all_of_them} GPUs, {all_of_them * plan.seconds * plan.max_attempts / 3600:g} GPU-hours",
            ("multi_node",),
            warns=True,
        )


def cpus(plan: Plan) -> Iterator[Found]:
    """Refuse more cores on a node than it has or than come with its GPUs; warn where the surplus is only charged."""
    asked, cores = plan.tasks_per_node * plan.cpus_per_task, plan.partition.cores_per_node
    per_gpu, gpus = plan.partition.cpus_per_gpu, plan.gpus_per_node
    shape = f"{counted(plan.tasks_per_node, 'task')} x {plan.cpus_per_task} = {asked} cores per node"
    if cores and asked > cores:
        yield Found(
            f"{shape}, but a {plan.partition_name} node has {cores}",
            partition_key(plan, "cores_per_node"),
            suggestions=[
                {"cpus_per_task": max(cores // plan.tasks_per_node, 1)},
                {"cpus_per_task": None},
                {"tasks_per_node": max(cores // plan.cpus_per_task, 1)},
            ],
        )
    elif per_gpu and gpus and asked > gpus * per_gpu:
        share = f"{gpus} x {per_gpu} = {gpus * per_gpu} that {plan.partition_name} gives with {counted(gpus, 'GPU')}"
        exact = plan.partition.cpus_per_gpu_exact
        yield Found(
            f"{shape} exceed the {share}{'' if exact else '; the surplus is charged as more GPUs'}",
            partition_key(plan, "cpus_per_gpu"),
            warns=not exact,
            suggestions=[{"cpus_per_task": max(gpus * per_gpu // plan.tasks_per_node, 1)}, {"cpus_per_task": None}],
        )
    if plan.script and per_gpu and gpus:
        yield from _of_script(plan, plan.script, per_gpu)


def _of_script(plan: Plan, script: Script, per_gpu: int) -> Iterator[Found]:
    """Yield cores that are not those of a script's GPUs; in a request they are filled in."""
    gpus, key = plan.nodes * plan.gpus_per_node, partition_key(plan, "cpus_per_gpu")
    if plan.partition.cpus_per_gpu_exact and script.cpus and script.cpus != gpus * per_gpu:
        text = f"{counted(script.cpus, 'core')} with {counted(gpus, 'GPU')}: {plan.partition_name} requires {per_gpu} "
        yield Found(f"{text}cores for each GPU", key, suggestions=[{"cpus_per_task": None}], certain=True)
    share = plan.gpus_per_node * per_gpu // plan.tasks_per_node
    whole = script.directives.last("exclusive")
    if plan.scheduler.starts_ranks and not plan.request.cpus_per_task and share > 1 and not whole:
        text = f"no cores requested: each task gets 1, though {plan.partition_name} gives {per_gpu} with each GPU"
        yield Found(text, key, True, suggestions=[{"cpus_per_task": share}], at=script.last, certain=True)


def size(plan: Plan) -> Iterator[Found]:
    """Refuse more cores than a partition gives to one job, fewer than it wants, and what is no multiple of its step."""
    cores, part, where = plan.nodes * plan.cpus_per_node, plan.partition, plan.partition_name
    shape = f"{counted(plan.nodes, 'node')} with {counted(cores, 'core')}"
    if part.max_cores and cores > part.max_cores:
        yield Found(
            f"{shape} exceeds {where}'s limit of {counted(part.max_cores, 'core')}",
            partition_key(plan, "max_cores"),
            suggestions=at_most(plan, part.max_cores),
        )
    if part.min_cores and cores < part.min_cores:
        yield Found(
            f"{shape} is below {where}'s minimum of {counted(part.min_cores, 'core')}",
            partition_key(plan, "min_cores"),
            suggestions=at_least(plan, part.min_cores),
        )
    if (step := part.core_step) and cores % step:
        tasks = plan.nodes * plan.tasks_per_node
        totals = range(-(-cores // step) * step, cores + step * tasks + 1, step)
        yield Found(
            f"{shape}: {where} gives cores in multiples of {step}",
            partition_key(plan, "core_step"),
            suggestions=[{"cpus_per_task": total // tasks} for total in totals if total % tasks == 0]
            + [
                {"tasks_per_node": total // plan.nodes, "cpus_per_task": 1}
                for total in totals
                if total % plan.nodes == 0
            ],
        )


def at_most(plan: Plan, cores: int) -> list[Suggestion]:
    """Return how the job may have at most so many cores: fewer nodes, or less of each."""
    tasks, per_task = plan.tasks_per_node, plan.cpus_per_task
    smaller = [
        {"nodes": cores // plan.cpus_per_node},
        {"cpus_per_task": cores // (plan.nodes * tasks)},
        {"tasks_per_node": cores // (plan.nodes * per_task)},
        {"nodes": 1, "tasks_per_node": 1, "cpus_per_task": cores},
    ]
    return [one for one in smaller if all(one.values())]


def at_least(plan: Plan, cores: int) -> list[Suggestion]:
    """Return how the job may have at least so many cores: more of each node, or more nodes."""
    return [
        {"cpus_per_task": -(-cores // (plan.nodes * plan.tasks_per_node))},
        {"nodes": -(-cores // plan.cpus_per_node)},
        {"nodes": -(-cores // (plan.partition.cores_per_node or cores)), "cpus_per_task": None},
    ]
