"""Nodes, GPUs, cores and memory against what a partition has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpclaunch.checks.finding import Found, partition_key

if TYPE_CHECKING:
    from hpclaunch.plan import Plan


def gpus(plan: Plan) -> Iterator[Found]:
    """Refuse more GPUs per node than a node has, and none at all where a partition is for GPU jobs."""
    where, most = plan.partition_name, plan.partition.gpus_per_node
    if plan.site.scheduler == "local":
        return
    if plan.gpus_per_node > most and not plan.site.any_partition:
        instead = f"has {most}; use --gpus-per-node {most}" if most else f"has none; leave them out{_with_gpus(plan)}"
        yield Found(
            f"{plan.gpus_per_node} per node asked, a node of {where} {instead}", partition_key(plan, "gpus_per_node")
        )
    elif most and not plan.gpus_per_node:
        yield Found(f"none asked, {where} is for GPU jobs; ask for 1 to {most}", partition_key(plan, "gpus_per_node"))


def _with_gpus(plan: Plan) -> str:
    names = [name for name, partition in plan.site.partitions.items() if partition.gpus_per_node]
    return f" or use --partition {names[0]}" if names else ""


def tasks(plan: Plan) -> Iterator[Found]:
    """Refuse more ranks on a node than GPUs: two ranks cannot share a GPU under nccl."""
    gpus = plan.gpus_per_node
    if plan.site.scheduler != "local" and plan.partition.gpus_per_node and 0 < gpus < plan.tasks_per_node:
        yield Found(
            f"{plan.tasks_per_node} per node asked with {gpus} GPUs, two ranks cannot share a GPU under nccl; "
            f"use --tasks-per-node {gpus}"
        )


def whole_nodes(plan: Plan) -> Iterator[Found]:
    """Refuse a part of each of several nodes where a site splits jobs by whole nodes."""
    gpus, most = plan.gpus_per_node, plan.partition.gpus_per_node
    if plan.site.multi_node == "whole" and plan.nodes > 1 and 0 < gpus < most:
        total = plan.nodes * gpus
        fits = f"--nodes 1 --gpus-per-node {total}" if total <= most else f"--gpus-per-node {most}"
        yield Found(
            f"{plan.nodes} nodes with {gpus} of {most} GPUs asked, {plan.name} splits jobs by whole nodes; use {fits}",
            ("multi_node",),
        )


def exclusive(plan: Plan) -> Iterator[Found]:
    """Warn of a job on several nodes that is charged for all of each, whatever it asks for."""
    gpus, most = plan.gpus_per_node, plan.partition.gpus_per_node
    if plan.site.multi_node == "exclusive" and plan.nodes > 1 and 0 < gpus < most:
        yield Found(
            f"{plan.nodes} nodes with {gpus} of {most} GPUs asked, {plan.name} charges a job on several nodes "
            f"for all {plan.nodes * most}",
            ("multi_node",),
            warns=True,
        )


def cpus(plan: Plan) -> Iterator[Found]:
    """Refuse more cores on a node than it has or than come with its GPUs; warn where the surplus is only charged."""
    asked, cores = plan.tasks_per_node * plan.cpus_per_task, plan.partition.cores_per_node
    per_gpu, gpus = plan.partition.cpus_per_gpu, plan.gpus_per_node
    shape = f"{plan.tasks_per_node} tasks x {plan.cpus_per_task} = {asked} per node asked"
    if cores and asked > cores:
        yield Found(
            f"{shape}, a node of {plan.partition_name} has {cores}; use --cpus-per-task "
            f"{max(cores // plan.tasks_per_node, 1)}",
            partition_key(plan, "cores_per_node"),
        )
    elif per_gpu and gpus and asked > gpus * per_gpu:
        share = f"{gpus} GPUs come with {gpus} x {per_gpu} = {gpus * per_gpu} on {plan.partition_name}"
        exact = plan.partition.cpus_per_gpu_exact
        rest = "leave --cpus-per-task out or lower it" if exact else "the surplus is charged as more GPUs"
        yield Found(f"{shape}, {share}; {rest}", partition_key(plan, "cpus_per_gpu"), warns=not exact)


def size(plan: Plan) -> Iterator[Found]:
    """Refuse more cores than a partition gives to one job, fewer than it wants, and what is no multiple of its step."""
    cores, part, where = plan.nodes * plan.cpus_per_node, plan.partition, plan.partition_name
    asked = f"{plan.nodes} {'node' if plan.nodes == 1 else 'nodes'}, {cores} cores asked"
    if part.max_cores and cores > part.max_cores:
        nodes = part.max_cores // (part.cores_per_node or part.max_cores)
        yield Found(
            f"{asked}, {where} allows {part.max_cores}; use --nodes {max(nodes, 1)}", partition_key(plan, "max_cores")
        )
    if part.min_cores and cores < part.min_cores:
        yield Found(f"{asked}, {where} wants at least {part.min_cores}", partition_key(plan, "min_cores"))
    if part.core_step and cores % part.core_step:
        more = -(-cores // part.core_step) * part.core_step
        yield Found(
            f"{asked}, {where} gives cores in multiples of {part.core_step}; use {more}",
            partition_key(plan, "core_step"),
        )


def memory(plan: Plan) -> Iterator[Found]:
    """Refuse more memory per node than jobs may have."""
    most = plan.partition.mem_gb_per_node
    if plan.mem_gb_per_node and most and plan.mem_gb_per_node > most:
        yield Found(
            f"{plan.mem_gb_per_node} GB per node asked, a node of {plan.partition_name} has {most:g} GB for jobs; "
            f"use --mem-gb {int(most)}",
            partition_key(plan, "mem_gb_per_node"),
        )
