"""The directives of PBS: what qsub reads in them, what they ask for, and how a plan is asked for."""

from __future__ import annotations

import getopt
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hpclaunch.job.diagnostic import Edit
from hpclaunch.job.directives.asked import Asked, quoted, start
from hpclaunch.job.directives.options import Directives, Option
from hpclaunch.job.directives.read import number, split, words
from hpclaunch.profile.model import Partition
from hpclaunch.profile.search import Profile
from hpclaunch.schedulers.values import count, pbs_gb, pbs_seconds, whole_gb
from hpclaunch.walltime import clock

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan

_SEEN = "OpenPBS 23.06, seen"
_LETTERS = "a:A:c:C:e:fhIj:J:k:l:m:M:N:o:p:P:q:r:R:S:u:v:VW:Xz"  # of qsub(1B); a colon behind those with a value
_TAKEN = words("N P q v V I X ? l.walltime l.ncpus l.ngpus l.mem l.jobfs l.storage l.wd l.select l.nodes l.place")

WORDS = {
    "walltime": "-l walltime={}",
    "account": "-P {}",
    "partition": "-q {}",
    "job_name": "-N {}",
    "mem_gb": "-l mem={}GB",
    "storage": "-l storage={}",
}
TOGETHER = True


def _with_unit(text: str) -> float:
    if re.fullmatch(r"[0-9]+", text):
        raise ValueError(f"{text} is {text} bytes; use a unit, {text}GB")
    return pbs_gb(text)


def read_line(found: Directives, number: int, text: str) -> None:
    """Add the options of one directive, `text` being what follows #PBS."""
    if text and not text[0].isspace():
        found.say(number, f"#PBS{text.split(maxsplit=1)[0]}: a blank is missing after #PBS", source=_SEEN)
        return
    text, hash_, comment = text.partition(" #")
    if hash_:
        what = f"{comment.strip()!r} after the directive: qsub refuses it; use a line of its own"
        edit = Edit(number, "#PBS.*", f"#{comment.rstrip()}\n#PBS{text.rstrip()}")
        found.say(number, what, source=_SEEN, edits=[edit])
    words = split(found, number, text, "")
    try:
        pairs, rest = getopt.getopt(words, _LETTERS)
    except getopt.GetoptError as error:
        letter = error.opt[:1]
        if f"{letter}:" in _LETTERS:
            found.say(number, f"-{letter}: its value is missing", source=_SEEN)
        elif letter in ("", "-"):
            found.say(number, f"{text.strip()!r} is not an option of qsub", source=_SEEN)
        else:
            hint = {"t": " (Torque's arrays are -J here)", "d": " (Torque's: use cd in the script)"}.get(letter, "")
            found.say(number, f"-{letter}: qsub has no such option{hint}", source=_SEEN)
            found.options.append(Option(number, "?", "", text.strip()))
        return
    for name, value in pairs:
        _option(found, number, name[1:], value)
    if rest:
        found.say(number, f"{' '.join(rest)!r} belongs to no option: a blank too many, or a - too few", source=_SEEN)


def _option(found: Directives, number: int, name: str, value: str) -> None:
    if name != "l":
        found.options.append(Option(number, name, value, f"-{name}"))
        return
    for item in value.split(","):
        key, equals, text = item.partition("=")
        if not re.fullmatch(r"[A-Za-z][\w-]*", key) or (equals and not text):
            what = "a comma too many" if not item.strip() else f"{item!r} is not NAME=VALUE"
            found.say(number, f"-l {value}: {what}", source=_SEEN)
        else:
            found.options.append(Option(number, f"l.{key}", text, f"-l {key}"))


