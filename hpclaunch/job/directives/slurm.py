"""The directives of Slurm: what sbatch reads in them, what they ask for, and how a plan is asked for."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hpclaunch.job.diagnostic import Edit
from hpclaunch.job.directives.asked import Asked, quoted, start
from hpclaunch.job.directives.options import Directives, Option
from hpclaunch.job.directives.read import number, split, words
from hpclaunch.job.directives.sbatch import SLURM_SAME, SLURM_SHORT, SLURM_TAKES
from hpclaunch.profile.model import Partition
from hpclaunch.profile.search import Profile
from hpclaunch.schedulers.values import count, slurm_gb, slurm_seconds, whole, whole_gb
from hpclaunch.walltime import clock

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan

_TAKEN = words(
    """
    job-name account partition constraint qos time nodes ntasks ntasks-per-node gres gpus gpus-per-node gpus-per-task
    cpus-per-task cpus-per-gpu mem mem-per-cpu mem-per-gpu export ?
    """
)
_LAYOUT = words("ntasks-per-gpu ntasks-per-core ntasks-per-socket gpus-per-socket wrap test-only parsable")
GPU = re.compile(r"gpu(?::(?P<model>[A-Za-z][\w.-]*))?(?::(?P<count>\d{1,6}))?(?:\([^)]*\))?")
_GPUS = ("gpus-per-node", "gres", "gpus", "gpus-per-task")

WORDS = {
    "walltime": "--time={}",
    "account": "--account={}",
    "partition": "--partition={}",
    "qos": "--qos={}",
    "job_name": "--job-name={}",
    "mem_gb": "--mem={}G",
}
TOGETHER = False


def read_line(found: Directives, number: int, text: str) -> None:
    """Add the options of one directive, `text` being what follows #SBATCH."""
    words = [] if found.complete else split(found, number, text, "#")
    if words in (["hetjob"], ["packjob"]):  # what follows is another part of the job
        found.complete = True
        return
    while words:
        word = words.pop(0)
        if word.startswith("--") and len(word) > 2:
            _long(found, number, word, words)
        elif word.startswith("-") and len(word) > 1:
            name = SLURM_SHORT.get(word[1])
            if name is None:
                _unknown(found, number, word, words)
            elif SLURM_TAKES[name] == "=":
                value = word[2:] or (words.pop(0) if words else None)
                _add(found, number, name, value, f"-{word[1]}")
            else:
                found.options.append(Option(number, name, "", f"-{word[1]}"))
                if word[2:]:
                    words.insert(0, f"-{word[2:]}")
        else:
            found.say(number, f"{word!r} belongs to no option: blanks around = ?")


def _long(found: Directives, number: int, word: str, words: list[str]) -> None:
    written, equals, value = word[2:].partition("=")
    near = {SLURM_SAME.get(name, name) for name in SLURM_TAKES if name.startswith(written)}
    name = written if written in SLURM_TAKES else near.pop() if len(near) == 1 else None
    if name is None:
        _unknown(found, number, word, words)
        return
    own = SLURM_SAME.get(name, name)
    if SLURM_TAKES[name] == "=" and not equals:
        _add(found, number, own, words.pop(0) if words else None, f"--{written}")
    elif SLURM_TAKES[name] == "=" and not value:
        _add(found, number, own, None, f"--{written}")
    else:
        found.options.append(Option(number, own, value, f"--{written}"))


def _add(found: Directives, number: int, name: str, value: str | None, written: str) -> None:
    if value is None or (value.startswith("--") and len(value) > 2):
        found.say(number, f"{written}: its value is missing")
    else:
        found.options.append(Option(number, name, value, written))


def _unknown(found: Directives, number: int, word: str, words: list[str]) -> None:
    """Take an unknown option with the word behind it, if that is none itself."""
    name, equals, value = word.partition("=")
    if not equals and words and not words[0].startswith("-"):
        value = words.pop(0)
    written = f"{name}{equals or (' ' if value else '')}{value}"
    near = difflib.get_close_matches(name.lstrip("-"), SLURM_TAKES, n=1, cutoff=0.75)
    hint = f" (did you mean --{near[0]}?)" if near else ""
    found.say(number, f"{name}: hpclaunch does not know this option{hint}", warns=True)
    found.options.append(Option(number, "?", value, written))


