"""Directives that a person gives: what the scheduler or the site refuses, ignores, or takes otherwise than meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING

from hpclaunch.job.checks.finding import Found, partition_key
from hpclaunch.walltime import clock

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan
    from hpclaunch.scripts.remark import Directives

# What --signal says where it is for the job's shell alone: B:USR1@60, and not BUS@60.
TO_SHELL = r"(?:^|[=\s])[\"']?(?:R?B|BR):"


def typed(plan: Plan) -> Directives | None:
    """Return what the scheduler reads in the directives typed by hand, option by option; None if there are none."""
    lines = plan.directives[len(plan.site.directives) :]
    if not lines:
        return None
    from hpclaunch.scripts.directives import PREFIX, read  # only few jobs have any

    if plan.site.scheduler not in PREFIX:
        return None
    return read([f"{PREFIX[plan.site.scheduler]} {line}" for line in lines], plan.site.scheduler, set())


def directives(plan: Plan) -> Iterator[Found]:
    """Refuse what a scheduler cannot read, or reads otherwise than meant; warn of options that nobody knows."""
    pbs, lines = plan.site.scheduler == "pbs", plan.directives[len(plan.site.directives) :]
    read = typed(plan)
    for remark in read.remarks if read else ():
        yield Found(f"{lines[remark.line - 1]!r}: {remark.message}", warns=not remark.refuses)
    for line in plan.directives if plan.site.scheduler != "local" else ():
        if pbs and re.match(r"-V\b", line):
            yield Found(f"{line!r} carries the login node's whole environment into the job; use --env NAME=VALUE")
        if re.search(r"\$\{?\w", line):
            known = "%x, %j" if not pbs else "a fixed name"
            yield Found(f"{line!r}: no shell reads a directive, so $NAME stays as it is; use {known}")
        if pbs and (variables := re.match(r"-v\s*(.+)", line)):
            broken = [part for part in variables[1].split(",") if not re.fullmatch(r"\s*[A-Za-z_]\w*(=.*)?", part)]
            if broken and not re.search(r"['\"]", variables[1]):
                yield Found(f"{line!r}: PBS splits it at each comma, {broken[0]!r} is no NAME; use --env NAME=VALUE")


def refused_directives(plan: Plan) -> Iterator[Found]:
    """Refuse directives that the profile lists as not taken."""
    for line in plan.directives:
        for i, refused in enumerate(plan.site.refused_directives):
            if refused.fits(line):
                yield Found(f"{line!r}: {refused.why}", ("refused_directives", i, "pattern"), refused.warns)


def repeated(plan: Plan) -> Iterator[Found]:
    """Refuse a directive typed by hand for what options set; Slurm would take the last, PBS of -l the first."""
    if (read := typed(plan)) is None:
        return
    from hpclaunch.scripts.asked_slurm import GPU
    from hpclaunch.scripts.values import pbs_seconds, slurm_seconds

    planned = _planned(plan)
    for option in read.options:
        known = any(refused.fits(option.directive) for refused in plan.site.refused_directives)
        if option.name not in planned or known:
            continue
        instead, value = planned[option.name]
        said, partition = option.value, plan.site.find_partition(option.value)
        if option.name == "gres":
            gpus = next(filter(None, map(GPU.fullmatch, said.split(","))), None)
            said = gpus["count"] or "1" if gpus else "0"
            instead = instead if gpus else f"--directive=--gres=gpu:{value},{option.value}"
        elif option.name in ("time", "l.walltime"):
            with suppress(ValueError):
                said = clock(slurm_seconds(said) if option.name == "time" else pbs_seconds(said))
        elif partition and instead == "--partition":
            said = partition[0]
        if said == value or (option.name == "constraint" and not partition):  # a feature is no partition
            continue
        name = option.name.removeprefix("l.")
        yield Found(
            f"{option.directive!r}: {name} comes from the plan, which a directive may contradict; use {instead}"
        )


def _planned(plan: Plan) -> dict[str, tuple[str, str | None]]:
    """Return the options that the script sets: for each hpclaunch's own, and the value that changes nothing, if any."""
    qos = plan.qos.name if plan.qos else None
    if plan.site.scheduler == "pbs":
        sizes = "--nodes, --gpus-per-node or --cpus-per-task"
        own: dict[str, tuple[str, str | None]] = {"l.jobfs": ("--jobfs-gb", None)} if plan.site.ask_jobfs else {}
        own |= {"l.storage": ("--storage", None)} if plan.site.storage_roots else {}
        own |= {f"l.{name}": (sizes, None) for name in ("ncpus", "ngpus", "select", "nodes")}
        own |= {
            "l.walltime": ("--walltime", plan.walltime),
            "l.mem": ("--mem-gb", None),
            "P": ("--account", plan.account),
        }
        return own | {"q": ("--partition", plan.partition_name), "N": ("--job-name", plan.job_name)}
    starts, gpus = plan.starts_per_node, str(plan.gpus_per_node)
    return {
        "nodes": ("--nodes", str(plan.nodes)),
        "ntasks": ("--nodes or --tasks-per-node", str(plan.nodes * starts)),
        "ntasks-per-node": ("--tasks-per-node", str(starts)),
        "cpus-per-task": ("--cpus-per-task", str(plan.cpus_per_start)),
        "gres": ("--gpus-per-node", gpus),
        **dict.fromkeys(("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"), ("--gpus-per-node", None)),
        **({"mem": ("--mem-gb", f"{plan.mem_gb_per_node}G")} if plan.mem_gb_per_node else {}),
        "time": ("--walltime", plan.walltime),
        "account": ("--account", plan.account),
        "qos": ("--qos", qos),
        **dict.fromkeys(("partition", "constraint"), ("--partition", plan.partition_name)),
        "job-name": ("--job-name", plan.job_name),
    }


