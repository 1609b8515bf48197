"""What #SBATCH directives ask for."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from hpclaunch.profile.model import Partition
from hpclaunch.profile.search import Profile
from hpclaunch.scripts import values
from hpclaunch.scripts.asked import Asked, quoted, start, variables
from hpclaunch.scripts.remark import Directives, Option
from hpclaunch.scripts.tables import words
from hpclaunch.walltime import clock

_TAKEN = words(
    """
    job-name account partition constraint qos time nodes ntasks ntasks-per-node gres gpus gpus-per-node gpus-per-task
    cpus-per-task cpus-per-gpu mem mem-per-cpu mem-per-gpu export ?
    """
)
_LAYOUT = words("ntasks-per-gpu ntasks-per-core ntasks-per-socket gpus-per-socket wrap test-only parsable")
GPU = re.compile(r"gpu(?::(?P<model>[A-Za-z][\w.-]*))?(?::(?P<count>\d{1,6}))?(?:\([^)]*\))?")


def ask(profile: Profile, directives: Directives) -> Asked:
    """Return what the directives ask of a Slurm site."""
    asked = start(profile, directives)
    asked.folder = True
    for name, key in (("job-name", "job_name"), ("account", "account"), ("qos", "qos")):
        if option := directives.last(name):
            asked.set(key, option.value, option)
    _partition(asked, directives)
    _time(asked, directives)
    _sizes(asked, directives)
    _memory(asked, directives)
    for option in directives.options:
        if option.name == "export":
            _export(asked, option)
        elif option.name in _LAYOUT:
            asked.left.append((option.line, quoted(option, False), "hpclaunch lays the tasks out itself"))
        elif option.name not in _TAKEN and not (option.name == "output" and option.value == "%x_%j.out"):
            asked.carry(option, quoted(option, False))
    return asked


def _export(asked: Asked, option: Option) -> None:
    items = option.value.split(",")
    if items[0] in ("ALL", "NIL"):
        items = items[1:]
    elif items == ["NONE"]:
        asked.carry(option, "--export=NONE")
        return
    variables(asked, option, [item for item in items if item])


def _partition(asked: Asked, directives: Directives) -> None:
    """Find the partition by --partition, by --constraint, or by the hardware that the account's suffix stands for."""
    site = asked.profile.site
    named: Option | None = None
    for name in ("partition", "constraint"):
        option = directives.last(name)
        if option is None:
            continue
        parts = [word for word in re.split(r"[,|&]", option.value) if word]
        if found := next((word for word in parts if site.find_partition(word)), None):
            if len(parts) > 1:
                asked.left.append((option.line, f"{option.written} {option.value}", f"taken for {found}"))
            named = option
            asked.set("partition", found, option)
        elif name == "constraint":
            asked.carry(option, quoted(option, False))
        else:
            asked.set("partition", option.value, option)
            named = option
    if named is None:
        _by_account(asked, directives)
    wanted = str(asked.values.get("partition") or site.default_partition)
    asked.partition = (site.find_partition(wanted) or (wanted, Partition()))[1]


def _by_account(asked: Asked, directives: Directives) -> None:
    site, option = asked.profile.site, directives.last("account")
    if option is None or "@" not in option.value:
        return
    suffix = "@" + option.value.rpartition("@")[2]
    fitting = {name: part for name, part in site.partitions.items() if suffix in part.account_suffixes}
    free = next((name for name, part in fitting.items() if part.directives == []), None)
    if free:
        asked.set("partition", free, option)
    elif fitting:
        name, part = next(iter(fitting.items()))
        directive = (part.directives or [f"--partition={name}"])[0]
        text = f"--account {option.value} is for {' or '.join(fitting)}: ask for that, add #SBATCH {directive}"
        asked.say("constraint", option.line, text, mended=len(fitting) == 1)
        asked.set("partition", name, option)


def _time(asked: Asked, directives: Directives) -> None:
    option = directives.last("time")
    if option:
        asked.lines["walltime"] = option.line
    seconds = asked.number(option, values.slurm_seconds)
    if option is None or seconds is None:
        return
    asked.seconds = seconds
    asked.set("walltime", clock(seconds), option)
    if re.fullmatch(r"\d+:\d+", option.value) or 0 < (values.whole(option.value) or 0) <= 24:
        text = f"{option.written} {option.value} is {clock(seconds)} to Slurm; if hours are meant, write "
        asked.say("short-time", option.line, f"{text}{option.value.split(':')[0]}:00:00")


