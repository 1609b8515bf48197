"""Directives: what the scheduler or the site refuses, ignores, or reads otherwise than meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from msgspec import structs

from hpclaunch.job.checks.check import partition_key
from hpclaunch.job.checks.suggestions import changes
from hpclaunch.job.diagnostic import Edit, Found
from hpclaunch.job.directives.options import Directives, Option, Script
from hpclaunch.job.directives.read import dialect, read_options
from hpclaunch.job.plan import Plan
from hpclaunch.profile.search import Profile
from hpclaunch.profile.yamlfile import Key
from hpclaunch.schedulers.values import array_size
from hpclaunch.schedulers.walltime import clock


def _given(plan: Plan) -> Directives:
    """Return what the scheduler reads in a script, or in the lines of --directive."""
    if plan.script:
        return plan.script.directives
    given = read_options(plan.directives[len(plan.site.directives) :], plan.site.scheduler)
    if given.options or given.found:
        dialect(plan.site.scheduler).ask(Profile(plan.name, [], plan.site), given, {})
    return given


def directives(plan: Plan) -> Iterator[Found]:
    """Refuse what a scheduler cannot read, or reads otherwise than meant; warn of unknown options and of jobs' ids."""
    yield from found_in_directives(plan, "directives")
    if not plan.script and (mixed := _given(plan).complete):
        yield Found(f"{mixed}: all nodes of a request are alike; submit a script of your own with --script")
    for option in _given(plan).all("W", "dependency") if plan.script else ():
        if found := re.search(r"\bafter\w*:(\d[\w.-]*)", option.value):
            text = f"{option.directive}: {found[1]} is an old job the next time; give it on the command line"
            yield Found(text, warns=True, at=option.line)


def found_in_directives(plan: Plan, name: str) -> Iterator[Found]:
    """Yield what a check finds in directives as they are read."""
    yield from (found for check, found in _given(plan).found if check == name)


def refused_directives(plan: Plan) -> Iterator[Found]:
    """Refuse directives that the profile lists as not taken."""
    read = {one.directive: one.line for one in plan.script.directives.options} if plan.script else {}
    for line in dict.fromkeys([*plan.directives, *read]):
        for i, refused in enumerate(plan.site.refused_directives):
            if refused.fits(line):
                at = line if line in plan.directives else read[line]
                found = Found(f"{line}: {refused.why}", ("refused_directives", i, "pattern"), refused.warns, at=at)
                yield _instead(plan, plan.script, line, found) if plan.script and line in plan.script.lines else found


def _instead(plan: Plan, script: Script, line: str, found: Found) -> Found:
    """Return what is wrong with a script's directive, and how to do without: by totals, or not at all."""
    option = next(one for one in script.directives.options if one.directive == line or one.line == script.lines[line])
    if option.name not in ("l.select", "l.nodes"):
        return structs.replace(found, edits=[Edit(option.line, rf"\s*{option.pattern}", "")])
    texts = [text for text, _ in changes(plan, script, {"nodes", "mem_gb"} if plan.request.mem_gb else {"nodes"})]
    resources = ",".join(text.removeprefix("-l ") for text in texts)
    message = f"{found.message.partition('; use')[0]}; use {' '.join(texts)}"
    return structs.replace(found, message=message, edits=[Edit(option.line, option.pattern, resources)])


def repeated(plan: Plan) -> Iterator[Found]:
    """Refuse a --directive for what options set, and warn of a script's option that is given twice."""
    if plan.script:
        yield from _twice(plan.script.directives)
        return
    given, site = _given(plan), plan.site
    if not given.options:
        return
    own = dialect(site.scheduler)
    planned = own.planned(plan)
    for option in given.options:
        key, value, _ = planned.get(option.name, ("", "", ""))
        said = own.same(option)
        partition = site.find_partition(said)
        feature = option.name == "constraint" and not partition
        alias = key == "partition" and partition and partition[0] == plan.partition_name
        known = feature or alias or any(one.fits(option.directive) for one in site.refused_directives)
        if key and said != value and not known:
            use = f"--{key.replace('_', '-')}"
            if option.name == "gres" and "gpu" not in option.value:
                use = f"--directive=--gres={value},{option.value}"
            text = f"{option.directive}: {option.name.removeprefix('l.')} comes from the plan, which a directive may "
            yield Found(f"{text}contradict; use {use}")


def _twice(given: Directives) -> Iterator[Found]:
    counts: dict[str, Option] = {}
    for option in given.options:
        before = counts.setdefault(option.name, option)
        if before.value != option.value and option.name not in ("?", "v", "W", "m", "l.other", "mail-type"):
            text = f"{before.value} of line {before.line}"  # of its resources PBS takes the first
            if not option.name.startswith("l."):
                text, counts[option.name] = option.value, option
            text = f"{option.directive} repeats line {before.line}; {text} counts"
            yield Found(text, warns=True, at=option.line)


