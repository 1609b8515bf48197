"""How a stand-in is set up: its nodes, its queues and its pace."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # qsub and the others read what was written, and start sooner without profiles
    from hpclaunch.profile.model import Site


@dataclass(frozen=True)
class Queue:
    """A queue: the nodes behind it and what its hook refuses."""

    cores_per_node: int = 48
    gpus_per_node: int = 0
    cpus_per_gpu: int = 0  # just so many, else the hook refuses
    max_cores: int | None = None
    walltime: tuple[tuple[int | None, int], ...] = ()  # (up to so many cores, seconds at most), smallest first


def queues_of(site: Site) -> dict[str, Queue]:
    """Return the queues that a site's profile describes; what it has not confirmed is not refused."""
    from hpclaunch.schedulers.walltime import clock_seconds

    return {
        name: Queue(
            cores_per_node=partition.cores_per_node or os.cpu_count() or 1,
            gpus_per_node=partition.gpus_per_node,
            cpus_per_gpu=(partition.cpus_per_gpu or 0) if partition.cpus_per_gpu_exact else 0,
            max_cores=None if "max_cores" in partition.unconfirmed else partition.max_cores,
            walltime=tuple((tier.max_cores, clock_seconds(tier.max_walltime)) for tier in partition.walltime),
        )
        for name, partition in site.partitions.items()
    }


@dataclass(frozen=True)
class Settings:
    """What a stand-in is like; times are seconds."""

    queues: Mapping[str, Queue]
    server: str = "gadi-pbs"
    hosts: tuple[str, ...] = ()  # addresses of this machine, each a node; none: 127.0.0.1 and on, as many as are needed
    lines: Literal["cpu", "gpu", "node"] = "cpu"  # the nodefile has a line for each of a host
    kill_delay: float = 10.0
    poll: float = 10.0  # seconds between two looks at walltimes
    refuse_qsub_in_jobs: bool = False
    history: bool = True
    arrays: bool = True
    # qstat, asked for several jobs as JSON without -E, answers for the first only, as OpenPBS does since 2023-12.
    answers_one: bool = False
    default_queue: str = "normal"


def write(settings: Settings, path: Path) -> None:
    """Write the settings as JSON."""
    path.write_text(json.dumps(asdict(settings), indent=1))


def read(path: Path) -> Settings:
    """Read what `write` wrote."""
    values = json.loads(path.read_text())
    values["hosts"] = tuple(values["hosts"])
    for queue in values["queues"].values():
        queue["walltime"] = tuple((cores, seconds) for cores, seconds in queue["walltime"])
    values["queues"] = {name: Queue(**queue) for name, queue in values["queues"].items()}
    return Settings(**values)
