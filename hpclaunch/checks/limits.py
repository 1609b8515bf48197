"""Names and times: the partition, the QoS, the walltime, attempts past it, and the workload."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpclaunch import walltime as times
from hpclaunch.checks.finding import Found, partition_key
from hpclaunch.errors import did_you_mean
from hpclaunch.paths import WORKLOADS
from hpclaunch.site import Partition, Qos

if TYPE_CHECKING:
    from hpclaunch.plan import Plan
    from hpclaunch.request import Request
    from hpclaunch.site import Profile


def known_partition(profile: Profile, request: Request) -> Iterator[Found]:
    """Refuse a partition that the site does not have."""
    site, wanted = profile.site, request.partition
    if wanted and not site.any_partition and site.find_partition(wanted) is None:
        yield Found(f"site {profile.name} has no {wanted!r}{did_you_mean(wanted, site.partitions)}", ("partitions",))


def known_qos(profile: Profile, request: Request) -> Iterator[Found]:
    """Refuse a QoS that the partition does not have."""
    name = request.partition or profile.site.default_partition
    found = profile.site.find_partition(name) or (name, Partition())
    names = [qos.name for qos in found[1].qos]
    if request.qos and request.qos not in names and profile.site.find_partition(name):
        yield Found(
            f"partition {found[0]} has no {request.qos!r}{did_you_mean(request.qos, names)}",
            ("partitions", found[0], "qos"),
        )


def known_workload(_profile: Profile, request: Request) -> Iterator[Found]:
    """Refuse a workload that does not come along, and one beside a COMMAND."""
    name = request.workload
    if name is not None and name not in WORKLOADS:
        yield Found(f"there is no {name!r}{did_you_mean(name, WORKLOADS)}; `hpclaunch workloads` lists them")
    elif name is not None and request.command:
        from hpclaunch.request import quote

        yield Found(
            f"give a COMMAND or --workload {name}, not both; "
            f"to give it arguments, make it the COMMAND: -- python {quote(str(WORKLOADS[name]))} ..."
        )


def readable_walltime(_profile: Profile, request: Request) -> Iterator[Found]:
    """Refuse a time that is none, or that could mean two."""
    for option, text in (("", request.walltime), ("--warn-before ", request.warn_before)):
        if text is not None:
            try:
                times.parse(text)
            except ValueError as error:
                yield Found(f"{option}{error}")


def walltime(plan: Plan) -> Iterator[Found]:
    """Refuse a walltime longer than the partition allows for the job's size."""
    cores = plan.nodes * plan.cpus_per_node
    tiers = plan.partition.walltime
    if not tiers:
        return
    number = next(
        (i for i, tier in enumerate(tiers) if tier.max_cores is None or cores <= tier.max_cores), len(tiers) - 1
    )
    tier = tiers[number]
    if plan.seconds <= times.clock_seconds(tier.max_walltime):
        return
    longer = [
        f"--walltime {plan.walltime} with at most {tier.max_cores} cores"
        for tier in tiers
        if tier.max_cores and plan.seconds <= times.clock_seconds(tier.max_walltime)
    ]
    yield Found(
        f"{plan.walltime} asked, {plan.partition_name} allows {tier.max_walltime} for {cores} cores; "
        f"use --walltime {tier.max_walltime}{' or ' + longer[-1] if longer else ''}",
        partition_key(plan, "walltime", number, "max_walltime"),
    )


def qos(plan: Plan) -> Iterator[Found]:
    """Refuse a job longer or larger than its QoS allows: Slurm would take it and never start it."""
    job = plan.seconds, plan.nodes * plan.gpus_per_node, plan.nodes * plan.cpus_per_node
    for i, one in enumerate(plan.partition.qos):
        if (plan.qos is None and one.automatic) or one == plan.qos:
            instead = [other.name for other in plan.partition.qos if not list(qos_limits(other, *job))]
            for key, message in qos_limits(one, *job):
                yield Found(
                    f"{message}; use --qos {instead[0]}" if instead else message, partition_key(plan, "qos", i, key)
                )


def qos_limits(qos: Qos, seconds: int, gpus: int, cores: int) -> Iterator[tuple[str, str]]:
    """Yield (key, message) for each limit of `qos` that a job of this length and size exceeds."""
    if seconds > times.clock_seconds(qos.max_walltime):
        yield "max_walltime", f"{times.clock(seconds)} asked, {qos.name} allows {qos.max_walltime}"
    if qos.max_gpus and gpus > qos.max_gpus:
        yield "max_gpus", f"{gpus} GPUs asked, {qos.name} allows {qos.max_gpus}"
    if qos.max_cores and cores > qos.max_cores:
        yield "max_cores", f"{cores} cores asked, {qos.name} allows {qos.max_cores}"


def attempts(plan: Plan) -> Iterator[Found]:
    """Refuse further attempts where none can be: no limit on time, no time to save, an array, a --signal of one's own."""
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
        yield Found(
            f"--warn-before {times.clock(plan.warn_seconds)}: not before the whole walltime, {plan.walltime}",
        )