def ask(profile: Profile, directives: Directives, typed: Mapping[str, Any]) -> Asked:
    """Return what directives ask for; options `typed` on the command line win."""
    asked = start(profile, directives, typed)
    asked.folder = True
    for name, key in (("job-name", "job_name"), ("account", "account"), ("qos", "qos")):
        if option := directives.last(name):
            asked.set(key, option.value, option)
    _partition(asked, directives, typed)
    asked.values |= typed
    option = directives.last("time")
    short = bool(option and (re.fullmatch(r"\d+:\d+", option.value) or 0 < (whole(option.value) or 0) <= 24))
    asked.time(option, number(directives, option, slurm_seconds), short)
    _sizes(asked, directives)
    _memory(asked, directives)
    for option in directives.options:
        if option.name == "export":
            items = [item for item in option.value.split(",") if item not in ("", "ALL", "NIL", "NONE")]
            asked.variables(option, items, "--export=")
        elif option.name in _LAYOUT:
            asked.left.append((option.line, option.directive, "another layout of the tasks"))
        elif option.name not in _TAKEN or _unread(asked, option):
            asked.carry(option, quoted(option, "="))
    return asked


def _unread(asked: Asked, option: Option) -> bool:
    """Tell whether an option says nothing that a request has a key for: a feature, no GPUs, all of the memory."""
    if option.name == "constraint":
        return option.line != asked.lines.get("partition")
    return re.fullmatch(r"gpu(:\w+)?:0|0[KMGT]?", option.value) is not None


def _way(own: str, partition: Partition) -> str:
    """Return how the partition's own name is asked for: as a partition, or as a constraint."""
    wanted = partition.directives or []
    return "constraint" if partition.constraint or f"--constraint={own}" in wanted else "partition"


def _partition(asked: Asked, directives: Directives, typed: Mapping[str, Any]) -> None:
    """Find the partition by --partition, by --constraint, or by the hardware that the account's suffix stands for."""
    site = asked.profile.site
    for name in ("constraint", "partition"):  # a partition that is named wins over the features of its nodes
        option = directives.last(name)
        parts = [word for word in re.split(r"[,|&]", option.value) if word] if option else []
        word = next((word for word in parts if site.find_partition(word)), "")
        own, partition = site.find_partition(word) or ("", Partition())
        if option is None or (name == "constraint" and not own):
            continue
        asked.set("partition", word or option.value, option)
        if len(parts) > 1:
            asked.left.append((option.line, option.directive, f"taken for {own}"))
        right = "partition" if word != own else _way(own, partition)
        if own and right != name and len(parts) == 1:
            text = f"{option.directive}: {word} is a {right} of {asked.profile.name}, not a {name}"
            edit = Edit(option.line, option.pattern, f"--{right}={word}")
            found = f"{text}; use --{right}={word}"
            directives.say(option.line, found, "partition", key=("partitions", own), edits=[edit])
    account = typed.get("account") or asked.values.get("account") or ""
    if "partition" not in asked.values and "@" in account:
        suffix = "@" + account.rpartition("@")[2]
        fitting = [own for own, part in site.partitions.items() if suffix in part.account_suffixes]
        if meant := next((own for own in fitting if site.partitions[own].directives == []), *fitting[:1] or [""]):
            asked.values["partition"], line = meant, asked.lines.get("account", 0)
            asked.lines["partition"] = line
        if lines := site.partitions[meant].directives if meant else None:
            prefix = f"#SBATCH {lines[0]}"
            text = f"{account} is charged for {' or '.join(fitting)} only, which is not requested; use {prefix}"
            edits = [Edit(directives.lines[-1], "$", f"\n{prefix}")] if len(fitting) == 1 else []
            directives.say(line, text, "account", key=("partitions", meant, "account_suffixes"), edits=edits)
    wanted = str(typed.get("partition") or asked.values.get("partition") or site.default_partition)
    asked.partition = (site.find_partition(wanted) or (wanted, Partition()))[1]


def _sizes(asked: Asked, directives: Directives) -> None:
    def read(name: str, how: Callable[[str], Any] = count) -> Any:
        return number(directives, directives.last(name), how)

    nodes, tasks, per_node = read("nodes", _nodes), read("ntasks"), read("ntasks-per-node")
    per_task, per_gpu = read("cpus-per-task"), read("cpus-per-gpu")
    gpus = _gpus(asked, directives, tasks or (per_node or 1) * (nodes or 1))
    if nodes is None:
        nodes = math.ceil(tasks / per_node) if tasks and per_node else _nodes_for(asked, tasks, per_task)
    nodes = asked.values.get("nodes") or nodes
    if per_node is None:
        per_node = math.ceil(tasks / nodes) if tasks else 1
    asked.nodes, asked.starts, asked.gpus = nodes, per_node, gpus(nodes)
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
            asked.lines[key] = option.line
    asked.size_line = asked.lines.get("tasks_per_node") or asked.lines.get("nodes") or 0


