"""What #PBS directives ask for: totals of the whole job, or chunks."""

from __future__ import annotations

import math
import re

from hpclaunch.profile.model import Partition
from hpclaunch.profile.search import Profile
from hpclaunch.scripts import values
from hpclaunch.scripts.asked import Asked, quoted, start, variables
from hpclaunch.scripts.remark import Directives, Option
from hpclaunch.walltime import clock

_RESOURCES = ("walltime", "ncpus", "ngpus", "mem", "jobfs", "storage", "wd", "select", "nodes", "place")
_TAKEN = {"N", "P", "q", "v", "V", "I", "X", "?", *(f"l.{name}" for name in _RESOURCES)}


def ask(profile: Profile, directives: Directives) -> Asked:
    """Return what the directives ask of a PBS site."""
    asked = start(profile, directives)
    _words(asked, directives)
    _time(asked, directives)
    if chunks := directives.first("l.select") or directives.first("l.nodes"):
        _chunks(asked, directives, chunks)
    else:
        _totals(asked, directives)
    for option in directives.options:
        if option.name not in _TAKEN:
            asked.carry(option, f"{option.written}={option.value}" if option.name.startswith("l.") and option.value
                        else quoted(option, True))  # fmt: skip
    return asked


def _words(asked: Asked, directives: Directives) -> None:
    site = asked.profile.site
    for letter, key in (("N", "job_name"), ("P", "account")):
        if option := directives.last(letter):
            asked.set(key, option.value, option)
    queue = directives.last("q")
    name = queue.value if queue else site.default_partition if site.any_partition else ""
    if queue:
        plain = re.sub(r"-exec$", "", name)
        if plain != name and site.find_partition(plain):
            asked.say("exec-queue", queue.line, f"-q {name}: ask for it by its plain name, -q {plain}", mended=True)
            name = plain
        asked.set("partition", name, queue)
    asked.partition = (site.find_partition(name) or (name, Partition()))[1]
    asked.folder = directives.first("l.wd") is not None
    if storage := directives.first("l.storage"):
        asked.set("storage", [part for part in storage.value.split("+") if part], storage)
    for option in directives.all("v"):
        variables(asked, option, _items(option.value))
    for option in directives.all("V"):
        asked.say("export", option.line, "-V takes the login shell's environment along, modules and all", mended=True)
        asked.left.append((option.line, "-V", "the script sets up its own environment"))
    for option in directives.all("I", "X"):
        asked.say("interactive", option.line, f"-{option.name} is for `qsub -I` on the command line", mended=True)
        asked.left.append((option.line, f"-{option.name}", "only for interactive jobs"))


def _items(text: str) -> list[str]:
    """Split the list of -v; quotes and backslashes protect commas."""
    items = re.findall(r"(?:[^,'\"\\]|\\.|'[^']*'|\"[^\"]*\")+", text)
    return [re.sub(r"\\(.)|['\"]", r"\1", item) for item in items]


def _time(asked: Asked, directives: Directives) -> None:
    option = directives.first("l.walltime")
    if option:
        asked.lines["walltime"] = option.line
    seconds = asked.number(option, values.pbs_seconds)
    if option is None or seconds is None:
        return
    asked.seconds = seconds
    asked.set("walltime", clock(seconds) if seconds else "00:00:00", option)
    if option.value.count(":") < 2 and seconds < 3600:
        asked.say("short-time", option.line, f"walltime={option.value} is {clock(seconds)} to PBS; if hours are meant, "
                  f"write {option.value.split(':')[0]}:00:00")  # fmt: skip


def _memory(asked: Asked, directives: Directives, nodes: int) -> None:
    """Divide mem and jobfs, totals of the job, by its nodes."""
    part = asked.partition
    kinds = (
        ("mem", "mem_gb", part.mem_gb_per_node, part.default_mem_gb_per_node),
        ("jobfs", "jobfs_gb", part.jobfs_gb_per_node, part.default_jobfs_gb_per_node),
    )
    for name, key, most, default in kinds:
        option = directives.first(f"l.{name}")
        if option:
            asked.lines[key] = option.line
        size = asked.number(option, values.pbs_gb)
        if option is None or size is None:
            continue
        if re.fullmatch(r"[0-9]+", option.value):
            text = f"{name}={option.value} is {option.value} bytes to PBS: write the unit, {name}={option.value}GB"
            asked.say("malformed", option.line, text)
            continue
        asked.set(key, values.whole_gb(size / nodes), option)
        if nodes > 1 and most and 0.4 * most <= size <= most and not (default and size >= nodes * math.floor(default)):
            text = (
                f"{name}={option.value} is for all {nodes} nodes, {size / nodes:g} GB each; if it is meant for each, "
            )
            asked.say("totals", option.line, f"{text}write {name}={size * nodes:g}GB", refuses=False)


