"""The same request at several places: the job that it would be there, its price, and why it is refused."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs, to_builtins

from hpclaunch.errors import HpclaunchError, did_you_mean
from hpclaunch.job.consider import consider
from hpclaunch.job.limits import Size, qos_limits, tier_of
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request
from hpclaunch.profile.model import Partition, Site
from hpclaunch.profile.search import Profile
from hpclaunch.schedulers import walltime

# The rows of the table, by the facts that they show.
_ROWS = {
    "fits": "fits",
    "node": "node",
    "nodes": "nodes",
    "GPUs": "gpus",
    "ranks": "ranks",
    "cpus": "cpus",
    "memory": "mem_gb",
    "walltime": "walltime",
    "longest": "longest_walltime",
    "QoS": "qos",
    "price": "price",
    "because": "cost",
    "GPU-hour": "cost_per_gpu_hour",
    "waiting": "waiting",
    "options": "options",
    "refused": "refusals",
    "beware": "warnings",
}


def places(profiles: Mapping[str, Profile], words: Sequence[tuple[str | None, str]]) -> list[tuple[str, str]]:
    """Return the (site, partition) to compare; a word without a site is looked for at each site.

    A site without a partition is compared by its default one; a single site by all its partitions of that kind.
    Raises HpclaunchError for a partition that no site has.
    """
    anywhere = [name for at, name in words if at is None]
    for name in anywhere:
        if not any(_knows(profile.site, name) for profile in profiles.values()):
            known = {own for profile in profiles.values() for own in profile.site.partitions}
            raise HpclaunchError(f"{' and '.join(profiles)}: no partition {name!r}{did_you_mean(name, known)}")
    found = []
    for at, profile in profiles.items():
        site = profile.site
        named = [name for where, name in words if where == at or (where is None and _knows(site, name))]
        if not words and len(profiles) == 1:
            gpus = {name: bool(partition.gpus_per_node) for name, partition in site.partitions.items()}
            named = [name for name in gpus if gpus[name] == gpus[site.default_partition]]
        named = named or anywhere[:1] or [site.default_partition]
        found += [(at, (site.find_partition(name) or [name])[0]) for name in named]
    return list(dict.fromkeys(found))


def _knows(site: Site, name: str) -> bool:
    return site.any_partition or site.find_partition(name) is not None


def compared(profile: Profile, request: Request, gpus: int | None = None) -> tuple[Plan | None, dict[str, Any]]:
    """Return the plan of a request, and what it comes to, for JSON; with `gpus`, on as many nodes as have that many.

    A refused job has a plan too, unless a value of the request means nothing there.
    """
    site, partition = profile.site, str(request.partition)
    facts: dict[str, Any] = {"site": profile.name, "partition": partition, "fits": False}
    if gpus is not None and _knows(site, partition):
        whole = site.partitions.get(partition, Partition()).gpus_per_node
        if refusal := _misfit(site, partition, gpus, whole):
            return None, facts | {"refusals": [refusal], "warnings": []}
        each = min(gpus, whole)
        own = None if each == whole and not request.tasks_per_node else each
        request = structs.replace(request, nodes=gpus // each, gpus_per_node=own)
    plan, found = consider(profile, request)
    refusals = [str(one) for one in found if one.refuses]
    if plan is not None:
        asked = Request(
            site=request.site, partition=partition, nodes=request.nodes, gpus_per_node=request.gpus_per_node
        )
        limit, hours = longest(plan), plan.gpus * plan.max_attempts * plan.seconds / 3600
        facts |= {name: getattr(plan, name) for name in ("nodes", "gpus", "cpus", "walltime")}
        facts |= {
            "fits": not refusals,
            "options": asked.command_line().removeprefix("hpclaunch render "),
            "node": plan.partition.description,
            "gpu": plan.partition.gpu,
            "ranks": plan.world_size,
            "mem_gb": memory(plan),
            "longest_walltime": limit and walltime.clock(limit),
            "qos": plan.qos and plan.qos.name,
            "free": plan.partition.free,
            "price": plan.price or "not known",
            "cost": to_builtins(plan.cost),
            "cost_per_gpu_hour": round(plan.cost.amount / hours, 2) if plan.cost and hours else None,
            "waiting": site.waiting,
        }
    # A missing account is the same everywhere.
    warnings = [str(one) for one in found if not one.refuses and (request.account or one.check != "account")]
    return plan, facts | {"refusals": refusals, "warnings": warnings}


def _misfit(site: Site, name: str, gpus: int, whole: int) -> str:
    """Return why so many GPUs cannot be had on nodes with `whole` GPUs, or ""."""
    if not whole and site.any_partition:
        return f"gpus: the GPUs of a node of partition {name} are not known; use --nodes and --gpus-per-node"
    if not whole:
        return f"gpus: a node of partition {name} has none"
    less = gpus // whole * whole
    if less in (0, gpus):
        return ""
    use = f"use --gpus {less} or {less + whole}"
    return f"gpus: {gpus} GPUs do not fill nodes of partition {name}, {whole} GPUs each; {use}"


def longest(plan: Plan) -> int | None:
    """Return the longest walltime for a job of this size, in seconds, or None if no limit is known."""
    tiers = plan.partition.walltime
    number = tier_of(tiers, plan.cpus, plan.nodes)
    limits = [] if number is None else [walltime.clock_seconds(tiers[number].max_walltime)]
    fitting = [
        seconds
        for qos in plan.partition.qos
        for seconds in [walltime.clock_seconds(qos.max_walltime)]
        if (qos.name == plan.request.qos if plan.request.qos else qos.automatic)
        and all(key in qos.unconfirmed for key, _ in qos_limits(qos, Size(seconds, plan.nodes, plan.gpus, plan.cpus)))
    ]
    return min([*limits, *([max(fitting)] if fitting else [])], default=None)


def memory(plan: Plan) -> int | None:
    """Return the memory of the whole job in GB, which it requests or which comes with its cores."""
    whole, cores = plan.partition.mem_gb_per_node, plan.partition.cores_per_node
    return plan.mem_gb or (int(plan.nodes * whole * min(plan.cpus_per_node / cores, 1)) if whole and cores else None)


def table(columns: Sequence[dict[str, Any]]) -> dict[str, list[list[str]]]:
    """Return the rows of a table: each one's name and, for each column, its paragraphs. Empty rows are left out."""
    rows = {"": [[f"{one['site']} {one['partition']}"] for one in columns]}
    rows |= {name: [_cell(one, key) for one in columns] for name, key in _ROWS.items()}
    return {name: cells for name, cells in rows.items() if any(cells)}


def _cell(one: dict[str, Any], key: str) -> list[str]:
    value = one.get(key)
    if value is None or isinstance(value, list):
        return value or []
    if key == "cost":
        value = value["formula"]
    elif key == "cost_per_gpu_hour":
        value = f"{value:,.12g} {one['cost']['unit']}"
    elif key == "mem_gb":
        value = f"{value} GB"
    elif key == "gpus" and one["gpu"]:
        value = value and f"{value} x {one['gpu']}"
    elif key == "fits":
        value = "yes" if value else "no"
    return [str(value)] if value else []
