"""Names, times and price: the partition, the QoS, the walltime, the workload, the most a job may cost."""

from __future__ import annotations

from collections.abc import Iterator

from hpclaunch.errors import counted, did_you_mean
from hpclaunch.job.checks import sizes
from hpclaunch.job.checks.check import is_unconfirmed, partition_key
from hpclaunch.job.checks.suggestions import option
from hpclaunch.job.diagnostic import Found, Suggestion
from hpclaunch.job.limits import Size, common_limits, kept, qos_limits, tier_of
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import NONE, Request, quote
from hpclaunch.paths import WORKLOADS
from hpclaunch.profile.model import Qos
from hpclaunch.profile.search import Profile
from hpclaunch.schedulers import walltime as times


def known_partition(profile: Profile, request: Request) -> Iterator[Found]:
    """Refuse a partition that the site does not have."""
    site, wanted = profile.site, request.partition
    if not wanted or site.any_partition or site.find_partition(wanted) is not None:
        return
    if wanted in site.restricted:
        yield Found(_for_some(profile.name, wanted, "partitions"), ("restricted",), warns=True)
    elif site.find_partition(plain := wanted.removesuffix("-exec")):
        text = f"{wanted} is the execution queue of {plain}, which takes no jobs from users"
        yield Found(text, ("partitions",), suggestions=[{"partition": plain}], certain=True)
    else:
        text = f"site {profile.name} has no partition {wanted!r}{did_you_mean(wanted, site.partitions)}"
        yield Found(text, ("partitions",))


def known_network(profile: Profile, request: Request) -> Iterator[Found]:
    """Refuse a network that the profile does not describe."""
    known = [*profile.site.networks, *NONE]
    if request.network is not None and request.network not in known:
        text = f"site {profile.name} has no network {request.network!r}{did_you_mean(request.network, known)}"
        yield Found(f"{text}; use {' or '.join(known)}", ("networks",))


def _for_some(name: str, word: str, key: str) -> str:
    return (
        f"{word} is for special allocations and not described here; if you have one, describe it under `{key}` "
        f"of a profile of your own that extends {name} (hpclaunch site new)"
    )


def known_workload(_profile: Profile, request: Request) -> Iterator[Found]:
    """Refuse an unknown workload, and one beside a COMMAND."""
    name = request.workload
    if name is not None and name not in WORKLOADS:
        yield Found(f"there is no {name!r}{did_you_mean(name, WORKLOADS)}; `hpclaunch workloads` lists them")
    elif name is not None and request.command:
        yield Found(
            f"give a COMMAND or --workload {name}, not both; "
            f"to give it arguments, make it the COMMAND: -- python {quote(str(WORKLOADS[name]))} ..."
        )


def readable_walltime(_profile: Profile, request: Request) -> Iterator[Found]:
    """Refuse a time that cannot be read, or that could mean two."""
    options = (("", request.walltime), ("--warn-before ", request.warn_before), ("--hang-after ", request.hang_after))
    for name, text in options:
        if text is not None:
            try:
                times.parse(text)
            except ValueError as error:
                yield Found(f"{name}{error}")


def hint(plan: Plan) -> Iterator[Found]:
    """Warn with the profile's hint about a partition that is named."""
    if plan.request.partition and plan.partition.hint:
        yield Found(f"{plan.partition_name}: {plan.partition.hint}", partition_key(plan, "hint"), warns=True)


def walltime(plan: Plan) -> Iterator[Found]:
    """Refuse a walltime outside the partition's limits for the job's size, an unreadable one, and none in a script."""
    script, tiers = plan.script, plan.partition.walltime
    if script and not plan.request.walltime and "walltime" not in script.lines and not plan.site.any_partition:
        text = f"no walltime requested, and the site's default may be short; use {option(plan, 'walltime', 'HH:MM:SS')}"
        yield Found(text, ("default_walltime",), warns=plan.partition.free, at=script.last)
    for key, text in common_limits(plan.partition_name, plan.partition, plan.seconds, plan.nodes):
        if key == "min_walltime":
            yield Found(text, partition_key(plan, key), suggestions=[kept(plan.partition, key)])
    number = tier_of(tiers, plan.cpus, plan.nodes)
    limits = [times.clock_seconds(tier.max_walltime) for tier in tiers]
    if number is None or plan.seconds <= limits[number]:
        return
    most = tiers[number].max_walltime
    shorter: list[Suggestion] = [{"walltime": most}]
    for limit, tier in zip(limits[:number], tiers, strict=False):
        if plan.seconds <= limit:
            shorter += [{"nodes": tier.max_nodes}] if tier.max_nodes else sizes.at_most(plan, tier.max_cores or 0)[:1]
    text = f"{plan.walltime} exceeds {plan.partition_name}'s limit of {most}{_span(plan, number)}"
    yield Found(text, partition_key(plan, "walltime", number, "max_walltime"), suggestions=shorter)


