"""The directives of Slurm: what sbatch reads in them, what they ask for, and how a plan is asked for."""

import math
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from hpclaunch.errors import did_you_mean
from hpclaunch.job.diagnostic import Edit
from hpclaunch.job.directives.asked import Asked, quoted, start
from hpclaunch.job.directives.options import Directives, Option
from hpclaunch.job.directives.read import option_of, split, words
from hpclaunch.job.directives.sbatch import SLURM_SAME, SLURM_SHORT, SLURM_TAKES
from hpclaunch.job.plan import Plan
from hpclaunch.profile.model import Partition
from hpclaunch.profile.search import Profile
from hpclaunch.schedulers.values import count, slurm_gb, slurm_seconds, whole_gb
from hpclaunch.schedulers.walltime import clock

_TAKEN = words(
    "job-name account partition constraint qos time nodes ntasks ntasks-per-node gres gpus gpus-per-node gpus-per-task "
    "cpus-per-task cpus-per-gpu mem mem-per-cpu mem-per-gpu export ?"
)
_LAYOUT = words("ntasks-per-gpu ntasks-per-core ntasks-per-socket gpus-per-socket wrap test-only parsable")
_GPU = re.compile(r"gpu(?::(?P<model>[A-Za-z][\w.-]*))?(?::(?P<count>\d{1,6}))?(?:\([^)]*\))?")
# The options that a key of the request stands in, the first that is there.
_SIZES = {
    "nodes": ("nodes", "ntasks", "ntasks-per-node", "gpus"),
    "tasks_per_node": ("ntasks-per-node", "ntasks", "nodes"),
    "gpus_per_node": ("gres", "gpus-per-node", "gpus", "gpus-per-task"),
    "cpus_per_task": ("cpus-per-task", "cpus-per-gpu", "ntasks-per-node", "ntasks"),
}

WORDS = {"walltime": "--time={}", "partition": "--partition={}"}
TOGETHER = False


def read_line(found: Directives, number: int, text: str) -> None:
    """Add the options of one directive, `text` being what follows #SBATCH."""
    words = [] if found.complete else split(found, number, text, "#")
    if words in (["hetjob"], ["packjob"]):  # what follows is another part of the job
        found.complete = f"#SBATCH {words[0]}: a heterogeneous job"
        found.say(number, f"{found.complete}, of which only the part before this line is checked", warns=True)
        return
    while words:
        word = words.pop(0)
        if not re.match("-[^-]|--.", word):
            found.say(number, f"{word!r} belongs to no option: blanks around = ?")
            continue
        long = word.startswith("--")
        written, equals, value = word.partition("=") if long else (word[:2], word[2:], word[2:])
        name = _name(written)
        if name is None:
            _unknown(found, number, word, words)
            continue
        if SLURM_TAKES[name] == "=" and not equals:
            value = words.pop(0) if words else ""
        elif SLURM_TAKES[name] != "=" and not long and value:
            words.insert(0, f"-{value}")
            value = ""
        if SLURM_TAKES[name] == "=" and (not (value or name == "mail-user") or re.match("--.", value)):
            found.say(number, f"{written}: its value is missing")
        else:
            found.options.append(Option(number, SLURM_SAME.get(name, name), value, written))


def _name(written: str) -> str | None:
    """Return the option that is written so, which may be its letter or, if only one fits, its beginning."""
    name = written[2:]
    if not name or name in SLURM_TAKES:
        return name or SLURM_SHORT.get(written[1])
    near = {SLURM_SAME.get(own, own) for own in SLURM_TAKES if own.startswith(name)}
    return near.pop() if len(near) == 1 else None


def _unknown(found: Directives, number: int, word: str, words: list[str]) -> None:
    """Take an unknown option with the word behind it, if that is none itself."""
    name, equals, value = word.partition("=")
    if not equals and words and not words[0].startswith("-"):
        value = words.pop(0)
    near = did_you_mean(name, [f"--{own}" for own in SLURM_TAKES]).partition(" (known")[0]
    found.say(number, f"{name}: hpclaunch does not know this option{near}", warns=True)
    found.options.append(Option(number, "?", value, f"{name}{equals or (' ' if value else '')}{value}"))