def ask(profile: Profile, directives: Directives, typed: Mapping[str, Any]) -> Asked:
    """Return what directives ask for; options `typed` on the command line win."""
    asked = start(profile, directives, typed)
    _words(asked, directives, typed)
    option = directives.first("l.walltime")
    seconds = number(directives, option, pbs_seconds)
    asked.time(option, seconds, bool(option and option.value.count(":") < 2 and (seconds or 3600) < 3600))
    if chunks := directives.first("l.select") or directives.first("l.nodes"):
        _chunks(asked, directives, chunks)
    else:
        _totals(asked, directives)
    for option in directives.options:
        if option.name not in _TAKEN:
            asked.carry(option, option.directive if option.name.startswith("l.") else quoted(option, " "))
        elif option.name in ("l.select", "l.nodes"):
            asked.carry(option, option.directive)
    return asked


def _words(asked: Asked, directives: Directives, typed: Mapping[str, Any]) -> None:
    site = asked.profile.site
    for letter, key in (("N", "job_name"), ("P", "account"), ("q", "partition")):
        if option := directives.last(letter):
            asked.set(key, option.value, option)
    asked.values |= typed
    name = str(asked.values.get("partition") or (site.default_partition if site.any_partition else ""))
    asked.partition = (site.find_partition(name.removesuffix("-exec")) or (name, Partition()))[1]
    if not name and not site.any_partition and directives.lines:
        asked.open_queue = True
        text = f"no queue requested, so {asked.profile.name} chooses one; use -q QUEUE"
        directives.say(directives.lines[-1], text, "partition", warns=True)
    asked.folder = directives.first("l.wd") is not None
    if storage := directives.first("l.storage"):
        asked.set("storage", [part for part in storage.value.split("+") if part], storage)
    for option in directives.all("v"):
        asked.variables(option, _items(option.value), "-v ")
    for option in directives.all("V"):
        text = "-V carries the login shell's whole environment, modules and all, into the job; use -v NAME=VALUE"
        directives.say(option.line, text, warns=True)
    for option in directives.all("I", "X"):
        text = f"-{option.name} is for interactive jobs, `qsub -I` on the command line; leave it out"
        directives.say(option.line, text, warns=True, edits=[Edit(option.line, rf"\s*{option.written}\b", "")])


def _items(text: str) -> list[str]:
    """Split the list of -v; quotes and backslashes protect commas."""
    items = re.findall(r"(?:[^,'\"\\]|\\.|'[^']*'|\"[^\"]*\")+", text)
    return [re.sub(r"\\(.)|['\"]", r"\1", item) for item in items]


def _memory(asked: Asked, directives: Directives) -> None:
    """Divide mem and jobfs, totals of the job, by its nodes."""
    for name, key in (("l.mem", "mem_gb"), ("l.jobfs", "jobfs_gb")):
        if option := directives.first(name):
            asked.lines[key] = option.line
            if size := number(directives, option, _with_unit):
                asked.set(key, whole_gb(size / asked.nodes), option)


def _totals(asked: Asked, directives: Directives) -> None:
    cpus_option, gpus_option = directives.first("l.ncpus"), directives.first("l.ngpus")
    cpus = number(directives, cpus_option, count) or 1
    gpus = number(directives, gpus_option, lambda text: count(text, 0)) or 0
    cores = asked.partition.cores_per_node
    asked.nodes = max(math.ceil(cpus / cores), 1) if cores else 1
    asked.gpus, asked.cpus, asked.total = gpus // asked.nodes, math.ceil(cpus / asked.nodes), cpus
    if size := cpus_option or gpus_option:
        asked.size_line = size.line
        own = {"nodes": cpus_option, "cpus_per_task": cpus_option, "gpus_per_node": gpus_option}
        asked.lines |= {key: (option or size).line for key, option in own.items()}
    _memory(asked, directives)


