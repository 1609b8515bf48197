"""Directives: what the scheduler or the site refuses, ignores, or reads otherwise than meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from msgspec import structs

from hpclaunch.job.checks.check import partition_key
from hpclaunch.job.diagnostic import Edit, Found
from hpclaunch.walltime import clock

if TYPE_CHECKING:
    from hpclaunch.job.directives.options import Directives, Option, Script
    from hpclaunch.job.plan import Plan

# What --signal says where it is for the job's shell only: B:USR1@60, and not BUS@60.
TO_SHELL = r"(?:^|[=\s])[\"']?(?:R?B|BR):"


def _given(plan: Plan) -> Directives | None:
    """Return what the scheduler reads in a script, or in the lines of --directive; None if there are none."""
    lines = plan.directives[len(plan.site.directives) :]
    if plan.script or not lines:
        return plan.script.directives if plan.script else None
    from hpclaunch.job.directives.read import PREFIX, dialect, read
    from hpclaunch.profile.search import Profile  # only few jobs have any

    scheduler = plan.site.scheduler
    if scheduler not in PREFIX:
        return None
    found = read([f"{PREFIX[scheduler]} {line}" for line in lines], scheduler, set())
    dialect(scheduler).ask(Profile(plan.name, [], plan.site), found, {})
    return found


def directives(plan: Plan) -> Iterator[Found]:
    """Refuse what a scheduler cannot read, or reads otherwise than meant; warn of unknown options."""
    yield from found_in_directives(plan, "directives")


def found_in_directives(plan: Plan, name: str) -> Iterator[Found]:
    """Yield what a check finds in directives as they are read."""
    given = _given(plan)
    yield from (found for check, found in given.found if check == name) if given else ()


def refused_directives(plan: Plan) -> Iterator[Found]:
    """Refuse directives that the profile lists as not taken."""
    for line in plan.directives:
        for i, refused in enumerate(plan.site.refused_directives):
            if refused.fits(line):
                place = ("refused_directives", i, "pattern")
                if plan.script:
                    yield _instead(plan, plan.script, line, Found(refused.why, place, refused.warns, at=line))
                else:
                    yield Found(f"{line}: {refused.why}", place, refused.warns)


def _instead(plan: Plan, script: Script, line: str, found: Found) -> Found:
    """Return what is wrong with a script's directive, and how to do without: by totals, or not at all."""
    from hpclaunch.job.directives.written import changed

    option = next(one for one in script.directives.options if one.directive == line or one.line == script.lines[line])
    text, edit = f"{line}: {found.message}", Edit(option.line, rf"\s*{option.pattern[7:]}", "")
    if option.name in ("l.select", "l.nodes"):
        texts = [text for _, text in changed(plan, {"nodes", "mem_gb"} if plan.request.mem_gb else {"nodes"})]
        text = f"{line}: {found.message.partition('; use')[0]}; use {' '.join(texts)}"
        resources = ",".join(one.removeprefix("-l ") for one in texts)
        edit = Edit(option.line, rf"\b{option.name[2:]}={re.escape(option.value)}(?=[,\s]|$)", resources)
    return structs.replace(found, message=text, edits=[edit])


def repeated(plan: Plan) -> Iterator[Found]:
    """Refuse a --directive for what options set, and warn of a script's option that is given twice."""
    given = _given(plan)
    if given is None:
        return
    if plan.script:
        yield from _twice(given)
        return
    from hpclaunch.job.directives.read import dialect

    own = dialect(plan.site.scheduler)
    planned = own.planned(plan)
    for option in given.options:
        known = any(refused.fits(option.directive) for refused in plan.site.refused_directives)
        if option.name not in planned or known:
            continue
        key, value, _ = planned[option.name]
        said = own.same(option)
        if option.name in ("partition", "constraint", "q"):
            found = plan.site.find_partition(said)
            if option.name == "constraint" and not found:  # a feature is no partition
                continue
            said, key = found[0] if found else said, "partition"
        if said != value:
            key = key or ("gpus_per_node" if option.name.startswith("gpus") else "nodes or --tasks_per_node")
            use = f"--{key.replace('_', '-')}"
            if option.name == "gres" and "gpu" not in option.value:
                use = f"--directive=--gres={value},{option.value}"
            name = option.name.removeprefix("l.")
            yield Found(f"{option.directive}: {name} comes from the plan, which a directive may contradict; use {use}")


def _twice(given: Directives) -> Iterator[Found]:
    first: dict[str, Option] = {}
    for option in given.options:
        before = first.setdefault(option.name, option)
        if before.value == option.value or option.name in ("?", "v", "W", "m", "l.other"):
            continue
        last = not option.name.startswith("l.")  # of its resources PBS takes the first
        counts = f"{option.value} counts" if last else f"{before.value} of line {before.line} counts"
        yield Found(f"{option.directive} repeats line {before.line}; {counts}", warns=True, at=option.line)
        if last:
            first[option.name] = option


