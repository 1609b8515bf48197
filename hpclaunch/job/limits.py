"""The limits of a partition's QoS and of its walltime tiers, for a job of a given size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpclaunch.profile.model import Qos, Tier
from hpclaunch.schedulers import walltime as times


def tier_of(tiers: Sequence[Tier], cores: int) -> int | None:
    """Return the number of the tier for a job of so many cores, or None if no tier is for that size."""
    return next((i for i, tier in enumerate(tiers) if not tier.max_cores or cores <= tier.max_cores), None)


def qos_limits(qos: Qos, seconds: int, gpus: int, cores: int) -> Iterator[tuple[str, str]]:
    """Yield (key, message) for each limit of `qos` that a job of this length and size exceeds."""
    if seconds > times.clock_seconds(qos.max_walltime):
        yield "max_walltime", f"walltime {times.clock(seconds)} exceeds {qos.name}'s limit of {qos.max_walltime}"
    if qos.disputed_max_gpus and gpus > qos.disputed_max_gpus:
        most = qos.disputed_max_gpus
        yield "disputed_max_gpus", f"{gpus} GPUs exceed {qos.name}'s limit, {most} at most by any source"
    elif qos.max_gpus and gpus > qos.max_gpus:
        yield "max_gpus", f"{gpus} GPUs exceed {qos.name}'s limit of {qos.max_gpus}"
    if qos.max_cores and cores > qos.max_cores:
        yield "max_cores", f"{cores} cores exceed {qos.name}'s limit of {qos.max_cores}"