def _nodes_for(asked: Asked, tasks: int | None, per_task: int | None) -> int:
    """Return the nodes that Slurm takes for tasks of this size where it may choose, packed as full as can be."""
    cores = asked.partition.cores_per_node
    return max(math.ceil(tasks / max(cores // (per_task or 1), 1)), 1) if tasks and cores else 1


def _nodes(text: str) -> int:
    found = re.fullmatch(r"(\d{1,6})(?:-\d{1,6})?", text)
    if not found or not int(found[1]):
        raise ValueError(f"{text!r} is not a number of nodes")
    return int(found[1])


def _gpus(asked: Asked, directives: Directives, tasks: int) -> Callable[[int], int]:
    """Return how many GPUs a node has in the job, as a function of the nodes; note their model and other gres."""
    counts = []
    for name in _GPUS:
        option = directives.last(name)
        model, others = "", []
        for item in option.value.split(",") if option else ():
            found = GPU.fullmatch(item if name == "gres" else f"gpu:{item}")
            if found:
                counts.append((name, int(found["count"] or 1)))
                model = found["model"] or model
            elif name != "gres" or item.startswith("gpu") or not item:
                number(directives, option, _no_gpus)
            else:
                others.append(item)
        if option and (model or others):
            asked.left.append((option.line, option.directive, "a model of GPU, or other gres"))
    name, total = counts[0] if counts else ("", 0)
    if name == "gpus":
        return lambda nodes: math.ceil(total / nodes)
    if name == "gpus-per-task":
        return lambda nodes: math.ceil(total * tasks / nodes)
    return lambda _nodes: total


def _no_gpus(text: str) -> int:
    raise ValueError(f"{text!r} is not a number of GPUs, like gpu:4")


def _memory(asked: Asked, directives: Directives) -> None:
    for name, factor in (("mem", 1), ("mem-per-cpu", asked.cpus or 1), ("mem-per-gpu", asked.gpus or 1)):
        option = directives.last(name)
        if option and (size := number(directives, option, slurm_gb)):
            asked.set("mem_gb", whole_gb(size * factor), option)


def planned(plan: Plan) -> dict[str, tuple[str, str | None, str]]:
    """Return by its name each option that asks for a plan: the request's key, its value, the directive."""
    starts, gpus, mem = plan.starts_per_node, str(plan.gpus_per_node), plan.mem_gb_per_node
    name, part = plan.partition_name, plan.partition
    rows: dict[str, tuple[str, str | None]] = {
        "nodes": ("nodes", str(plan.nodes)),
        "ntasks-per-node": ("tasks_per_node", str(starts)),
        "ntasks": ("", str(plan.nodes * starts)),
        "gres": ("gpus_per_node", f"gpu:{gpus}"),
        **dict.fromkeys(("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"), ("", None)),
        "cpus-per-task": ("cpus_per_task", str(plan.cpus_per_start)),
        "time": ("walltime", plan.walltime),
        "account": ("account", plan.account),
        "qos": ("qos", plan.qos.name if plan.qos else None),
        "partition": ("partition" if _way(name, part) == "partition" else "", name),
        "constraint": ("partition" if _way(name, part) == "constraint" else "", name),
        "job-name": ("job_name", plan.job_name),
    }
    if mem:
        rows["mem"] = ("mem_gb", f"{mem}G")
    return {name: (key, value, f"--{name}={value}") for name, (key, value) in rows.items()}


def same(option: Option) -> str:
    """Return an option's value as `planned` writes it."""
    try:
        if option.name == "time":
            return clock(slurm_seconds(option.value))
        if option.name == "mem":
            return f"{whole_gb(slurm_gb(option.value))}G"
    except ValueError:
        pass
    if option.name == "gres":
        found = next(filter(None, map(GPU.fullmatch, option.value.split(","))), None)
        return f"gpu:{found['count'] or 1}" if found else option.value
    return option.value
