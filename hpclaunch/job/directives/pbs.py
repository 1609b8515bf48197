"""The directives of PBS: what qsub reads in them, what they ask for, and how a plan is asked for."""

from __future__ import annotations

import getopt
import math
import re
from collections.abc import Mapping
from typing import Any

from hpclaunch.job.diagnostic import Edit
from hpclaunch.job.directives.asked import Asked, quoted, start
from hpclaunch.job.directives.options import Directives, Option
from hpclaunch.job.directives.read import option_of, split, words
from hpclaunch.job.plan import Plan
from hpclaunch.profile.model import Partition
from hpclaunch.profile.search import Profile
from hpclaunch.schedulers.values import count, pbs_gb, pbs_seconds, whole_gb
from hpclaunch.schedulers.walltime import clock

_SEEN = "OpenPBS 23.06, seen"
_LETTERS = "a:A:c:C:e:fhIj:J:k:l:m:M:N:o:p:P:q:r:R:S:u:v:VW:Xz"  # of qsub(1B); a colon behind those with a value
_OTHERS = {"t": " (Torque's arrays are -J here)", "d": " (Torque's: use cd in the script)"}
_TAKEN = words("N q v V I X l.walltime l.ncpus l.ngpus l.mem l.jobfs l.wd l.place l.select l.nodes")
_MAIL = {"b": "begin", "e": "end", "be": "begin,end", "ae": "end,fail", "abe": "begin,end,fail"}
_CHUNK = words("ncpus ngpus mem mpiprocs ompthreads")

WORDS = {"walltime": "-l walltime={}", "partition": "-q {}"}
TOGETHER = True


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
    try:
        pairs, rest = getopt.getopt(split(found, number, text, ""), _LETTERS)
    except getopt.GetoptError as error:
        found.say(number, f"qsub: {error.msg}{_OTHERS.get(error.opt, '')}", source=_SEEN)
        return
    for name, value in pairs:
        if name != "-l":
            found.options.append(Option(number, name[1:], value, name))
        for item in value.split(",") if name == "-l" else ():
            key, equals, size = item.partition("=")
            if re.fullmatch(r"[A-Za-z][\w-]*", key) and bool(equals) == bool(size):
                found.options.append(Option(number, f"l.{key}", size, f"-l {key}"))
            else:
                what = "a comma too many" if not item.strip() else f"{item!r} is not NAME=VALUE"
                found.say(number, f"-l {value}: {what}", source=_SEEN)
    if rest:
        found.say(number, f"{' '.join(rest)!r} belongs to no option: a blank too many, or a - too few", source=_SEEN)


def ask(profile: Profile, directives: Directives, typed: Mapping[str, Any]) -> Asked:
    """Return what directives ask for; options `typed` on the command line win."""
    asked = start(profile, directives, typed)
    site = profile.site
    account, named = (option_of(text, "pbs").name for text in (site.account_form, site.storage_directive))
    asked.take({"N": "job_name", account: "account", "q": "partition"})
    asked.values |= typed
    _queue(asked)
    if "partition" not in typed:
        asked.settle("-q {}", "l.ngpus", "l.select", "l.nodes")
    asked.folder = directives.first("l.wd") is not None
    if storage := directives.first(named):
        asked.set("storage", [part for part in storage.value.split(site.storage_join) if part], storage)
    for option in directives.all("v"):  # quotes and backslashes protect commas
        items = re.findall(r"(?:[^,'\"\\]|\\.|'[^']*'|\"[^\"]*\")+", option.value)
        asked.variables(option, [re.sub(r"\\(.)|['\"]", r"\1", item) for item in items], "-v ")
    for option in directives.all("V", "I", "X"):
        text = f"{option.written} is for interactive jobs, `qsub -I` on the command line; leave it out"
        edits = [Edit(option.line, rf"\s*{option.written}\b", "")]
        if option.name == "V":
            text, edits = "-V carries the login shell's whole environment, modules and all, into the job; use -v ", []
            text += "NAME=VALUE"
        directives.say(option.line, text, warns=True, edits=edits)
    asked.time(directives.first("l.walltime"), pbs_seconds)
    _sizes(asked)
    mail = asked.take_mail("M", "m", lambda letters: _MAIL.get("".join(sorted(letters)), ""))
    for option in directives.options:
        if option.name not in _TAKEN.union(mail, [account, named]):
            asked.carry(option, option.directive if option.name.startswith("l.") else quoted(option, " "))
    return asked


def _queue(asked: Asked) -> None:
    site, given = asked.profile.site, asked.directives
    name = str(asked.values.get("partition") or (site.default_partition if site.any_partition else ""))
    asked.partition = (site.find_partition(name.removesuffix("-exec")) or (name, Partition()))[1]
    if not name and not site.any_partition and given.lines:
        asked.open_queue = True
        text = f"no queue requested, so {asked.profile.name} chooses one; use -q QUEUE"
        given.say(given.lines[-1], text, "partition", warns=True)


def _gb(text: str) -> float:
    if re.fullmatch(r"[0-9]+", text):
        raise ValueError(f"{text} is {text} bytes; use a unit, {text}GB")
    return pbs_gb(text)


