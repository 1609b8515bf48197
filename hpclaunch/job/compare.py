"""The same request at several places: the job that it would be there, its price, and why it is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from msgspec import Struct, structs, to_builtins

from hpclaunch import walltime
from hpclaunch.errors import HpclaunchError, did_you_mean
from hpclaunch.job.consider import consider
from hpclaunch.job.limits import qos_limits, tier_of
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request
from hpclaunch.profile.model import Partition, Site
from hpclaunch.profile.search import Profile

_ROWS = (
    *("", "fits", "node", "nodes", "GPUs", "ranks", "cpus", "memory", "walltime", "longest", "QoS", "price", "because"),
    *("per GPU-hour", "waiting", "options", "refused", "beware"),
)


class Place(Struct, frozen=True):
    """A partition of a site: the site's name or file, and the partition's own name, None if there is no `wanted`."""

    site: str
    profile: Profile
    partition: str | None
    wanted: str = ""


class Column(Struct, frozen=True, kw_only=True):
    """The request at one place; a refused one has a plan too, unless a value of it means nothing there."""

    site: str
    partition: str
    plan: Plan | None = None
    options: str = ""
    refusals: list[str] = []
    warnings: list[str] = []

    @property
    def fits(self) -> bool:
        """Return whether the site would take the job."""
        return self.plan is not None and not self.refusals


def places(profiles: Mapping[str, Profile], pairs: Sequence[tuple[str, str]], names: Sequence[str]) -> list[Place]:
    """Return the places to compare: each (site, partition) of `pairs`, and each of `names` at each site that has it.

    A site without a partition is compared by its default one; a single site by all its partitions of that kind.
    Raises HpclaunchError for a name that no site has.
    """
    for name in names:
        if not any(_own_name(profile, name) for profile in profiles.values()):
            known = {own for profile in profiles.values() for own in profile.site.partitions}
            raise HpclaunchError(f"{' and '.join(profiles)}: no partition {name!r}{did_you_mean(name, known)}")
    found = []
    for site, profile in profiles.items():
        paired = [partition for at, partition in pairs if at == site]
        here = [name for name in names if _own_name(profile, name)]
        if not (paired or names) and len(profiles) == 1:
            here = _alike(profile)
        wanted = paired + here or list(names[:1]) or [profile.site.default_partition]
        found += [Place(site, profile, _own_name(profile, name), name) for name in wanted]
    return list({(place.site, place.partition or place.wanted): place for place in found}.values())


def _own_name(profile: Profile, name: str) -> str | None:
    found = profile.site.find_partition(name)
    return found[0] if found else name if profile.site.any_partition else None


def _alike(profile: Profile) -> list[str]:
    """Return the partitions with GPUs if the default one has some, else those without."""
    site = profile.site
    gpus = bool(site.partitions[site.default_partition].gpus_per_node)
    return [name for name, partition in site.partitions.items() if bool(partition.gpus_per_node) == gpus]


def column(place: Place, request: Request, gpus: int | None = None) -> Column:
    """Return `request` at a place; with `gpus`, on as many nodes as have that many GPUs."""
    partition = place.partition or place.wanted
    request = structs.replace(request, site=place.site, partition=partition)
    if gpus is not None and place.partition is not None:
        sizes = _sizes(place.profile.site, partition, gpus)
        if isinstance(sizes, str):
            return Column(site=place.profile.name, partition=partition, refusals=[sizes])
        nodes, each, whole = sizes
        request = structs.replace(
            request, nodes=nodes, gpus_per_node=None if each == whole and not request.tasks_per_node else each
        )
    plan, findings = consider(place.profile, request)
    if not request.account:  # a missing account is the same everywhere
        findings = [finding for finding in findings if finding.check != "account" or finding.refuses]
    return Column(
        site=place.profile.name,
        partition=partition,
        plan=plan,
        options=_options(request),
        refusals=[str(finding) for finding in findings if finding.refuses],
        warnings=[str(finding) for finding in findings if not finding.refuses],
    )


def _sizes(site: Site, name: str, gpus: int) -> tuple[int, int, int] | str:
    """Return the nodes, the GPUs used on each and those that each has, for so many GPUs; or why that cannot be."""
    whole = site.partitions.get(name, Partition()).gpus_per_node
    if not whole and site.any_partition:
        return f"gpus: the GPUs of a node of partition {name} are not known; use --nodes and --gpus-per-node"
    if not whole:
        return f"gpus: a node of partition {name} has none"
    if gpus <= whole:
        return 1, gpus, whole
    if gpus % whole:
        less, more = gpus // whole * whole, -(-gpus // whole) * whole
        return (
            f"gpus: {gpus} GPUs do not fill nodes of partition {name}, {whole} GPUs each; use --gpus {less} or {more}"
        )
    return gpus // whole, whole, whole


def _options(request: Request) -> str:
    """Return the options that ask for this place and size, for other commands."""
    asked = Request(
        site=request.site, partition=request.partition, nodes=request.nodes, gpus_per_node=request.gpus_per_node
    )
    return asked.command_line().removeprefix("hpclaunch render ")


def longest(plan: Plan) -> tuple[int, str] | None:
    """Return the longest walltime for a job of this size, in seconds, and its QoS; or None if no limit is known."""
    tiers = plan.partition.walltime
    number = tier_of(tiers, plan.cpus)
    found = [] if number is None else [(walltime.clock_seconds(tiers[number].max_walltime), "")]
    fitting = [
        (walltime.clock_seconds(qos.max_walltime), qos.name)
        for qos in plan.partition.qos
        if (qos.name == plan.request.qos if plan.request.qos else qos.automatic)
        and all(key in qos.unconfirmed for key, _ in qos_limits(qos, 1, plan.gpus, plan.cpus))
    ]
    found += [max(fitting, key=itemgetter(0))] if fitting else []
    return min(reversed(found), key=itemgetter(0)) if found else None


def other_qos(plan: Plan) -> list[str]:
    """Return the QoS that the job fits too and would have to name."""
    return [
        qos.name
        for qos in plan.partition.qos
        if qos != plan.qos and not qos.automatic and not list(qos_limits(qos, plan.seconds, plan.gpus, plan.cpus))
    ]


def memory(plan: Plan) -> tuple[int, bool] | None:
    """Return the memory of the whole job in GB, and whether the job asks for it or it comes with the cores."""
    if plan.mem_gb:
        return plan.mem_gb, True
    whole, cores = plan.partition.mem_gb_per_node, plan.partition.cores_per_node
    return (int(plan.nodes * whole * min(plan.cpus_per_node / cores, 1)), False) if whole and cores else None


def gpu_hour(plan: Plan) -> float | None:
    """Return what an hour of one of the job's GPUs costs, in the site's unit."""
    hours = plan.gpus * plan.max_attempts * plan.seconds / 3600
    return round(plan.cost.amount / hours, 2) if plan.cost and hours else None


def facts(one: Column) -> dict[str, Any]:
    """Return the names and numbers of a column, for JSON."""
    found: dict[str, Any] = {"site": one.site, "partition": one.partition, "fits": one.fits}
    if (plan := one.plan) is not None:
        limit, mem = longest(plan), memory(plan)
        found |= {
            "options": one.options,
            "nodes": plan.nodes,
            "gpus": plan.gpus,
            "gpu": plan.partition.gpu,
            "ranks": plan.world_size,
            "cpus": plan.cpus,
            "mem_gb": mem and mem[0],
            "walltime": plan.walltime,
            "longest_walltime": limit and walltime.clock(limit[0]),
            "qos": plan.qos and plan.qos.name,
            "free": plan.partition.free,
            "cost": to_builtins(plan.cost),
            "cost_per_gpu_hour": gpu_hour(plan),
            "waiting": plan.site.waiting,
        }
    return found | {"refusals": one.refusals, "warnings": one.warnings}


def rows(columns: Iterable[Column]) -> dict[str, list[list[str]]]:
    """Return the table: each row's name and, for each column, its paragraphs. Empty rows are left out."""
    cells = [_cells(one) for one in columns]
    return {name: [cell.get(name, []) for cell in cells] for name in _ROWS if any(cell.get(name) for cell in cells)}