def ask(profile: Profile, directives: Directives, typed: Mapping[str, Any]) -> Asked:
    """Return what directives ask for; options `typed` on the command line win."""
    asked = start(profile, directives, typed)
    asked.folder, asked.mixed = True, directives.complete
    asked.take({"job-name": "job_name", "account": "account", "qos": "qos"})
    _partition(asked, typed)
    asked.values |= typed
    asked.time(directives.last("time"), slurm_seconds)
    _sizes(asked)
    for name, factor in (("mem", 1), ("mem-per-cpu", asked.cpus or 1), ("mem-per-gpu", asked.gpus or 1)):
        option = directives.last(name)
        if option and (size := directives.value(option, slurm_gb)):
            asked.set("mem_gb", whole_gb(size * factor), option)
    taken = _TAKEN.union(asked.take_mail("mail-user", "mail-type", str.lower))
    for option in (one for one in directives.options if one.name == "?" or one == directives.last(one.name)):
        none = re.fullmatch(r"gpu(:\w+)?:0|0[KMGT]?", option.value)  # no GPUs, all of the memory
        if option.name == "export":
            if option.value == "NONE":
                asked.left.append((option.line, option.directive, "ranks need the job's environment"))
            items = [item for item in option.value.split(",") if item not in ("", "ALL", "NIL", "NONE")]
            asked.variables(option, items, "--export=")
        elif option.name in _LAYOUT:
            asked.left.append((option.line, option.directive, "another layout of the tasks"))
        elif option.name == "constraint":
            if directives.last("partition") or option.line != asked.lines.get("partition"):
                asked.carry(option, quoted(option, "="))
        elif option.name not in taken or none:
            asked.carry(option, quoted(option, "="))
    return asked


def _way(own: str, partition: Partition) -> str:
    """Return how the partition's own name is asked for: as a partition, or as a constraint."""
    wanted = partition.directives or []
    return "constraint" if partition.constraint or f"--constraint={own}" in wanted else "partition"


def _partition(asked: Asked, typed: Mapping[str, Any]) -> None:
    """Find the partition by --partition, by --constraint, or by the hardware that the account's suffix stands for."""
    site, given = asked.profile.site, asked.directives
    for name in ("constraint", "partition"):  # a partition that is named wins over the features of its nodes
        option = given.last(name)
        parts = re.findall(r"[^,|&]+", option.value) if option else []
        word = next(filter(site.find_partition, parts), "")
        own, partition = site.find_partition(word) or ("", Partition())
        if option is None or (name == "constraint" and not own):
            continue
        before = (site.find_partition(str(asked.values.get("partition"))) or ("", partition))[1]
        if own and before.compute_capability != partition.compute_capability:
            text = f"{option.directive} has {partition.gpu or 'no GPUs'}, the constraint asks for {before.gpu}"
            given.say(option.line, text, "partition", key=("partitions", own))
        if not (partition.constraint and "partition" in asked.lines):  # its features say more
            asked.set("partition", word or option.value, option)
        right = "partition" if word != own else _way(own, partition)
        if len(parts) > 1:
            asked.left.append((option.line, option.directive, f"taken for {own}"))
        elif own and right != name:
            use = f"--{right}={word}"
            text = f"{option.directive}: {word} is a {right} of {asked.profile.name}, not a {name}; use {use}"
            edit = Edit(option.line, option.pattern, use)
            given.say(option.line, text, "partition", key=("partitions", own), edits=[edit])
    account = typed.get("account") or asked.values.get("account") or ""
    named = site.partitions.items()
    fitting = {own: part.directives for own, part in named if account.endswith(tuple(part.account_suffixes))}
    if "partition" not in asked.values and fitting:
        meant = next((own for own, lines in fitting.items() if lines == []), next(iter(fitting)))
        line = asked.lines["partition"] = asked.lines.get("account", 0)
        asked.values["partition"] = meant
        if lines := fitting[meant]:
            prefix = f"#SBATCH {lines[0]}"
            text = f"{account} is charged for {' or '.join(fitting)} only, which is not requested; use {prefix}"
            edits = [Edit(given.lines[-1], "$", f"\n{prefix}")] if len(fitting) == 1 else []
            given.say(line, text, "account", key=("partitions", meant, "account_suffixes"), edits=edits)
    qos = given.last("qos")
    for own, part in named if qos and "partition" not in asked.values else ():
        if part.directives == [] and qos and qos.value in [one.name for one in part.qos]:  # the QoS says where
            asked.set("partition", own, qos)
    wanted = str(typed.get("partition") or asked.values.get("partition") or site.default_partition)
    asked.partition = (site.find_partition(wanted) or (wanted, Partition()))[1]
    if "partition" not in typed:
        asked.settle("--partition={}", "gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")