def _totals(asked: Asked, directives: Directives) -> None:
    part, site = asked.partition, asked.profile.site
    cpus_option, gpus_option = directives.first("l.ncpus"), directives.first("l.ngpus")
    cpus = asked.number(cpus_option, values.count) or 1
    gpus = asked.number(gpus_option, lambda text: values.count(text, 0)) or 0
    line = cpus_option.line if cpus_option else gpus_option.line if gpus_option else 0
    cores, per_gpu = part.cores_per_node, part.cpus_per_gpu
    if gpus and per_gpu and part.cpus_per_gpu_exact and cpus != gpus * per_gpu:
        asked.say("totals", line, f"ncpus={cpus} with ngpus={gpus}: each GPU comes with {per_gpu} cpus, "
                  f"write ncpus={gpus * per_gpu}", mended=True)  # fmt: skip
        cpus = gpus * per_gpu
    if cores and cpus > cores and cpus % cores and site.multi_node == "whole":
        whole = math.ceil(cpus / cores) * cores
        asked.say("totals", line, f"ncpus={cpus} is more than a node's {cores} cores and no multiple: "
                  f"{asked.profile.name} gives whole nodes, write ncpus={whole}", mended=not gpus,
                  key=("multi_node",))  # fmt: skip
        cpus = whole
    asked.nodes = nodes = max(math.ceil(cpus / cores), 1) if cores else 1
    if gpus % nodes:
        asked.say(
            "totals", gpus_option.line if gpus_option else line, f"ngpus={gpus} cannot be divided by {nodes} nodes"
        )
    asked.gpus, asked.cpus, asked.size_line = gpus // nodes, cpus // nodes, line
    for key, option in (("nodes", cpus_option), ("cpus_per_task", cpus_option), ("gpus_per_node", gpus_option)):
        if option or line:
            asked.lines[key] = option.line if option else line
    _memory(asked, directives, nodes)


def _chunks(asked: Asked, directives: Directives, option: Option) -> None:
    """Read `select=2:ncpus=48:ngpus=4+1:ncpus=1` or Torque's `nodes=2:ppn=48`."""
    part = asked.partition
    chunks = [_chunk(text) for text in option.value.split("+")]
    written = f"{option.written.removeprefix('-l ')}={option.value}"
    if any(chunk is None for chunk in chunks) or "$" in option.value:
        asked.say("malformed", option.line, f"{written}: expected NUMBER:NAME=VALUE:..., like 2:ncpus=48:mem=190gb")
        return
    known = [chunk for chunk in chunks if chunk]
    if len(known) > 1:
        asked.left.append((option.line, written, "chunks of several kinds: the first one's size is taken for all"))
    count = sum(chunk[0] for chunk in known)
    pairs = known[0][1]
    cpus, gpus = _whole(pairs, "ncpus", "ppn") or 1, _whole(pairs, "ngpus", "gpus") or 0
    cores = part.cores_per_node
    asked.nodes = max(math.ceil(count * cpus / cores), 1) if cores else count
    asked.cpus, asked.gpus = math.ceil(count * cpus / asked.nodes), count * gpus // asked.nodes
    asked.starts = max(count * (_whole(pairs, "mpiprocs", "ppn") or 1) // asked.nodes, 1)
    asked.size_line = option.line
    asked.lines |= {"nodes": option.line, "cpus_per_task": option.line, "gpus_per_node": option.line}
    mem = 0.0
    try:
        mem = values.pbs_gb(pairs["mem"]) * count if "mem" in pairs else 0
    except ValueError as error:
        asked.say("malformed", option.line, f"mem: {error}")
    if mem:
        asked.set("mem_gb", values.whole_gb(mem / asked.nodes), option)
    for other in directives.all("l.ncpus", "l.ngpus", "l.mem"):
        if mem and other.name == "l.mem":
            continue
        if other.name != "l.mem":
            asked.say("select", other.line, f"{other.written} beside {written}: PBS takes chunks or totals, not both",
                      mended=True)  # fmt: skip
    if not mem:
        _memory(asked, directives, asked.nodes)
    totals = [
        f"ncpus={count * cpus}",
        *([f"ngpus={count * gpus}"] if gpus else []),
        *([f"mem={mem:g}GB"] if mem else []),
    ]
    for i, refused in enumerate(asked.profile.site.refused_directives):
        if refused.fits(f"-l {written}"):
            text = f"{written}: {refused.why.partition(';')[0]}; write -l {' -l '.join(totals)}"
            asked.say("select", option.line, text, refuses=not refused.warns, mended=True,
                      key=("refused_directives", i, "pattern"))  # fmt: skip
            return
    if option.name == "l.nodes":
        text = f"{written} is Torque's; PBS Pro writes select={count}:ncpus={cpus}"
        asked.say("select", option.line, text, refuses=False, mended=True)


def _chunk(text: str) -> tuple[int, dict[str, str]] | None:
    head, _, rest = text.partition(":")
    if not re.fullmatch(r"[0-9]{1,6}", head):
        head, rest = "1", text
    pairs = dict(item.partition("=")[::2] for item in rest.split(":") if item)
    if not 0 < int(head) < 10**6 or any(
        name in pairs and not re.fullmatch(r"[1-9]\d{0,5}|0", pairs[name])
        for name in ("ncpus", "ngpus", "ppn", "gpus", "mpiprocs")
    ):
        return None
    return int(head), pairs


def _whole(pairs: dict[str, str], *names: str) -> int:
    return next((int(pairs[name]) for name in names if name in pairs), 0)