def log_folder(plan: Plan) -> Iterator[Found]:
    """Refuse an output in a folder that is not there, or cannot be there before the job; warn of --chdir."""
    given, seen = _given(plan), set()
    for option in given.all("output", "error", "o", "e") if given else ():
        folder = folder_of(option.value)
        if option.name in ("output", "error") and re.search(r"%\d*[A-Za-z]", folder):
            text = f"{option.directive}: the folder cannot be there before the job; use %j in the file's name"
            yield Found(text, at=option.line)
        elif folder in plan.request.machine.missing_folders and folder not in seen:
            sure = plan.request.machine.missing_folders[folder]
            text = f"{option.directive}: there is no folder {folder}{'' if sure else ' on this machine'}"
            yield Found(f"{text}; use mkdir -p {folder} before you submit", warns=not sure, at=option.line)
        seen.add(folder)
    for option in given.all("chdir") if given and not plan.script else ():
        text = f"{option.directive}: hpclaunch-runs is made there, and `hpclaunch logs` looks for it here"
        yield Found(f"{text}; use --setup 'cd {option.value}'", warns=True)


def folder_of(value: str) -> str:
    """Return the folder of an output that is given as FILE, FOLDER/, or HOST:FILE; "." for the current one."""
    path = re.sub(r"^[\w.-]+:(?=/)", "", value)
    return path.rstrip("/") or "/" if path.endswith("/") else str(PurePosixPath(path).parent)


def output_folders(given: Directives) -> set[str]:
    """Return the folders that directives name for the job's output, which somebody who sees the disk may look for."""
    folders = {folder_of(option.value) for option in given.all("output", "error", "o", "e")}
    return {folder for folder in folders if folder not in (".", "/", "") and not re.search(r"[%$]", folder)}


def arrays(plan: Plan) -> Iterator[Found]:
    """Refuse an array where a site takes none, of more jobs than it or the QoS takes, or of PBS jobs without -r y."""
    given, site, qos = _given(plan), plan.site, plan.qos
    for option in given.all("array", "J") if given else ():
        line, count = option.directive, _array_size(option.value)
        if not site.arrays:  # and if it may take them, the rest counts
            sure = "arrays" not in site.unconfirmed
            text = f"{line}: {plan.name} {'takes' if sure else 'may take'} no arrays; submit each job by itself"
            yield Found(text, ("arrays",), at=option.line)
            if sure:
                continue
        if site.max_array and count > site.max_array:
            text = f"{line}: {count} jobs exceed {plan.name}'s limit of {site.max_array} in an array; split it"
            yield Found(text, ("max_array",), at=option.line)
        if qos and qos.max_jobs and count > qos.max_jobs and qos in plan.partition.qos:
            yield Found(
                f"{line}: {count} jobs exceed {qos.name}'s limit of {qos.max_jobs} a user, waiting ones included, "
                "whatever stands after %; split it",
                partition_key(plan, "qos", plan.partition.qos.index(qos), "max_jobs"),
                at=option.line,
            )
        asks = given.last("r") if given else None
        reruns = site.rerunnable or plan.max_attempts > 1 or (asks is not None and asks.value == "y")
        if option.name == "J" and not reruns:
            use = "#PBS -r y" if plan.script else "--directive '-r y'"
            text = f"{line}: PBS makes arrays of rerunnable jobs only; use {use}"
            yield Found(text, ("rerunnable",), at=option.line)


def _array_size(text: str) -> int:
    """Count the jobs of 0-15:4%2 or 1,3,5-7."""
    count = 0
    for part in text.partition("%")[0].split(","):
        if numbers := re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", part):
            first, last, step = (int(n) if n else None for n in numbers.groups())
            count += ((last if last is not None else first or 0) - (first or 0)) // (step or 1) + 1
    return count


def signal(plan: Plan) -> Iterator[Found]:
    """Warn of a --signal that nothing hears: under torchrun, to the job's shell only, or to steps where none is."""
    script, use = plan.script, "" if plan.script else "; use --max-attempts, which warns the ranks"
    for line in plan.directives:
        if not line.startswith("--signal"):
            continue
        if re.search(TO_SHELL, line):
            if not (script and script.traps):
                text = f"{line}: B: signals the job's shell only, no rank hears it; leave B: out{use}"
                yield Found(text if not script else f"{text}, or trap it", warns=True, at=line)
        elif script and not script.steps:
            text = f"{line}: without B: it signals steps only, and the script starts none with srun"
            yield Found(f"{text}; use B: and a trap", warns=True, at=line)
        elif plan.launcher == "torchrun":
            yield Found(f"{line}: torchrun ends at a signal that it does not know{use}", warns=True, at=line)


def attempts(plan: Plan) -> Iterator[Found]:
    """Refuse further attempts where none can be: no time limit, no time to save, an array; warn if nothing saves."""
    if plan.max_attempts == 1:
        return
    if plan.scheduler.here:
        yield Found(f"{plan.max_attempts} attempts, but nothing limits the time on this machine; leave them out")
    if any("--signal" in line for line in plan.directives):
        yield Found("--signal with --max-attempts: the job script keeps the time and requeues; leave one of them out")
    if any(re.match("-J", line) for line in plan.directives):
        yield Found(
            "-J with --max-attempts: each job of the array would submit the whole array again; leave one of them out"
        )
    if plan.warn_seconds >= plan.seconds:
        yield Found(f"--warn-before {clock(plan.warn_seconds)} is not less than the walltime, {plan.walltime}")
    if not plan.request.machine.program_saves:
        yield Found(
            f"{plan.max_attempts} attempts, but nothing in the command shows that it saves at SIGUSR1 and exits with "
            "code 75: each attempt would begin at step 0; see docs/workload.md, or `hpclaunch workload copy mnist`",
            warns=True,
        )
