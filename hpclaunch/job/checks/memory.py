"""Memory and node-local disk: too much, at a price, or not to be asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpclaunch.job.checks.finding import Found, partition_key
from hpclaunch.job.cost import charged_gb

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan


def memory(plan: Plan) -> Iterator[Found]:
    """Refuse more memory per node than jobs may have, and any where it comes with the cores."""
    most = plan.partition.mem_gb_per_node
    if plan.mem_gb_per_node and most and plan.mem_gb_per_node > most:
        yield Found(
            f"{plan.mem_gb_per_node} GB per node asked, a node of {plan.partition_name} has {most:g} GB for jobs",
            partition_key(plan, "mem_gb_per_node"),
            suggestions=[{"mem_gb": int(most) or None}],
        )
    asked = [line for line in plan.directives if re.match(r"--mem(-per-(cpu|gpu))?[ =]", line)]
    if plan.request.mem_gb:
        asked.append(f"--mem-gb {plan.request.mem_gb}")
    if asked and plan.site.memory_follows_cpus:
        yield Found(
            f"{', '.join(asked)} asked, on {plan.name} memory comes with the cores; leave it out, "
            "use --cpus-per-task for more",
            ("memory_follows_cpus",),
        )


def memory_charge(plan: Plan) -> Iterator[Found]:
    """Warn of memory that is charged as more cores than the job has."""
    charge, cores = plan.partition.charge, plan.nodes * plan.cpus_per_node
    if plan.request.mem_gb and charge and charge.mem_gb_per_core:
        total = plan.nodes * plan.request.mem_gb
        as_cores = charged_gb(charge, total) / charge.mem_gb_per_core
        if as_cores > cores + 1e-9:
            block = charge.mem_gb_block or 1
            free = int(charge.mem_gb_per_core * cores // block * block / plan.nodes)
            yield Found(
                f"{total} GB asked are charged as {as_cores:.6g} cores, {as_cores / cores:.3g} times the {cores} asked",
                partition_key(plan, "charge", "mem_gb_per_core"),
                warns=True,
                suggestions=[{"mem_gb": free}] if free else [],
            )


def jobfs(plan: Plan) -> Iterator[Found]:
    """Refuse more node-local disk than a node has; warn where a site is not asked for any."""
    most, asked = plan.partition.jobfs_gb_per_node, plan.jobfs_gb_per_node
    if plan.request.jobfs_gb and not plan.site.ask_jobfs:
        yield Found(
            f"{plan.request.jobfs_gb} GB asked, jobs on {plan.name} ask for none",
            warns=True,
            suggestions=[{"jobfs_gb": None}],
        )
    elif asked and most and asked > most:
        yield Found(
            f"{asked} GB per node asked, a node of {plan.partition_name} has {most:g} GB for jobs",
            partition_key(plan, "jobfs_gb_per_node"),
            suggestions=[{"jobfs_gb": int(most) or None}],
        )