def _chunks(asked: Asked, directives: Directives, option: Option) -> None:
    """Read `select=2:ncpus=48:ngpus=4+1:ncpus=1` or Torque's `nodes=2:ppn=48`."""
    known = [chunk for chunk in map(_chunk, option.value.split("+")) if chunk]
    if len(known) < option.value.count("+") + 1 or "$" in option.value:
        directives.say(option.line, f"{option.directive}: expected NUMBER:NAME=VALUE:..., like 2:ncpus=48:mem=190gb")
        return
    if len(known) > 1:
        asked.left.append((option.line, option.directive, "chunks of several kinds"))
    total, pairs = sum(chunk[0] for chunk in known), known[0][1]
    cpus, gpus = _whole(pairs, "ncpus", "ppn") or 1, _whole(pairs, "ngpus", "gpus") or 0
    cores = asked.partition.cores_per_node
    asked.nodes = max(math.ceil(total * cpus / cores), 1) if cores else total
    asked.cpus, asked.gpus = math.ceil(total * cpus / asked.nodes), total * gpus // asked.nodes
    asked.starts = max(total * (_whole(pairs, "mpiprocs", "ppn") or 1) // asked.nodes, 1)
    asked.size_line, asked.total = option.line, total * cpus
    asked.lines |= dict.fromkeys(("nodes", "cpus_per_task", "gpus_per_node"), option.line)
    chunk_mem = Option(option.line, "mem", pairs["mem"], "mem") if "mem" in pairs else None
    if mem := number(directives, chunk_mem, pbs_gb):
        asked.set("mem_gb", whole_gb(mem * total / asked.nodes), option)
    else:
        _memory(asked, directives)
    for other in directives.all("l.ncpus", "l.ngpus"):
        directives.say(other.line, f"{other.directive} beside {option.directive}: PBS takes chunks or totals, not both")
    if option.name == "l.nodes" and not any(
        one.fits(option.directive) for one in asked.profile.site.refused_directives
    ):
        text = f"{option.directive} is Torque's; use -l select={total}:ncpus={cpus}"
        directives.say(option.line, text, warns=True)


def _chunk(text: str) -> tuple[int, dict[str, str]] | None:
    head, _, rest = text.partition(":")
    if not re.fullmatch(r"[0-9]{1,6}", head):
        head, rest = "1", text
    pairs = dict(item.partition("=")[::2] for item in rest.split(":") if item)
    sizes = (pairs.get(name, "1") for name in ("ncpus", "ngpus", "ppn", "gpus", "mpiprocs"))
    if not 0 < int(head) < 10**6 or not all(re.fullmatch(r"[1-9]\d{0,5}|0", size) for size in sizes):
        return None
    return int(head), pairs


def _whole(pairs: dict[str, str], *names: str) -> int:
    return next((int(pairs[name]) for name in names if name in pairs), 0)


def planned(plan: Plan) -> dict[str, tuple[str, str | None, str]]:
    """Return by its name each option that asks for a plan: the request's key, its value, the directive."""
    nodes, site = plan.nodes, plan.site
    mem, jobfs = plan.mem_gb_per_node, plan.jobfs_gb_per_node if site.ask_jobfs else None
    rows: dict[str, tuple[str, str | None]] = {
        "l.ncpus": ("cpus_per_task", str(nodes * plan.cpus_per_node)),
        "l.ngpus": ("gpus_per_node", str(nodes * plan.gpus_per_node)),
        "l.mem": ("mem_gb", f"{nodes * mem}GB" if mem else None),
        "l.select": ("nodes", None),
        "l.nodes": ("nodes", None),
        "l.walltime": ("walltime", plan.walltime),
        "P": ("account", plan.account),
        "q": ("partition", plan.partition_name),
        "N": ("job_name", plan.job_name),
    }
    if site.ask_jobfs:
        rows["l.jobfs"] = ("jobfs_gb", f"{nodes * jobfs}GB" if jobfs else None)
    if site.storage_roots:
        rows["l.storage"] = ("storage", "+".join(plan.request.storage if plan.script else plan.storage) or None)
    texts = {name: f"-l {name[2:]}=" if name.startswith("l.") else f"-{name} " for name in rows}
    return {name: (key, value, f"{texts[name]}{value}") for name, (key, value) in rows.items()}


def same(option: Option) -> str:
    """Return an option's value as `planned` writes it."""
    try:
        if option.name == "l.walltime":
            return clock(pbs_seconds(option.value))
        if option.name in ("l.mem", "l.jobfs"):
            return f"{whole_gb(pbs_gb(option.value))}GB"
    except ValueError:
        pass
    return option.value
