"""Names and times: the partition, the QoS, the walltime, and the workload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpclaunch import walltime as times
from hpclaunch.errors import did_you_mean
from hpclaunch.job.checks import sizes
from hpclaunch.job.checks.finding import Found, Suggestion, partition_key
from hpclaunch.job.limits import qos_limits, tier_of
from hpclaunch.paths import WORKLOADS
from hpclaunch.profile.model import Qos

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan
    from hpclaunch.job.request import Request
    from hpclaunch.profile.search import Profile


def known_partition(profile: Profile, request: Request) -> Iterator[Found]:
    """Refuse a partition that the site does not have."""
    site, wanted = profile.site, request.partition
    if not wanted or site.any_partition or site.find_partition(wanted) is not None:
        return
    if wanted in site.restricted:
        yield Found(_for_some(profile.name, wanted, "partitions"), ("restricted",), warns=True)
    else:
        yield Found(f"site {profile.name} has no {wanted!r}{did_you_mean(wanted, site.partitions)}", ("partitions",))


def _for_some(name: str, word: str, key: str) -> str:
    return (
        f"{word} is for special grants, and nothing of it is known here; if yours is one, describe it under `{key}` "
        f"of a profile of your own that extends {name} (hpclaunch site new)"
    )


def known_workload(_profile: Profile, request: Request) -> Iterator[Found]:
    """Refuse a workload that does not come along, and one beside a COMMAND."""
    name = request.workload
    if name is not None and name not in WORKLOADS:
        yield Found(f"there is no {name!r}{did_you_mean(name, WORKLOADS)}; `hpclaunch workloads` lists them")
    elif name is not None and request.command:
        from hpclaunch.job.request import quote

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


def hint(plan: Plan) -> Iterator[Found]:
    """Say what the profile has to say to whoever asks for a partition by name."""
    if plan.request.partition and plan.partition.hint:
        yield Found(f"{plan.partition_name} asked: {plan.partition.hint}", partition_key(plan, "hint"), warns=True)


def walltime(plan: Plan) -> Iterator[Found]:
    """Refuse a walltime longer than the partition allows for the job's size, and what is no time or could be two."""
    cores = plan.nodes * plan.cpus_per_node
    tiers = plan.partition.walltime
    number = tier_of(tiers, cores)
    if number is None:
        return
    tier = tiers[number]
    if plan.seconds <= times.clock_seconds(tier.max_walltime):
        return
    longer: list[Suggestion] = [{"walltime": tier.max_walltime}]
    for i, other in enumerate(tiers):
        if plan.seconds <= times.clock_seconds(other.max_walltime):
            longer += sizes.at_most(plan, other.max_cores or 0)[:1] if i < number else []
            longer += sizes.at_least(plan, (tiers[i - 1].max_cores or 0) + 1) if i > number else []
    yield Found(
        f"{plan.walltime} asked, {plan.partition_name} allows {tier.max_walltime}{_span(plan, number)}",
        partition_key(plan, "walltime", number, "max_walltime"),
        suggestions=longer,
    )


def _span(plan: Plan, number: int) -> str:
    """Return the sizes for which a tier counts, or nothing where it counts for all."""
    tiers, step = plan.partition.walltime, 1
    if plan.site.multi_node == "whole":
        step = plan.partition.cores_per_node or 1
    before = tiers[number - 1].max_cores if number else None
    least = (before // step + 1) * step if before else None
    most = tiers[number].max_cores or plan.partition.max_cores
    if least is None:
        return f" up to {most} cores" if most and len(tiers) > 1 else ""
    return f" for {least} to {most} cores" if most and most != least else f" for {least} cores"


def qos(plan: Plan) -> Iterator[Found]:
    """Refuse a QoS of another partition, and a job longer or larger than its QoS allows: it would never start."""
    known = [one.name for one in plan.partition.qos]
    if plan.qos and plan.qos.name in plan.site.restricted and plan.qos not in plan.partition.qos:
        key = f"partitions: {plan.partition_name}: qos"
        yield Found(_for_some(plan.name, plan.qos.name, key), ("restricted",), warns=True)
    elif plan.qos and plan.qos not in plan.partition.qos and not plan.site.any_partition:
        owners = [
            name for name, other in plan.site.partitions.items() if any(one.name == plan.qos.name for one in other.qos)
        ]
        suggestion = f"{did_you_mean(plan.qos.name, known)}; one of a special grant passes with --force qos"
        belongs = f", it is one of {', '.join(owners)}; this one has {', '.join(known) or 'none'}"
        yield Found(
            f"partition {plan.partition_name} has no {plan.qos.name!r}{belongs if owners else suggestion}",
            partition_key(plan, "qos"),
        )
    job = plan.seconds, plan.nodes * plan.gpus_per_node, plan.nodes * plan.cpus_per_node
    for i, one in enumerate(plan.partition.qos):
        if (plan.qos is None and one.automatic) or one == plan.qos:
            instead = [{"qos": other.name} for other in plan.partition.qos if not list(qos_limits(other, *job))][:1]
            for key, message in qos_limits(one, *job):
                yield Found(
                    message, partition_key(plan, "qos", i, key), suggestions=[*instead, *_smaller(plan, one, key)]
                )


def _smaller(plan: Plan, qos: Qos, key: str) -> list[Suggestion]:
    """Return how the job keeps to a limit of `qos`."""
    if key == "max_walltime":
        return [{"walltime": qos.max_walltime}]
    most = int(getattr(qos, key))
    if key == "max_cores":
        return sizes.at_most(plan, most)
    return [
        {"nodes": most // plan.gpus_per_node} if most >= plan.gpus_per_node else {"nodes": 1, "gpus_per_node": most}
    ]