def log_folder(plan: Plan) -> Iterator[Found]:
    """Refuse an output in a folder that is not there, or cannot be there before the job."""
    given, missing = _given(plan), dict(plan.request.machine.missing_folders)
    late = plan.scheduler.output_at_end and not any("d" in option.value for option in given.all("k"))
    for word in " ".join(line for line in plan.request.setup if late and line.startswith("mkdir ")).split():
        missing.pop(word.removeprefix("./").rstrip("/"), None)
    for option in given.all("output", "error", "o", "e"):
        folder = _folder(option.value)
        if option.name in ("output", "error") and re.search(r"%\d*[A-Za-z]", folder):
            text = f"{option.directive}: the folder cannot be there before the job; use %j in the file's name"
            yield Found(text, at=option.line)
        elif (sure := missing.pop(folder, None)) is not None:
            text = f"{option.directive}: there is no folder {folder}{'' if sure else ' on this machine'}"
            yield Found(f"{text}; use mkdir -p {folder} before you submit", warns=not sure, at=option.line)


def _folder(value: str) -> str:
    """Return the folder of an output that is given as FILE, FOLDER/, or HOST:FILE; "." for the current one."""
    path = re.sub(r"^[\w.-]+:(?=/)", "", value)
    return path.rstrip("/") or "/" if path.endswith("/") else str(PurePosixPath(path).parent)


def output_folders(given: Directives) -> set[str]:
    """Return the folders that directives name for the job's output, which somebody who sees the disk may look for."""
    folders = {_folder(option.value) for option in given.all("output", "error", "o", "e")}
    return {folder for folder in folders if folder not in (".", "/", "") and not re.search(r"[%$]", folder)}


def arrays(plan: Plan) -> Iterator[Found]:
    """Refuse an array where the site takes none, of too many jobs, in a sweep, or on PBS without -r y."""
    given, site, part, qos = _given(plan), plan.site, plan.partition, plan.qos
    sure = not site.arrays and "arrays" not in site.unconfirmed
    reruns = site.rerunnable or plan.max_attempts > 1 or any(option.value == "y" for option in given.all("r"))
    limits: list[tuple[str, int | None, str, Key]] = [(plan.name, site.max_array, "in an array", ("max_array",))]
    if qos in part.qos:
        of = "a user, waiting ones included, whatever stands after %"
        limits.append((qos.name, qos.max_jobs, of, partition_key(plan, "qos", part.qos.index(qos), "max_jobs")))
    limits.append((plan.partition_name, part.max_jobs, "a user", partition_key(plan, "max_jobs")))
    for option in given.all("array", "J"):
        count = array_size(option.value)
        rules = [
            (not site.arrays, f"{plan.name} {'takes' if sure else 'may take'} no arrays; submit each job by itself",
             ("arrays",)),
            (plan.request.jobs > 1, "--array and --sweep make the array; leave this directive out", None),
            *((most and count > most, f"{count} jobs exceed {name}'s limit of {most} {of}; split it", key)
              for name, most, of, key in limits),
            (option.name == "J" and not reruns, "PBS makes arrays of rerunnable jobs only; use "
             + ("#PBS -r y" if plan.script else "--directive '-r y'"), ("rerunnable",)),
        ]  # fmt: skip
        for wrong, text, key in rules[:1] if sure else rules:
            if wrong:
                yield Found(f"{option.directive}: {text}", key, at=option.line)
    for name, most, of, key in limits[1:]:
        if most and plan.request.jobs > most:
            yield Found(f"{plan.request.jobs} jobs exceed {name}'s limit of {most} {of}; split the sweep", key)


def signal(plan: Plan) -> Iterator[Found]:
    """Warn of a --signal that nothing hears: under torchrun, to the job's shell only, or to steps where none is."""
    script, use = plan.script, "" if plan.script else "; use --max-attempts, which warns the ranks"
    for line in (one for one in plan.directives if one.startswith("--signal")):
        text = ""
        if re.search(r"[=\s][\"']?(?:R?B|BR):", line):  # B:USR1@60, and not BUS@60
            if not (script and script.traps):
                text = f"B: signals the job's shell only, no rank hears it; leave B: out{use or ', or trap it'}"
        elif script and not script.steps:
            text = "without B: it signals steps only, and the script starts none with srun; use B: and a trap"
        elif plan.launcher == "torchrun":
            text = f"torchrun ends at a signal that it does not know{use}"
        if text:
            yield Found(f"{line}: {text}", warns=True, at=line)


def attempts(plan: Plan) -> Iterator[Found]:
    """Refuse further attempts where none can be: no time limit, no time to save, an array; warn if nothing saves."""
    number, lines = plan.max_attempts, plan.directives
    rules = {
        f"{number} attempts, but nothing limits the time on this machine; leave them out": plan.scheduler.here,
        "--signal with --max-attempts: the job script keeps the time and requeues; leave one of them out":
            any("--signal" in line for line in lines),
        "-J with --max-attempts: each job of the array would submit the whole array again; leave one of them out":
            any(line.startswith("-J") for line in lines),
        f"--warn-before {clock(plan.warn_seconds)} is not less than the walltime, {plan.walltime}":
            plan.warn_seconds >= plan.seconds,
    }  # fmt: skip
    if number > 1:
        yield from (Found(text) for text, wrong in rules.items() if wrong)
        if not plan.request.machine.program_saves:
            text = f"{number} attempts, but nothing in the command shows that it saves at SIGUSR1 and exits with code "
            text += "75: each attempt would begin at step 0; see docs/continuing.md and `workload copy resume`"
            yield Found(text, warns=True)
