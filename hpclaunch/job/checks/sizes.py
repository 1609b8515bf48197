"""Nodes, GPUs and cores against what a partition has."""

from __future__ import annotations

from collections.abc import Iterator

from hpclaunch.errors import counted
from hpclaunch.job.checks.check import own_key, partition_key
from hpclaunch.job.diagnostic import Edit, Found, Suggestion
from hpclaunch.job.limits import common_limits, kept
from hpclaunch.job.plan import Plan
from hpclaunch.profile.yamlfile import Key

LIGHTNING_SLURM = (
    "https://github.com/Lightning-AI/pytorch-lightning/blob/2.6.2/src/lightning/fabric/plugins/environments/slurm.py"
)

RANKS_PER_CORE = 8


def gpus(plan: Plan) -> Iterator[Found]:
    """Refuse more GPUs per node than a node has, and none at all where a partition is for GPU jobs."""
    where, asked, most = plan.partition_name, plan.gpus_per_node, plan.partition.gpus_per_node
    key = partition_key(plan, "gpus_per_node")
    if plan.scheduler.here:
        return
    if asked > most and not plan.site.any_partition:
        others = [{"partition": name} for name, other in plan.site.partitions.items() if other.gpus_per_node]
        text = f"{counted(asked, 'GPU')} per node, but a {where} node has {most or 'none'}"
        yield Found(text, key, suggestions=[{"gpus_per_node": most}, *([] if most else others)])
    elif most and not asked and not plan.partition.small_jobs:
        text = f"no GPUs requested, but {where} is for jobs with 1 to {most} per node"
        yield Found(text, key, suggestions=[{"gpus_per_node": most}, {"gpus_per_node": 1}])


def tasks(plan: Plan) -> Iterator[Found]:
    """Refuse more ranks on a node than GPUs; warn, under the launcher tasks, of several ranks that leave GPUs idle."""
    gpus, ranks = plan.gpus_per_node, plan.tasks_per_node
    if plan.scheduler.here or not plan.partition.gpus_per_node:
        return
    right: list[Suggestion] = [{"tasks_per_node": gpus}, {"gpus_per_node": ranks}]
    if 0 < gpus < ranks and plan.script and not plan.script.parallel:
        right = [{"tasks_per_node": 1, "cpus_per_task": ranks * plan.cpus_per_task}]
        text = f"the program is started once, the job has {plan.world_size} tasks"
        yield Found(text, warns=True, suggestions=right, certain=plan.nodes == 1)
    elif 0 < gpus < ranks:
        text = f"{ranks} ranks per node with {counted(gpus, 'GPU')}: two ranks cannot share a GPU under NCCL"
        yield Found(text, suggestions=right)
    elif plan.launcher == "tasks" and 1 < ranks < gpus:
        text = f"{ranks} ranks per node leave {gpus - ranks} of {gpus} GPUs idle, and Lightning's devices must be "
        right.append({"tasks_per_node": 1})
        yield Found(f"{text}{ranks}", warns=True, source=LIGHTNING_SLURM, suggestions=right)


def ranks(plan: Plan) -> Iterator[Found]:
    """Refuse more ranks on this machine than 8 for each of its cores: they only wait for each other."""
    cores = plan.request.machine.cores
    if cores and plan.world_size > (most := RANKS_PER_CORE * cores):
        yield Found(
            f"{plan.world_size} ranks exceed this machine's limit of {most}, {RANKS_PER_CORE} for each of "
            f"{counted(cores, 'core')}; use fewer --nodes or --tasks-per-node"
        )


def whole_nodes(plan: Plan) -> Iterator[Found]:
    """Refuse a part of each of several nodes where a site takes whole nodes only; warn where all of each is charged."""
    each, most, cores = plan.gpus_per_node, plan.partition.gpus_per_node, plan.partition.cores_per_node
    way, written, several, unit = plan.site.multi_node, plan.script.cpus if plan.script else 0, plan.nodes > 1, "GPUs"
    key: Key = ("multi_node",)
    when = f"{plan.name} charges a job {'on several nodes' if several else 'with --exclusive'}"
    always = plan.partition.whole_nodes
    if always:
        way, key, when = "exclusive", partition_key(plan, "whole_nodes"), f"{plan.partition_name} charges a job"
    if way == "exclusive" and (several or always) and not most:
        each, most, unit = plan.tasks_per_node * plan.cpus_per_task, cores or 0, "cores"
    text = f"{counted(plan.nodes, 'node')} with {each} of {most} {unit}{' each' if several else ''}: "
    parts = 0 < each < most and (several or always or "--exclusive" in plan.directives)
    if parts and way == "whole":
        right: Suggestion = {"gpus_per_node": most} if plan.gpus > most else {"nodes": 1, "gpus_per_node": plan.gpus}
        yield Found(f"{text}on several nodes {plan.name} takes whole nodes only", key, suggestions=[right])
    if parts and way == "exclusive":
        price = f", {plan.cost}" if plan.cost else ""
        yield Found(f"{text}{when} for all {plan.nodes * most} {unit}{price}", key, warns=True)
    if way == "whole" and cores and written and written > cores and written % cores and not each:
        text = f"{written} cores are not whole nodes: on several nodes {plan.name} takes multiples of {cores}"
        yield Found(text, key, suggestions=[{"cpus_per_task": None}], certain=True)