def _sizes(asked: Asked, directives: Directives) -> None:
    lines = asked.lines
    nodes = asked.number(directives.last("nodes"), _nodes)
    tasks = asked.number(directives.last("ntasks"), values.count)
    per_node = asked.number(directives.last("ntasks-per-node"), values.count)
    per_task = asked.number(directives.last("cpus-per-task"), values.count)
    gpus, named = _gpus(asked, directives, tasks or (per_node or 1) * (nodes or 1))
    per_gpu = asked.number(directives.last("cpus-per-gpu"), values.count)
    if nodes is None:
        nodes = math.ceil(tasks / per_node) if tasks and per_node else _nodes_for(asked, tasks, per_task)
    if per_node is None:
        per_node = math.ceil(tasks / nodes) if tasks else 1
    asked.nodes, asked.starts, asked.gpus = nodes, per_node, gpus(nodes)
    for said, model, others in named:  # the new script asks by --gres, of which the last counts
        gres = [f"gpu:{model}:{asked.gpus}" if model else f"gpu:{asked.gpus}"] if asked.gpus else []
        asked.carry(said, f"--gres={','.join([*gres, *others])}")
    asked.cpus = (per_task or 1) * per_node
    if per_gpu and asked.gpus and per_task is None:
        asked.cpus = per_gpu * asked.gpus
    asked.cpus_said = bool(per_task or per_gpu)
    for key, names in (
        ("nodes", ("nodes", "ntasks", "ntasks-per-node", "gpus")),
        ("tasks_per_node", ("ntasks-per-node", "ntasks", "nodes")),
        ("gpus_per_node", ("gres", "gpus-per-node", "gpus", "gpus-per-task")),
        ("cpus_per_task", ("cpus-per-task", "cpus-per-gpu", "ntasks-per-node", "ntasks")),
    ):
        if option := next(filter(None, map(directives.last, names)), None):
            lines[key] = option.line
    asked.size_line = lines.get("tasks_per_node") or lines.get("nodes") or 0


def _nodes_for(asked: Asked, tasks: int | None, per_task: int | None) -> int:
    """Return the nodes that Slurm takes for tasks of this size where it may choose, packed as full as can be."""
    cores = asked.partition.cores_per_node
    if not tasks or not cores:
        return 1
    return max(math.ceil(tasks / max(cores // (per_task or 1), 1)), 1)


def _nodes(text: str) -> int:
    found = re.fullmatch(r"(\d{1,6})(?:-\d{1,6})?", text)
    if not found or not int(found[1]):
        raise ValueError(f"{text!r} is no number of nodes")
    return int(found[1])


def _gpus(
    asked: Asked, directives: Directives, tasks: int
) -> tuple[Callable[[int], int], list[tuple[Option, str, list[str]]]]:
    """Return how many GPUs a node has in the job, as a function of the nodes, and where they or others are named.

    What names them: the option, the GPUs' model, and what a --gres asks for besides.
    """
    counts, named = [], []
    for name in ("gpus-per-node", "gres", "gpus", "gpus-per-task"):
        option = directives.last(name)
        model, others = "", []
        for item in option.value.split(",") if option else ():
            assert option is not None  # noqa: S101 - for the type checker
            found = GPU.fullmatch(item if name == "gres" else f"gpu:{item}")
            if found:
                counts.append(_gpu_count(asked, option, name, int(found["count"] or 1), tasks))
                model = found["model"] or model
            elif name != "gres" or item.startswith("gpu") or not item:
                asked.number(option, _no_gpus)
            else:
                others.append(item)
        if option and (model or others):
            named.append((option, model, others))
    return counts[0] if counts else lambda _nodes: 0, named


def _no_gpus(text: str) -> int:
    raise ValueError(f"{text!r} is no number of GPUs, like gpu:4")


def _gpu_count(asked: Asked, option: Option, name: str, count: int, tasks: int) -> Callable[[int], int]:
    if count == 0:
        text = f"{option.written} {option.value}: leave it out, it brings GPU nodes whatever the account"
        asked.say("no-gpu-gres", option.line, text, mended=True)
    if name == "gpus":
        return lambda nodes: math.ceil(count / nodes)
    if name == "gpus-per-task":
        return lambda nodes: math.ceil(count * tasks / nodes)
    return lambda _nodes: count


def _memory(asked: Asked, directives: Directives) -> None:
    for name, factor in (("mem", 1), ("mem-per-cpu", asked.cpus or 1), ("mem-per-gpu", asked.gpus or 1)):
        option = directives.last(name)
        size = asked.number(option, values.slurm_gb)
        if option is None or size is None:
            continue
        if not size:
            asked.carry(option, f"--{name}=0")
        else:
            asked.set("mem_gb", values.whole_gb(size * factor), option)
