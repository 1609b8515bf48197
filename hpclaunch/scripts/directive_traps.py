"""What is wrong with the directives of a script, or missing from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from hpclaunch.job.checks.directives import TO_SHELL
from hpclaunch.job.limits import qos_limits
from hpclaunch.scripts.asked import Asked
from hpclaunch.scripts.launch import Program
from hpclaunch.scripts.remark import Directives, Option, Remark, remark


def look(
    directives: Directives, asked: Asked, program: Program, exists: Callable[[str], bool], here: bool
) -> Iterator[Remark]:
    """Yield what there is to say of the directives as a whole.

    `exists` tells whether a folder is there, `here` whether this machine is the site's.
    """
    last = directives.lines[-1] if directives.lines else 0
    yield from _missing(asked, last)
    yield from _output(directives, exists, here)
    yield from _signal(directives, program)
    if directives.scheduler == "slurm":
        yield from _default_qos(asked, last)
        yield from _ntasks(directives, asked)
        yield from _site_directives(directives, asked, last)
        yield from _few_cpus(asked, last)


def _missing(asked: Asked, last: int) -> Iterator[Remark]:
    site = asked.profile.site
    option = "-l walltime=" if site.scheduler == "pbs" else "--time="
    if "walltime" not in asked.values | asked.lines and not site.any_partition:
        yield remark("no-walltime", last, f"no walltime, and the site's own is short: write {option}HH:MM:SS")
    if site.scheduler == "pbs" and "partition" not in asked.values and not site.any_partition:
        yield remark("no-queue", last, f"no queue is named, {asked.profile.name} chooses one: write -q QUEUE")
    if "account" not in asked.values | asked.lines and not site.account and site.account_help:
        yield remark("no-account", last, f"no account: {site.account_help}")


def _default_qos(asked: Asked, last: int) -> Iterator[Remark]:
    """Compare the job with the QoS that it gets because it names none."""
    if "qos" in asked.values or not asked.seconds:
        return
    job = asked.seconds, asked.nodes * asked.gpus, asked.nodes * (asked.cpus or 1)
    for qos in asked.partition.qos:
        limits = [(key, message) for key, message in qos_limits(qos, *job) if key not in qos.unconfirmed]
        if not qos.default or not limits:
            continue
        other = next((q.name for q in asked.partition.qos if q.automatic and not list(qos_limits(q, *job))), None)
        line = asked.lines.get("walltime" if limits[0][0] == "max_walltime" else "gpus_per_node", last)
        fix = f"; write --qos={other}" if other else ""
        yield remark("default-qos", line, f"{limits[0][1]}, and the script names no other QoS{fix}", mended=bool(other))


def _ntasks(directives: Directives, asked: Asked) -> Iterator[Remark]:
    option = directives.last("ntasks")
    if option and not directives.last("ntasks-per-node") and asked.gpus and asked.nodes * asked.starts > 1:
        text = (
            f"{option.written} {option.value} alone: write --ntasks-per-node={asked.starts}, with --nodes={asked.nodes}"
        )
        yield remark("ntasks", option.line, text, mended=True)


def _site_directives(directives: Directives, asked: Asked, last: int) -> Iterator[Remark]:
    if not asked.gpus and not asked.partition.cores_per_node:
        return
    for i, line in enumerate(asked.profile.site.directives):
        found = re.match(r"--([a-z-]+)", line)
        if found and not directives.last(found[1]):
            text = f"add #SBATCH {line}, as the site's own examples have"
            yield remark("site-directive", last, text, mended=True, key=("directives", i))


def _few_cpus(asked: Asked, last: int) -> Iterator[Remark]:
    share = asked.partition.cpus_per_gpu
    if share and asked.gpus and not asked.cpus_said and asked.gpus * share > asked.starts:
        text = f"no --cpus-per-task: each task gets 1 core; write --cpus-per-task={asked.gpus * share // asked.starts}"
        yield remark("few-cpus", last, text, mended=True)


def _signal(directives: Directives, program: Program) -> Iterator[Remark]:
    option = directives.last("signal")
    traps = any(command.name == "trap" for command in program.body.commands)
    if option and re.match(TO_SHELL, option.value) and not traps:
        text = f"{option.written} {option.value}: it goes to this shell alone, which has no trap for it; leave B: out"
        yield remark("signal", option.line, text)


def _output(directives: Directives, exists: Callable[[str], bool], here: bool) -> Iterator[Remark]:
    seen: set[str] = set()
    for option in directives.all("output", "error", "o", "e"):
        folder = _folder(option)
        if folder in (".", "/", "") or folder in seen:
            continue
        seen.add(folder)
        if directives.scheduler == "slurm" and re.search(r"%\d*[A-Za-z]", folder):
            text = f"{option.written} {option.value}: the folder {folder} cannot exist before the job does"
            yield remark("log-folder", option.line, text)
        elif "$" not in folder and not exists(folder):
            text = f"{option.written} {option.value}: there is no folder {folder}; make it before you submit"
            known = here or not folder.startswith("/")  # another machine's folders are not seen from here
            text += "" if known else " (none on this machine, at least)"
            yield remark("log-folder", option.line, text, refuses=known)


def _folder(option: Option) -> str:
    value = option.value
    if option.name in ("o", "e"):
        value = value.rpartition(":")[2] if re.match(r"[\w.-]+:/", value) else value
        return value.rstrip("/") if value.endswith("/") else str(PurePosixPath(value).parent)
    return str(PurePosixPath(value).parent)
