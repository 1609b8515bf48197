"""Memory and node-local disk: too much, at a price, or not to be asked for."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpclaunch.job.checks.check import partition_key
from hpclaunch.job.checks.spelling import option
from hpclaunch.job.cost import charged_gb
from hpclaunch.job.diagnostic import Found

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan

_QSUB = "https://github.com/openpbs/openpbs/blob/master/doc/man1/qsub.1B"


def memory(plan: Plan) -> Iterator[Found]:
    """Refuse more memory per node than jobs may have, and any where it comes with the cores."""
    most = plan.partition.mem_gb_per_node
    if plan.mem_gb_per_node and most and plan.mem_gb_per_node > most:
        yield Found(
            f"{plan.mem_gb_per_node} GB per node exceeds the {most:g} GB for jobs of a {plan.partition_name} node",
            partition_key(plan, "mem_gb_per_node"),
            suggestions=[{"mem_gb": int(most) or None}],
        )
    asked = [line for line in plan.directives if re.match(r"--mem(-per-(cpu|gpu))?[ =]", line)]
    if plan.request.mem_gb:
        written = plan.script.directives.last("mem", "mem-per-cpu", "mem-per-gpu") if plan.script else None
        asked.append(written.directive if written else option(plan, "mem_gb", plan.request.mem_gb))
    if asked and plan.site.memory_follows_cpus:
        yield Found(
            f"{', '.join(asked)}: on {plan.name} memory comes with the cores; leave it out, "
            "request more cores for more memory",
            ("memory_follows_cpus",),
        )
    yield from _of_all_nodes(plan, "l.mem", "mem_gb", most, plan.partition.default_mem_gb_per_node)


def _of_all_nodes(plan: Plan, name: str, key: str, most: float | None, default: float | None) -> Iterator[Found]:
    """Yield a total of several nodes that looks as if it was meant for each of them."""
    size = getattr(plan.request, key)
    if plan.script and plan.script.directives.first(name) and plan.nodes > 1 and size and most:
        total = size * plan.nodes
        if 0.4 * most <= total <= most and not (default and total >= plan.nodes * math.floor(default)):
            text = f"{total} GB are the total of {plan.nodes} nodes, {size} GB each, and perhaps meant for each"
            yield Found(text, warns=True, source=_QSUB, suggestions=[{key: total}], at=key)


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
                f"{total} GB are charged as {as_cores:.6g} cores, {as_cores / cores:.3g} times the {cores} requested",
                partition_key(plan, "charge", "mem_gb_per_core"),
                warns=True,
                suggestions=[{"mem_gb": free}] if free else [],
            )


def jobfs(plan: Plan) -> Iterator[Found]:
    """Refuse more node-local disk than a node has; warn of a needless request, and of a script without."""
    most, asked = plan.partition.jobfs_gb_per_node, plan.jobfs_gb_per_node
    if plan.request.jobfs_gb and not plan.site.ask_jobfs:
        yield Found(
            f"{plan.request.jobfs_gb} GB requested, but jobs on {plan.name} request none",
            warns=True,
            suggestions=[{"jobfs_gb": None}],
        )
    elif asked and most and asked > most:
        yield Found(
            f"{asked} GB per node exceeds the {most:g} GB for jobs of a {plan.partition_name} node",
            partition_key(plan, "jobfs_gb_per_node"),
            suggestions=[{"jobfs_gb": int(most) or None}],
        )
    yield from _of_all_nodes(plan, "l.jobfs", "jobfs_gb", most, plan.partition.default_jobfs_gb_per_node)
    if plan.script and plan.site.ask_jobfs and most and "jobfs_gb" not in plan.script.lines:
        for line in plan.request.setup:
            if used := re.search(r"\$\{?(?:PBS_JOBFS|TMPDIR)\b(?!=)", line):
                text = f"{used[0].replace('{', '')} is node-local disk, of which a job gets little unless requested"
                yield Found(text, ("ask_jobfs",), True, suggestions=[{"jobfs_gb": asked}], at=line)
                return
