"""Nodes, GPUs and cores against what a partition has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpclaunch.errors import counted
from hpclaunch.job.checks.finding import Found, partition_key

if TYPE_CHECKING:
    from hpclaunch.job.checks.finding import Suggestion
    from hpclaunch.job.plan import Plan

LIGHTNING_SLURM = (
    "https://github.com/Lightning-AI/pytorch-lightning/blob/2.6.2/src/lightning/fabric/plugins/environments/slurm.py"
)

RANKS_PER_CORE = 8


def gpus(plan: Plan) -> Iterator[Found]:
    """Refuse more GPUs per node than a node has, and none at all where a partition is for GPU jobs."""
    where, most = plan.partition_name, plan.partition.gpus_per_node
    if plan.site.scheduler == "local":
        return
    if plan.gpus_per_node > most and not plan.site.any_partition:
        with_gpus = [{"partition": name} for name, partition in plan.site.partitions.items() if partition.gpus_per_node]
        yield Found(
            f"{plan.gpus_per_node} per node asked, a node of {where} has {most or 'none'}",
            partition_key(plan, "gpus_per_node"),
            suggestions=[{"gpus_per_node": most}, *(with_gpus if not most else [])],
        )
    elif most and not plan.gpus_per_node and not plan.partition.small_jobs:
        yield Found(
            f"none asked, {where} is for GPU jobs, with 1 to {most} per node",
            partition_key(plan, "gpus_per_node"),
            suggestions=[{"gpus_per_node": most}, {"gpus_per_node": 1}],
        )


def tasks(plan: Plan) -> Iterator[Found]:
    """Refuse more ranks on a node than GPUs; warn, under the launcher tasks, of several ranks that leave GPUs idle."""
    gpus, ranks = plan.gpus_per_node, plan.tasks_per_node
    if plan.site.scheduler == "local" or not plan.partition.gpus_per_node:
        return
    if 0 < gpus < ranks:
        yield Found(
            f"{ranks} per node asked with {counted(gpus, 'GPU')}, two ranks cannot share a GPU under nccl",
            suggestions=[{"tasks_per_node": gpus}, {"gpus_per_node": ranks}],
        )
    elif plan.launcher == "tasks" and 1 < ranks < gpus:
        yield Found(
            f"{ranks} per node asked with {gpus} GPUs, the others idle and Lightning's devices must not be {gpus}",
            warns=True,
            source=LIGHTNING_SLURM,
            suggestions=[{"tasks_per_node": gpus}, {"gpus_per_node": ranks}, {"tasks_per_node": 1}],
        )


def ranks(plan: Plan) -> Iterator[Found]:
    """Refuse more ranks on this machine than 8 for each of its cores: they only wait for each other."""
    cores = plan.request.machine.cores
    if cores and plan.world_size > (most := RANKS_PER_CORE * cores):
        yield Found(
            f"{plan.world_size} asked, all on this machine, whose {counted(cores, 'core')} take {most}, "
            f"{RANKS_PER_CORE} each; use fewer --nodes or --tasks-per-node"
        )


def whole_nodes(plan: Plan) -> Iterator[Found]:
    """Refuse a part of each of several nodes where a site splits jobs by whole nodes."""
    gpus, most = plan.gpus_per_node, plan.partition.gpus_per_node
    if plan.site.multi_node == "whole" and plan.nodes > 1 and 0 < gpus < most:
        total = plan.nodes * gpus
        one_node = {"nodes": 1, "gpus_per_node": total}
        yield Found(
            f"{plan.nodes} nodes with {gpus} of {most} GPUs asked, {plan.name} splits jobs by whole nodes",
            ("multi_node",),
            suggestions=[one_node if total <= most else {"gpus_per_node": most}],
        )


def exclusive(plan: Plan) -> Iterator[Found]:
    """Warn of a job on several nodes that is charged for all of each, whatever it asks for."""
    gpus, most = plan.gpus_per_node, plan.partition.gpus_per_node
    if plan.site.multi_node == "exclusive" and plan.nodes > 1 and 0 < gpus < most:
        all_of_them = plan.nodes * most
        yield Found(
            f"{plan.nodes} nodes with {gpus} of {most} GPUs asked, {plan.name} charges a job on several nodes for all: "
            f"{all_of_them} GPUs, {all_of_them * plan.seconds * plan.max_attempts / 3600:g} GPU-hours",
            ("multi_node",),
            warns=True,
        )


def cpus(plan: Plan) -> Iterator[Found]:
    """Refuse more cores on a node than it has or than come with its GPUs; warn where the surplus is only charged."""
    asked, cores = plan.tasks_per_node * plan.cpus_per_task, plan.partition.cores_per_node
    per_gpu, gpus = plan.partition.cpus_per_gpu, plan.gpus_per_node
    shape = f"{counted(plan.tasks_per_node, 'task')} x {plan.cpus_per_task} = {asked} per node asked"
    if cores and asked > cores:
        yield Found(
            f"{shape}, a node of {plan.partition_name} has {cores}",
            partition_key(plan, "cores_per_node"),
            suggestions=[
                {"cpus_per_task": max(cores // plan.tasks_per_node, 1)},
                {"cpus_per_task": None},
                {"tasks_per_node": max(cores // plan.cpus_per_task, 1)},
            ],
        )
    elif per_gpu and gpus and asked > gpus * per_gpu:
        share = f"{plan.partition_name} gives {gpus} x {per_gpu} = {gpus * per_gpu} with {counted(gpus, 'GPU')}"
        exact = plan.partition.cpus_per_gpu_exact
        yield Found(
            f"{shape}, {share}{'' if exact else '; the surplus is charged as more GPUs'}",
            partition_key(plan, "cpus_per_gpu"),
            warns=not exact,
            suggestions=[{"cpus_per_task": max(gpus * per_gpu // plan.tasks_per_node, 1)}, {"cpus_per_task": None}],
        )


def size(plan: Plan) -> Iterator[Found]:
    """Refuse more cores than a partition gives to one job, fewer than it wants, and what is no multiple of its step."""
    cores, part, where = plan.nodes * plan.cpus_per_node, plan.partition, plan.partition_name
    asked = f"{counted(plan.nodes, 'node')}, {counted(cores, 'core')} asked"
    if part.max_cores and cores > part.max_cores:
        yield Found(
            f"{asked}, {where} allows {part.max_cores}",
            partition_key(plan, "max_cores"),
            suggestions=at_most(plan, part.max_cores),
        )
    if part.min_cores and cores < part.min_cores:
        yield Found(
            f"{asked}, {where} wants at least {part.min_cores}",
            partition_key(plan, "min_cores"),
            suggestions=at_least(plan, part.min_cores),
        )
    if (step := part.core_step) and cores % step:
        tasks = plan.nodes * plan.tasks_per_node
        totals = range(-(-cores // step) * step, cores + step * tasks + 1, step)
        yield Found(
            f"{asked}, {where} gives cores in multiples of {step}",
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