def cpus(plan: Plan) -> Iterator[Found]:
    """Refuse more cores on a node than it has or than come with its GPUs; warn where the surplus is only charged."""
    tasks, each, part, where = plan.tasks_per_node, plan.cpus_per_task, plan.partition, plan.partition_name
    per_gpu, gpus, key = part.cpus_per_gpu, plan.gpus_per_node, partition_key(plan, "cpus_per_gpu")
    cores, share, script = part.cores_per_node, gpus * (per_gpu or 0), plan.script
    kind = "cores of 2 hyperthreads" if script and script.threads > 1 else "cores"
    all_of_it = part.whole_nodes or (plan.nodes > 1 and plan.site.multi_node == "exclusive")
    shape = f"{counted(tasks, 'task')} x {each} = {tasks * each} {kind} per node"
    default: Suggestion = {"cpus_per_task": None}
    if cores and tasks * each > cores:
        fewer = [{"cpus_per_task": max(cores // tasks, 1)}, default, {"tasks_per_node": max(cores // each, 1)}]
        text = f"{shape}, but a {where} node has {cores}"
        yield Found(text, partition_key(plan, "cores_per_node"), suggestions=fewer)
    elif share and tasks * each > share and not all_of_it:
        exact = part.cpus_per_gpu_exact
        text = f"{shape} exceed the {gpus} x {per_gpu} = {share} that {where} gives with {counted(gpus, 'GPU')}"
        text += "; the surplus is charged as more GPUs" if part.charge and part.charge.cores and not exact else ""
        right = [{"cpus_per_task": max(share // tasks, 1)}, default]
        yield Found(text, key, warns=not exact, suggestions=right)
    option = script and "cpus" in plan.site.omit and script.directives.last("cpus-per-task", "cpus-per-gpu")
    if option:
        text = f"{option.directive}: on {plan.name} cores come with the GPUs; leave it out"
        edits = [Edit(option.line, rf"\s*{option.pattern}", "")]
        yield Found(text, own_key(plan, "omit"), at=option.line, edits=edits)
    if not (script and share):
        return
    # In a request these are filled in.
    if part.cpus_per_gpu_exact and script.cpus and script.cpus != plan.nodes * share:
        text = f"{counted(script.cpus, 'core')} with {counted(plan.gpus, 'GPU')}: {where} requires {per_gpu} cores "
        yield Found(f"{text}for each GPU", key, suggestions=[default], certain=True)
    given = plan.request.cpus_per_task or "cpus" in plan.site.omit or script.directives.last("exclusive")
    if plan.scheduler.starts_ranks and share // tasks > 1 and not given:
        text = f"no cores requested: each task gets 1, though {where} gives {per_gpu} with each GPU"
        right = [{"cpus_per_task": share // tasks}]
        yield Found(text, key, warns=True, suggestions=right, at=script.last, certain=True)


def size(plan: Plan) -> Iterator[Found]:
    """Refuse more cores or nodes than a partition gives to a job, fewer than it wants, and no multiple of its step."""
    cores, part, where = plan.cpus, plan.partition, plan.partition_name
    shape = f"{counted(plan.nodes, 'node')} with {counted(cores, 'core')}"
    if part.max_cores and cores > part.max_cores:
        text = f"{shape} exceeds {where}'s limit of {counted(part.max_cores, 'core')}"
        yield Found(text, partition_key(plan, "max_cores"), suggestions=at_most(plan, part.max_cores))
    if part.min_cores and cores < part.min_cores:
        text = f"{shape} is below {where}'s minimum of {counted(part.min_cores, 'core')}"
        yield Found(text, partition_key(plan, "min_cores"), suggestions=at_least(plan, part.min_cores))
    if (step := part.core_step) and cores % step:
        text, right = f"{shape}: {where} gives cores in multiples of {step}", -(-cores // step) * step
        yield Found(text, partition_key(plan, "core_step"), suggestions=at_least(plan, right)[:1])
    for key, text in common_limits(where, part, plan.seconds, plan.nodes):
        if key != "min_walltime":
            others = [{"partition": name} for name, other in plan.site.partitions.items() if other.gpu == part.gpu]
            yield Found(text, partition_key(plan, key), suggestions=[kept(part, key), *others])


def at_most(plan: Plan, cores: int) -> list[Suggestion]:
    """Return how the job may have at most so many cores: fewer nodes, or less of each."""
    smaller = [
        {"nodes": cores // plan.cpus_per_node},
        {"cpus_per_task": cores // plan.world_size},
        {"tasks_per_node": cores // (plan.nodes * plan.cpus_per_task)},
    ]
    return [one for one in smaller if all(one.values())]


def at_least(plan: Plan, cores: int) -> list[Suggestion]:
    """Return how the job may have at least so many cores: more of each node, or more nodes."""
    return [
        {"cpus_per_task": -(-cores // plan.world_size)},
        {"nodes": -(-cores // plan.cpus_per_node)},
        {"nodes": -(-cores // (plan.partition.cores_per_node or cores)), "cpus_per_task": None},
    ]
