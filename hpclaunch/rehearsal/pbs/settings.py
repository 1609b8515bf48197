"""How a stand-in is set up: its nodes, its queues and its pace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path


@dataclass(frozen=True)
class Queue:
    """A queue: the nodes behind it and what its hook refuses."""

    cores_per_node: int = 48
    gpus_per_node: int = 0
    cpus_per_gpu: int = 0  # just so many, else the hook refuses
    walltime: tuple[tuple[int, int], ...] = ()  # (up to so many cores, hours at most), smallest first


# The shape of Gadi's queues; sources stand in site_profiles/gadi.yaml.
GADI: Mapping[str, Queue] = {
    "normal": Queue(walltime=((672, 48), (1440, 24), (2976, 10), (20736, 5))),
    "express": Queue(walltime=((480, 24), (3168, 5))),
    "copyq": Queue(walltime=((1, 10),)),
    "gpuvolta": Queue(gpus_per_node=4, cpus_per_gpu=12, walltime=((96, 48), (192, 24), (960, 5))),
    "dgxa100": Queue(cores_per_node=128, gpus_per_node=8, cpus_per_gpu=16, walltime=((128, 48), (256, 5))),
    "gpuhopper": Queue(gpus_per_node=4, cpus_per_gpu=12, walltime=((48, 48), (960, 48))),
}


@dataclass(frozen=True)
class Settings:
    """What `hpclaunch.rehearsal.pbs.install` was asked for; times are seconds."""

    python: str
    server: str = "gadi-pbs"
    hosts: tuple[str, ...] = ()  # none: addresses of this machine, as many as are needed
    lines: str = "cpu"
    kill_delay: float = 10.0
    poll: float = 10.0
    refuse_qsub_in_jobs: bool = False
    history: bool = True
    arrays: bool = True
    answers_one: bool = False  # qstat, asked for several jobs as JSON without -E, as OpenPBS does since 2023-12
    default_queue: str = "normal"
    queues: Mapping[str, Queue] = field(default_factory=lambda: dict(GADI))


def write(settings: Settings, path: Path) -> None:
    """Write the settings as JSON."""
    path.write_text(json.dumps(asdict(settings), indent=1))


def read(path: Path) -> Settings:
    """Read what `write` wrote."""
    values = json.loads(path.read_text())
    values["hosts"] = tuple(values["hosts"])
    for queue in values["queues"].values():
        queue["walltime"] = tuple((cores, hours) for cores, hours in queue["walltime"])
    values["queues"] = {name: Queue(**queue) for name, queue in values["queues"].items()}
    return Settings(**values)


def with_cores(queue: Queue, cores: int) -> Queue:
    """Return the queue with nodes of another size."""
    return replace(queue, cores_per_node=cores)
