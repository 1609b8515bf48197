"""Memory and node-local disk: too much, at a price, or not to be asked for."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from hpclaunch.job.checks.check import QSUB, own_key, partition_key
from hpclaunch.job.cost import shares
from hpclaunch.job.diagnostic import Found
from hpclaunch.job.directives.read import dialect
from hpclaunch.job.plan import Plan
from hpclaunch.schedulers.values import whole


def memory(plan: Plan) -> Iterator[Found]:
    """Refuse more memory per node than jobs may have, and any where it comes with the cores."""
    yield from _of_node(plan, "mem_gb")
    asked = [line for line in plan.directives if re.match(r"--mem(-per-(cpu|gpu))?[ =]", line)]
    if plan.request.mem_gb:
        option = plan.script.directives.last("mem", "mem-per-cpu", "mem-per-gpu", "l.mem") if plan.script else None
        asked.append(option.directive if option else f"--mem-gb {plan.request.mem_gb}")
    if asked and "mem" in plan.site.omit:
        text = f"{', '.join(asked)}: on {plan.name} memory comes with the cores; leave it out, "
        yield Found(f"{text}request more cores for more memory", own_key(plan, "omit"))


def _of_node(plan: Plan, key: str) -> Iterator[Found]:
    """Yield more than a node has, and a script's total of several nodes that looks as if it was meant for each."""
    field, part, total = f"{key}_per_node", plan.partition, getattr(plan, key)
    size, most, default = getattr(plan, field), getattr(part, field), getattr(part, f"default_{field}")
    if size and most and size > most:
        text = f"{size} GB per node exceeds the {most:g} GB for jobs of a {plan.partition_name} node"
        yield Found(text, partition_key(plan, field), suggestions=[{key: int(most) or None}])
    given = plan.script.directives.first(f"l.{key[:-3]}") if plan.script and plan.nodes > 1 else None
    if given and total and plan.script and plan.script.cpus:  # as written; the nodes' sizes are rounded up
        total = whole(dialect(plan.site.scheduler).same(given).removesuffix("GB")) or total
    filled_in = default and total and total >= plan.nodes * math.floor(default)
    if given and total and most and 0.4 * most <= total <= most and not filled_in:
        text = f"{given.directive} is the total of {plan.nodes} nodes, {size} GB each, and perhaps meant for each"
        yield Found(text, warns=True, source=QSUB, suggestions=[{key: total}], at=key)


def memory_charge(plan: Plan) -> Iterator[Found]:
    """Warn of memory that is charged as more cores than the job has."""
    charge, total = plan.partition.charge, plan.mem_gb
    if plan.request.mem_gb and total and charge and charge.mem_gb:
        units = shares(charge, nodes=plan.nodes, gpus=plan.gpus, cpus=plan.cpus, mem_gb=total)
        memory, _ = units.pop("mem_gb")
        other = max((number for number, _ in units.values()), default=plan.nodes)
        if memory > other * 1.05:  # less is not worth a word
            block = charge.mem_gb_block or 1
            free = int(charge.mem_gb * other // block * block / plan.nodes)
            text = f"{total} GB are charged as {memory:.6g} {charge.per}s, {memory / other:.3g} times the "
            key, less = partition_key(plan, "charge", "mem_gb"), [{"mem_gb": free}] if free else []
            yield Found(f"{text}{other:.6g} requested", key, warns=True, suggestions=less)


def jobfs(plan: Plan) -> Iterator[Found]:
    """Refuse more node-local disk than a node has; warn of a needless request, and of a script without."""
    if plan.request.jobfs_gb and not plan.site.ask_jobfs:
        text = f"{plan.request.jobfs_gb} GB requested, but jobs on {plan.name} request none"
        yield Found(text, warns=True, suggestions=[{"jobfs_gb": None}])
    else:
        yield from _of_node(plan, "jobfs_gb")
    script = plan.script if plan.site.ask_jobfs and plan.partition.jobfs_gb_per_node else None
    for line in plan.request.setup if script and "jobfs_gb" not in script.lines else ():
        if used := re.search(r"\$\{?(?:PBS_JOBFS|TMPDIR)\b(?!=)", line):
            text = f"{used[0].replace('{', '')} is node-local disk, of which a job gets little unless requested"
            yield Found(text, ("ask_jobfs",), True, suggestions=[{"jobfs_gb": plan.jobfs_gb_per_node}], at=line)
            return