def _sizes(asked: Asked) -> None:
    site, given, cores = asked.profile.site, asked.directives, asked.partition.cores_per_node
    tasks, per_node, per_task, per_gpu = (
        given.value(given.last(name), count) for name in ("ntasks", "ntasks-per-node", "cpus-per-task", "cpus-per-gpu")
    )
    if (per_task or per_gpu) and "--hint=nomultithread" in site.directives:  # else it counts hyperthreads
        hint = given.last("hint", "threads-per-core")
        asked.threads = 1 if hint and hint.value in ("nomultithread", "1") else 2
        per_task, per_gpu = (number and math.ceil(number / asked.threads) for number in (per_task, per_gpu))
    nodes = asked.values.get("nodes") or given.value(given.last("nodes"), _nodes)
    if nodes is None and tasks and (per_node or cores):  # Slurm packs nodes as full as can be where it may choose
        nodes = math.ceil(tasks / (per_node or max((cores or 1) // (per_task or 1), 1)))
    asked.nodes = nodes or 1
    # Beside the number of all tasks, that of a node is the most.
    asked.starts = min(per_node or tasks, math.ceil(tasks / asked.nodes)) if tasks else per_node or 1
    asked.gpus = _gpus(asked, tasks or asked.starts * asked.nodes)
    asked.cpus = (per_task or 1) * asked.starts
    if per_gpu and asked.gpus and per_task is None:
        asked.cpus = per_gpu * asked.gpus
    asked.cpus_said = bool(per_task or per_gpu)
    for key, names in _SIZES.items():
        if option := next(filter(None, map(given.last, names)), None):
            asked.lines[key] = option.line


def _nodes(text: str) -> int:
    if found := re.fullmatch(r"(\d{1,6})(?:-\d{1,6})?", text):
        return count(found[1])
    raise ValueError(f"{text!r} is not a number of nodes")


def _gpus(asked: Asked, tasks: int) -> int:
    """Return how many GPUs a node has in the job of so many tasks; note their model and other gres."""
    found, given = [], asked.directives
    site = asked.profile.site
    own = option_of(site.at(asked.partition).gpu_directive, "slurm")
    ways = "\n".join(part.gpu_directive or "" for part in site.partitions.values())
    models = dict.fromkeys(re.findall(r"[=:](?!gpu:)(\w+):\{gpus\}", ways))  # where they are requested by name
    for name, times, shared in (
        ("gpus-per-node", 1, 1), ("gres", 1, 1), ("gpus", 1, asked.nodes), ("gpus-per-task", tasks, asked.nodes)
    ):  # fmt: skip
        option = given.last(name)
        read = given.value(option, _gres if name == "gres" else partial(_gres, prefix="gpu:"))
        if read and read[0] is not None:
            found.append(math.ceil(read[0] * times / shared))
        known = read and own.name == name and own.value.replace("{gpus}", str(read[0]))
        start = "gpu:" if name == "gres" else "^"
        model = re.search(rf"{start}([A-Za-z][\w.-]*)", option.value) if option and models else None
        if option and model and not model[1].startswith(tuple(models)):
            given.say(option.line, f"{option.directive}: {asked.profile.name} has {', '.join(models)}, no {model[1]}")
        if option and read and read[1] and option.value != known:
            asked.left.append((option.line, option.directive, "a model of GPU, or other gres"))
    return found[0] if found else 0 if own.name else asked.partition.gpus_per_node


def _gres(text: str, prefix: str = "") -> tuple[int | None, bool]:
    """Return the GPUs of a node, None if none are named, and whether their model or anything else is."""
    items = [prefix + item for item in text.split(",")]
    known = [found for found in map(_GPU.fullmatch, items) if found]
    if len(known) < sum(item.startswith("gpu") or not item for item in items):
        raise ValueError(f"{','.join(items).removeprefix('gpu:')!r} is not a number of GPUs, like gpu:4")
    number = int(known[0]["count"] or 1) if known else None
    return number, len(known) < len(items) or any(found["model"] for found in known)


def planned(plan: Plan) -> dict[str, tuple[str, str | None, str]]:
    """Return by its name each option that asks for a plan: the request's key, its value, the directive."""
    name, way = plan.partition_name, _way(plan.partition_name, plan.partition)
    threads = plan.script.threads if plan.script else 1
    gpus = option_of(plan.gpu_directive, "slurm")
    rows: dict[str, tuple[str, str | None]] = {
        "nodes": ("nodes", str(plan.nodes)),
        "ntasks-per-node": ("tasks_per_node", str(plan.starts_per_node)),
        "ntasks": ("nodes or --tasks_per_node", str(plan.starts)),
        "gres": ("gpus_per_node", None if plan.gpus_per_node else "gpu:0"),
        **dict.fromkeys(("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"), ("gpus_per_node", None)),
        "cpus-per-task": ("cpus_per_task", None if "cpus" in plan.site.omit else str(plan.cpus_per_start * threads)),
        "time": ("walltime", plan.walltime),
        "account": ("account", plan.account),
        "qos": ("qos", plan.qos.name if plan.qos else None),
        **{own: ("partition", name if way == own else None) for own in ("partition", "constraint")},
        "job-name": ("job_name", plan.job_name),
    }
    if plan.mem_gb_per_node:
        rows["mem"] = ("mem_gb", f"{plan.mem_gb_per_node}G")
    own = {gpus.name: ("gpus_per_node", same(gpus), gpus.directive)} if gpus.name else {}
    return {name: (key, value, f"--{name}={value}") for name, (key, value) in rows.items()} | own


def same(option: Option) -> str:
    """Return an option's value as `planned` writes it."""
    try:
        if option.name == "time":
            return clock(slurm_seconds(option.value))
        if option.name == "mem":
            return f"{whole_gb(slurm_gb(option.value))}G"
        if option.name == "gres" and (number := _gres(option.value)[0]) is not None:
            return f"gpu:{number}"
    except ValueError:
        pass
    return option.value
