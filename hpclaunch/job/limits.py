"""The limits of partitions, of their QoS and of their walltime tiers, for a job of a given size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from hpclaunch.errors import counted
from hpclaunch.profile.model import Partition, Qos, Tier
from hpclaunch.schedulers import walltime as times


class Size(Struct, frozen=True):
    """The length and the size of a job."""

    seconds: int
    nodes: int
    gpus: int
    cores: int


def tier_of(tiers: Sequence[Tier], cores: int, nodes: int) -> int | None:
    """Return the number of the tier for a job of this size, or None if no tier is for that size."""
    sizes = enumerate((tier.max_cores or cores, tier.max_nodes or nodes) for tier in tiers)
    return next((i for i, (most, most_nodes) in sizes if cores <= most and nodes <= most_nodes), None)


def common_limits(name: str, limits: Partition | Qos, seconds: int, nodes: int) -> Iterator[tuple[str, str]]:
    """Yield (key, message) for each limit of `name`, a partition or a QoS, that a job does not keep to."""
    if limits.min_walltime and seconds < times.clock_seconds(limits.min_walltime):
        yield "min_walltime", f"walltime {times.clock(seconds)} is below {name}'s minimum of {limits.min_walltime}"
    if limits.min_nodes and nodes < limits.min_nodes:
        yield "min_nodes", f"a job of {counted(nodes, 'node')} is below {name}'s minimum of {limits.min_nodes}"
    if limits.max_nodes and nodes > limits.max_nodes:
        yield "max_nodes", f"{nodes} nodes exceed {name}'s limit of {limits.max_nodes}"


def qos_limits(qos: Qos, size: Size) -> Iterator[tuple[str, str]]:
    """Yield (key, message) for each limit of `qos` that a job of this length and size exceeds."""
    seconds, nodes, gpus, cores = size.seconds, size.nodes, size.gpus, size.cores
    if seconds > times.clock_seconds(qos.max_walltime):
        yield "max_walltime", f"walltime {times.clock(seconds)} exceeds {qos.name}'s limit of {qos.max_walltime}"
    if qos.disputed_max_gpus and gpus > qos.disputed_max_gpus:
        most = qos.disputed_max_gpus
        yield "disputed_max_gpus", f"{gpus} GPUs exceed {qos.name}'s limit, {most} at most by any source"
    elif qos.max_gpus and gpus > qos.max_gpus:
        yield "max_gpus", f"{gpus} GPUs exceed {qos.name}'s limit of {qos.max_gpus}"
    if qos.max_cores and cores > qos.max_cores:
        yield "max_cores", f"{cores} cores exceed {qos.name}'s limit of {qos.max_cores}"
    yield from common_limits(qos.name, qos, seconds, nodes)


def kept(limits: Partition | Qos, key: str) -> dict[str, int | str]:
    """Return the part of a request that just keeps to a limit of nodes or walltime."""
    return {key.partition("_")[2]: getattr(limits, key)}