def _cells(one: Column) -> dict[str, list[str]]:
    cells = {
        "": [f"{one.site} {one.partition}"],
        "fits": ["yes" if one.fits else "no"],
        "refused": one.refusals,
        "beware": one.warnings,
    }
    if (plan := one.plan) is None:
        return cells
    limit, mem, each = longest(plan), memory(plan), gpu_hour(plan)
    others = f"or --qos {' or '.join(other_qos(plan))}" if other_qos(plan) else ""
    attempts = f"{plan.max_attempts} x " if plan.max_attempts > 1 else ""
    by = f" ({limit[1]})" if limit and limit[1] else ""
    texts = {
        "node": plan.partition.description,
        "nodes": str(plan.nodes),
        "GPUs": f"{plan.gpus} x {plan.partition.gpu}" if plan.gpus and plan.partition.gpu else str(plan.gpus or ""),
        "ranks": str(plan.world_size),
        "cpus": str(plan.cpus),
        "memory": f"{mem[0]} GB{'' if mem[1] else ', comes with the cpus'}" if mem else "",
        "walltime": attempts + plan.walltime,
        "longest": f"{walltime.clock(limit[0])}{by}" if limit else "no limit known",
        "QoS": ", ".join(filter(None, [plan.qos.name if plan.qos else "", others])),
        "price": plan.price or "not known",
        "because": plan.cost.formula if plan.cost else "",
        "per GPU-hour": f"{each:,.12g} {plan.cost.unit}" if plan.cost and each is not None else "",
        "options": one.options,
    }
    return cells | {name: [text] for name, text in texts.items() if text} | {"waiting": plan.site.waiting}