def _sizes(asked: Asked) -> None:
    """Take `ncpus=96,ngpus=8`, or `select=2:ncpus=48:ngpus=4+1:ncpus=1`, or Torque's `nodes=2:ppn=48`."""
    given, cores = asked.directives, asked.partition.cores_per_node
    of_cpus, of_gpus = given.first("l.ncpus"), given.first("l.ngpus")
    number, pairs = 1, dict[str, str]()
    if option := given.first("l.select") or given.first("l.nodes"):
        number, pairs = _chunks(asked, option)
        for other in filter(None, (of_cpus, of_gpus)):
            text = f"{other.directive} beside {option.directive}: PBS takes chunks or totals, not both"
            given.say(other.line, text)
        if not number:
            return
        cores = cores if option.name == "l.nodes" or asked.profile.site.totals else None  # each chunk is a node
        of_cpus = of_gpus = option

    def size(*names: str) -> int:
        return number * next((int(pairs[name]) for name in names if name in pairs), 0)

    cpus = size("ncpus", "ppn") if option else given.value(of_cpus, count)
    gpus = size("ngpus", "gpus") if option else given.value(of_gpus, lambda text: count(text, 0))
    asked.total = cpus = cpus or number
    asked.nodes = max(math.ceil(cpus / cores), 1) if cores else number
    asked.cpus, asked.gpus = math.ceil(cpus / asked.nodes), (gpus or 0) // asked.nodes
    asked.starts = max(size("mpiprocs", "ppn") // asked.nodes or number // asked.nodes, 1)
    if first := of_cpus or of_gpus:
        own = {"nodes": of_cpus, "cpus_per_task": of_cpus, "gpus_per_node": of_gpus}
        asked.lines |= {key: (one or first).line for key, one in own.items()}
    # mem and jobfs are totals of the job, mem in a chunk is the chunk's.
    in_chunk = Option(option.line, "mem", pairs["mem"], "mem") if option and "mem" in pairs else None
    for name, key, chunk in (("l.mem", "mem_gb", in_chunk), ("l.jobfs", "jobfs_gb", None)):
        if of_size := chunk or given.first(name):
            asked.lines[key] = of_size.line
            if gb := given.value(of_size, pbs_gb if chunk else _gb):
                asked.set(key, whole_gb(gb * (number if chunk else 1) / asked.nodes), of_size)


def _chunks(asked: Asked, option: Option) -> tuple[int, dict[str, str]]:
    """Return the number of chunks and the words of the first, with a node's sizes if the site's chunks have none."""
    site, part, known = asked.profile.site, asked.partition, asked.directives.value(option, _read_chunks) or [(0, {})]
    number, pairs = sum(chunk[0] for chunk in known), known[0][1]
    if len(known) > 1:
        asked.mixed = f"{option.directive}: chunks of several kinds"
    if option.name == "l.nodes" or site.totals:
        asked.carry(option, option.directive)
        return number, pairs
    words = site.at(part).chunk
    if extra := {f"{name}={value}" for name, value in pairs.items() if name not in _CHUNK} - {*words}:
        asked.left.append((option.line, option.directive, f"{', '.join(sorted(extra))} in its chunks"))
    if not any(word.startswith("ncpus") for word in (*words, *pairs)):
        asked.cpus_said = False
        pairs = {"ncpus": str(part.cores_per_node or 1), "ngpus": str(part.gpus_per_node)} | pairs
    return number, pairs


def _read_chunks(text: str) -> list[tuple[int, dict[str, str]]]:
    chunks = []
    for part in text.split("+"):
        head, _, rest = part.partition(":") if part[:1].isdecimal() else ("1", "", part)
        pairs = dict(item.partition("=")[::2] for item in rest.split(":") if item)
        sizes = [head, *(pairs.get(name, "1") for name in ("ncpus", "ngpus", "ppn", "gpus", "mpiprocs"))]
        if not all(re.fullmatch(r"\d{1,6}", size) for size in sizes) or not int(head):
            raise ValueError("expected NUMBER:NAME=VALUE:..., like 2:ncpus=48:mem=190gb")
        chunks.append((int(head), pairs))
    return chunks


def planned(plan: Plan) -> dict[str, tuple[str, str | None, str]]:
    """Return by its name each option that asks for a plan: the request's key, its value, the directive."""
    rows: dict[str, tuple[str, str | None]] = {
        "l.ncpus": ("cpus_per_task", str(plan.cpus)),
        "l.ngpus": ("gpus_per_node", str(plan.gpus)),
        "l.mem": ("mem_gb", f"{plan.mem_gb}GB" if plan.mem_gb else None),
        "l.select": ("nodes or --mem_gb", None),
        "l.nodes": ("nodes", None),
        "l.walltime": ("walltime", plan.walltime),
        option_of(plan.site.account_form, "pbs").name: ("account", plan.account),
        "q": ("partition", plan.partition_name),
        "N": ("job_name", plan.job_name),
    }
    if not plan.site.totals:
        rows |= dict.fromkeys(("l.ncpus", "l.ngpus", "l.mem"), ("nodes", None)) | {"l.select": ("nodes", plan.select)}
    if plan.site.ask_jobfs:
        rows["l.jobfs"] = ("jobfs_gb", f"{plan.jobfs_gb}GB" if plan.jobfs_gb else None)
    if plan.site.storage_roots:
        names = plan.site.storage_join.join(plan.request.storage if plan.script else plan.storage)
        rows[option_of(plan.site.storage_directive, "pbs").name] = ("storage", names or None)
    rows.pop("", None)
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