def hang(plan: Plan) -> Iterator[Found]:
    """Refuse a --hang-after that is not shorter than the walltime: the job would end first."""
    if plan.hang_seconds >= plan.seconds and not plan.scheduler.here:
        text = f"--hang-after {plan.hang_after} is not shorter than the walltime of {plan.walltime}"
        yield Found(text, suggestions=[{"hang_after": times.clock(max(plan.seconds // 2, 1))}])


def _span(plan: Plan, number: int) -> str:
    """Return the sizes for which a tier counts, or nothing if it counts for all."""
    tiers = plan.partition.walltime
    if nodes := tiers[number].max_nodes:
        least = (tiers[number - 1].max_nodes or 0) + 1 if number else 1
        return f" for {least}-{nodes} nodes" if least < nodes else f" for {counted(nodes, 'node')}"
    step = (plan.partition.cores_per_node or 1) if plan.site.multi_node == "whole" else 1
    before = tiers[number - 1].max_cores if number else None
    most = tiers[number].max_cores or plan.partition.max_cores
    if not before:
        return f" for up to {most} cores" if most and len(tiers) > 1 else ""
    least = (before // step + 1) * step
    return f" for {least}-{most} cores" if most and most != least else f" for {least} cores"


def qos(plan: Plan) -> Iterator[Found]:
    """Refuse a QoS of another partition, and a job longer or larger than its QoS allows: it would never start."""
    own, part, where = plan.qos, plan.partition, plan.partition_name
    if plan.script and part.qos and plan.request.qos is None:
        text, first = f"no QoS requested, and none of {where} is the default", part.qos[0].name
        yield Found(text, partition_key(plan, "qos"), True, suggestions=[{"qos": first}], at=plan.script.last)
    if own and own not in part.qos:
        owners = [name for name, other in plan.site.partitions.items() if own.name in (one.name for one in other.qos)]
        known = [one.name for one in part.qos]
        text = f"partition {where} has no QoS {own.name!r}"
        if own.name in plan.site.restricted:
            yield Found(_for_some(plan.name, own.name, f"partitions: {where}: qos"), ("restricted",), warns=True)
        elif owners:
            text += f", it is one of {', '.join(owners)}; this one has {', '.join(known) or 'none'}"
            right: list[Suggestion] = [{"partition": name} for name in owners]
            yield Found(text, partition_key(plan, "qos"), warns=part.free, suggestions=right)
        elif not plan.site.any_partition:
            text += f"{did_you_mean(own.name, known)}; with --force qos one of a special allocation passes"
            yield Found(text, partition_key(plan, "qos"))
    job = Size(plan.seconds, plan.nodes, plan.gpus, plan.cpus)
    fitting: list[Suggestion] = [{"qos": other.name} for other in part.qos if not [*qos_limits(other, job)]][:1]
    for i, one in enumerate(part.qos):
        if one == own or (own is None and one.automatic):
            for key, message in qos_limits(one, job):
                certain = plan.script is not None and one.default and bool(fitting) and "qos" not in plan.script.lines
                at = "walltime" if key.endswith("walltime") else "nodes"
                right = [*fitting, *_smaller(plan, one, key)]
                yield Found(message, partition_key(plan, "qos", i, key), suggestions=right, at=at, certain=certain)


def _smaller(plan: Plan, qos: Qos, key: str) -> list[Suggestion]:
    """Return how the job keeps to a limit of `qos`."""
    if key.endswith(("_walltime", "_nodes")):
        return [kept(qos, key)]
    most, each = int(getattr(qos, key)), plan.gpus_per_node
    if key == "max_cores":
        return sizes.at_most(plan, most)
    return [{"nodes": most // each} if most >= each else {"nodes": 1, "gpus_per_node": most}]


def max_cost(plan: Plan) -> Iterator[Found]:
    """Refuse a job that may cost more than --max-cost; warn if its price is not known."""
    most, cost, key = plan.request.max_cost, plan.cost, partition_key(plan, "charge")
    if most is None or plan.scheduler.here or plan.partition.free:
        return
    if cost is None:
        text = f"the limit of {most:g} cannot be checked: the price of partition {plan.partition_name} of {plan.name} "
        yield Found(f"{text}is not known, its profile has neither `charge` nor `free`", key, warns=True)
        return
    weak = is_unconfirmed(plan.site, key)
    # To the cent, as the price is; a user's own limit holds even if the price is not sure.
    if cost.amount > round(most, 2):
        seconds = int(plan.seconds * most / cost.amount + 1e-6) // 60 * 60
        sure = ", a price that is not confirmed" if weak else ""
        text = f"the job may cost {cost.explained}{sure}, above the limit of {most:g} {cost.unit}"
        less: list[Suggestion] = [{"walltime": times.clock(seconds)}] if seconds else []
        yield Found(text, None if weak else key, suggestions=[*less, {"max_cost": cost.amount}])
    elif weak:
        yield Found(f"{cost} fits the limit of {most:g} {cost.unit}, but the price is not confirmed", key)