def log_folder(plan: Plan) -> Iterator[Found]:
    """Refuse an output in a folder named after the job, which cannot be there before it; warn of any other folder."""
    for line in plan.directives:
        if plan.site.scheduler == "slurm":
            found = re.match(r"(?:--(?:output|error)[\s=]|-[oe])\s*(.+)", line)
            if moved := re.match(r"(?:--chdir[\s=]|-D)\s*(.+)", line):
                said = f"{line!r}: hpclaunch-runs is made there, and `hpclaunch logs` looks for it here"
                yield Found(f"{said}; use --setup 'cd {moved[1]}'", warns=True)
        else:
            found = re.match(r"-[oe]\s*(?:[\w.-]+:)?(.+)", line) if plan.site.scheduler == "pbs" else None
        folder = PurePath(f"{found[1]}x").parent if found else PurePath()  # logs/ is a folder too
        if "%" in str(folder) and plan.site.scheduler == "slurm":
            yield Found(
                f"{line!r}: no folder of the job's own number can be there before the job; put %j into the file's name"
            )
        elif str(folder) not in (".", "/", "/dev"):
            yield Found(f"{line!r}: the folder must be there before the job starts; run mkdir -p {folder}", warns=True)


def arrays(plan: Plan) -> Iterator[Found]:
    """Refuse an array where a site takes none, of more jobs than it or the QoS takes, or of PBS jobs without -r y."""
    pattern = r"-J\s*([\d,:%-]+)" if plan.site.scheduler == "pbs" else r"(?:--array[\s=]|-a\s*)([\d,:%-]+)"
    for line in plan.directives if plan.site.scheduler != "local" else ():
        if not (found := re.match(pattern, line)):
            continue
        count = _array_size(found[1])
        if not plan.site.arrays and "arrays" not in plan.site.unconfirmed:
            yield Found(f"{line!r}: {plan.name} takes no arrays; submit each job by itself", ("arrays",))
            continue
        if not plan.site.arrays:  # and if it does take them, the rest counts
            yield Found(f"{line!r}: {plan.name} may take no arrays; submit each job by itself to be sure", ("arrays",))
        if plan.site.max_array and count > plan.site.max_array:
            yield Found(
                f"{line!r}: {count} jobs, {plan.name} takes {plan.site.max_array} in an array; split it",
                ("max_array",),
            )
        if plan.qos and plan.qos.max_jobs and count > plan.qos.max_jobs and plan.qos in plan.partition.qos:
            yield Found(
                f"{line!r}: {count} jobs, {plan.qos.name} allows a person {plan.qos.max_jobs}, waiting ones included; "
                "% does not help; split it",
                partition_key(plan, "qos", plan.partition.qos.index(plan.qos), "max_jobs"),
            )
        rerunnable = (
            plan.site.rerunnable
            or plan.max_attempts > 1
            or any(re.search(r"(?<!\S)-r\s*y\b", other) for other in plan.directives)
        )
        if plan.site.scheduler == "pbs" and not rerunnable:
            yield Found(f"{line!r}: PBS makes arrays of rerunnable jobs alone; use --directive '-r y'", ("rerunnable",))


def _array_size(text: str) -> int:
    """Count the jobs of 0-15:4%2 or 1,3,5-7."""
    count = 0
    for part in text.partition("%")[0].split(","):
        if numbers := re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", part):
            first, last, step = (int(n) if n else None for n in numbers.groups())
            count += ((last if last is not None else first or 0) - (first or 0)) // (step or 1) + 1
    return count


def signal(plan: Plan) -> Iterator[Found]:
    """Warn of a --signal of one's own that no rank will hear: under torchrun, or to the job's shell alone."""
    for line in plan.directives:
        if not line.startswith("--signal"):
            continue
        if plan.launcher == "torchrun":
            yield Found(
                "--signal with torchrun: it ends of a signal that it does not know; --max-attempts tells the ranks",
                warns=True,
            )
        elif re.search(TO_SHELL, line):
            yield Found(
                f"{line!r}: B: signals the job's shell alone, no rank hears it; leave B: out, or use --max-attempts",
                warns=True,
            )


def attempts(plan: Plan) -> Iterator[Found]:
    """Refuse further attempts where none can be: no time limit, no time to save, an array; warn if nothing saves."""
    if plan.max_attempts == 1:
        return
    if plan.site.scheduler == "local":
        yield Found(f"{plan.max_attempts} asked, but nothing limits the time on this machine; leave them out")
    if any("--signal" in line for line in plan.directives):
        yield Found("--signal with --max-attempts: the job script keeps the time and requeues; leave one of them out")
    if plan.site.scheduler == "pbs" and any(re.match("-J", line) for line in plan.directives):
        yield Found(
            "-J with --max-attempts: each job of the array would submit the whole array again; leave one of them out"
        )
    if plan.warn_seconds >= plan.seconds:
        yield Found(f"--warn-before {clock(plan.warn_seconds)}: not before the whole walltime, {plan.walltime}")
    if not plan.request.machine.program_saves:
        yield Found(
            f"{plan.max_attempts} asked, nothing in the command shows that it saves at SIGUSR1 and leaves with exit "
            "code 75: each attempt would begin at step 0; see docs/workload.md, or `hpclaunch workload copy mnist`",
            warns=True,
        )
