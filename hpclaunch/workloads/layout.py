"""How mnist.py finds its ranks, how they share the work, and what is checked before they wait for each other.

Nothing here knows what is trained. A mistake found here ends a job in seconds; found later, it is ranks that wait for
each other until the walltime is over.
"""

import argparse
import importlib.util
import json
import os
import shutil
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.environments import LightningEnvironment, SLURMEnvironment  # type: ignore[attr-defined]
from pytorch_lightning.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy, Strategy
from pytorch_lightning.utilities import rank_zero_warn


class StartError(Exception):
    """The training cannot start; the message says what is wrong, where, and what would be right."""


class LayoutError(StartError):
    """The ranks are not where the environment says; each rank tells it, since each has its own."""


@dataclass(frozen=True)
class Layout:
    """Ranks per node, nodes, and the reader of this process's own rank."""

    per_node: int
    nodes: int
    environment: LightningEnvironment | SLURMEnvironment

    @property
    def world_size(self) -> int:
        return self.per_node * self.nodes

    @property
    def ranks_are_started(self) -> bool:
        """Whether a launcher has started all ranks, or Lightning will start those of this node."""
        return self.environment.creates_processes_externally


def find_layout(devices: int | None = None) -> Layout:
    """Read from the environment where the ranks are; `devices` is for a process that no launcher has started.

    The reader is named rather than left to Lightning, which takes any Slurm variables for `srun`: `python` in a
    batch script would wait for ranks that nobody started.
    """
    env = os.environ

    def number(name: str, default: int = 0) -> int:
        try:
            return int(env.get(name, default))
        except ValueError:
            raise LayoutError(f"{name}={env[name]}: wanted is a whole number") from None

    def divide(ranks: int, parts: int, what: str) -> int:
        if ranks < 1 or parts < 1 or ranks % parts:
            raise LayoutError(f"{what}: Lightning wants the same number of ranks, at least one, on each node")
        return ranks // parts

    tasks = number("SLURM_STEP_NUM_TASKS", 1)  # of this srun; a batch script has no such variable
    if "WORLD_SIZE" in env and "LOCAL_WORLD_SIZE" in env:  # torchrun, a job script, or by hand
        world_size, per_node = number("WORLD_SIZE"), number("LOCAL_WORLD_SIZE")
        nodes = divide(world_size, per_node, f"WORLD_SIZE={world_size} with LOCAL_WORLD_SIZE={per_node}")
        layout = Layout(per_node, nodes, LightningEnvironment())
        if "RANK" in env and "LOCAL_RANK" in env:
            rank = number("GROUP_RANK", number("NODE_RANK")) * per_node + number("LOCAL_RANK")
            if rank != number("RANK") or number("LOCAL_RANK") >= per_node or rank >= world_size:
                names = ("RANK", "WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
                place = ", ".join(f"{name}={env[name]}" for name in names if name in env)
                raise LayoutError(f"{place}: wanted is RANK = NODE_RANK x LOCAL_WORLD_SIZE + LOCAL_RANK")
    elif tasks > 1:
        nodes = number("SLURM_STEP_NUM_NODES", 1)
        per_node = divide(tasks, nodes, f"srun started {tasks} tasks on {nodes} nodes")
        layout = Layout(per_node, nodes, SLURMEnvironment(auto_requeue=False))
    else:
        layout = Layout(devices or 1, 1, LightningEnvironment())
        for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
            if number(name, layout.per_node) != layout.per_node:  # each would train alone, and nobody would notice
                raise LayoutError(
                    f"{name}={env[name]}, but nothing tells which ranks share a node: set LOCAL_WORLD_SIZE, "
                    "NODE_RANK, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun and hpclaunch set them"
                )
    if devices not in (None, layout.per_node):
        raise LayoutError(
            f"--devices {devices}, but a launcher has set {layout.per_node} ranks for this node; leave it out"
        )
    return layout


def is_later_rank() -> bool:
    """Return whether the environment says that this is not rank 0."""
    return any(os.environ.get(name, "0") != "0" for name in ("RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID"))


SPAWNING = {"ddp_spawn": "spawn", "ddp_fork": "fork"}
STRATEGIES = ("auto", "ddp", *SPAWNING, "fsdp", "deepspeed")
# What Lightning had once: what became of it, and what to ask for.
GONE = {
    "dp": "DataParallel, one process for all GPUs, left Lightning with 2.0",
    "ddp2": "dp in a node and ddp between nodes left Lightning with 1.7",
    "horovod": "Horovod left Lightning with 2.0",
    "bagua": "Bagua left Lightning with 2.0",
}


def strategy_name(name: str) -> str:
    if name in GONE:
        raise argparse.ArgumentTypeError(f"{name}: {GONE[name]}; use ddp")
    return name


def check_choices(args: argparse.Namespace, layout: Layout, on_gpu: bool) -> None:
    """Raise StartError for what cannot work here, before any rank waits for another."""
    here = "torch" if on_gpu else "no GPU for each rank here, and torch"
    if args.strategy in SPAWNING and layout.ranks_are_started:
        raise StartError(f"--strategy {args.strategy}: starts ranks itself, but a launcher has started these; use ddp")
    if args.strategy in ("fsdp", "deepspeed") and not on_gpu:
        raise StartError(f"--strategy {args.strategy}: {here} shards a model over GPUs only; use ddp")
    if args.strategy == "deepspeed" and not importlib.util.find_spec("deepspeed"):
        raise StartError("--strategy deepspeed: is not installed; python -m pip install deepspeed, or use fsdp")
    if args.backend == "nccl" and not on_gpu:
        raise StartError("--backend nccl: needs a GPU for each rank of the node; use gloo")
    if args.backend == "mpi" and not torch.distributed.is_mpi_available():
        raise StartError(
            "--backend mpi: this torch was built without MPI, as all from PyPI and conda are; use nccl or gloo"
        )
    if args.sync_batchnorm and args.model == "perceptron":
        raise StartError("--sync-batchnorm: stands behind convolutions, --model perceptron has none")
    if args.sync_batchnorm and layout.world_size > 1 and not on_gpu:
        raise StartError(f"--sync-batchnorm: {here} synchronizes batch norm on GPUs only")
    if args.compile and not on_gpu and not shutil.which(os.environ.get("CXX", "g++")):
        raise StartError("--compile: torch.compile wants a C++ compiler, and there is no g++ here; set CXX")
    if (
        os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"
        and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    ):
        # Seen with torch 2.13: one store for all attempts, in which a new rank may find a dead one's address.
        rank_zero_warn(
            "after a restart the ranks may wait for each other in vain: set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 "
            "for torchrun, so that each attempt has a store of its own"
        )
    if args.plot and not importlib.util.find_spec("matplotlib"):
        raise StartError("--plot: needs matplotlib; python -m pip install matplotlib")


def make_strategy(args: argparse.Namespace, layout: Layout, on_gpu: bool) -> Strategy | str:
    """Return how the ranks share the work."""
    backend = args.backend or ("nccl" if on_gpu else "gloo")
    timeout = timedelta(seconds=args.timeout)
    if args.strategy == "fsdp":  # "full": the checkpoint is one file, and any strategy can read its weights
        return FSDPStrategy(process_group_backend=backend, timeout=timeout, state_dict_type="full")
    if args.strategy == "deepspeed":
        return DeepSpeedStrategy(process_group_backend=backend, timeout=timeout)
    if args.strategy == "auto" and layout.world_size == 1:
        return "auto"
    start: Any = SPAWNING.get(args.strategy, "popen")
    # No buffers to send: the only ones are of batch norm, which is in step already.
    return DDPStrategy(process_group_backend=backend, timeout=timeout, start_method=start, broadcast_buffers=False)


@dataclass(frozen=True)
class Place:
    """One rank as it says of itself, a line of the table at the start."""

    rank: int
    node: int
    local_rank: int
    host: str
    device: str
    capability: tuple[int, int] | None  # of an NVIDIA GPU
    terms: str  # what must be the same on all ranks
    mismatch: str  # of what its launcher promised and what Lightning found


def call_the_roll(trainer: pl.Trainer, layout: Layout, terms: dict[str, Any]) -> tuple[str, str]:
    """Return the table of the ranks, and why they cannot train together, if so: the same on all ranks.

    `terms` is what must be the same on all of them.
    """
    device = trainer.strategy.root_device
    gpu = device.type == "cuda"
    mine = Place(
        trainer.global_rank,
        trainer.node_rank,
        trainer.local_rank,
        socket.gethostname(),
        f"{device} {torch.cuda.get_device_name(device)}" if gpu else str(device),
        torch.cuda.get_device_capability(device) if gpu else None,
        json.dumps(terms),
        mismatch(trainer, layout),
    )
    places = [mine] * trainer.world_size
    if torch.distributed.is_initialized():
        torch.distributed.all_gather_object(places, mine)
    return describe(places, trainer), find_problem(places, terms["precision"])


def mismatch(trainer: pl.Trainer, layout: Layout) -> str:
    """Return how the place that Lightning found differs from the one that the launcher promised, if it does."""
    promised: dict[str, Any] = {
        "WORLD_SIZE": layout.world_size,
        "LOCAL_WORLD_SIZE": layout.per_node,
        "nodes": layout.nodes,
    }
    promised |= {"environment": type(layout.environment).__name__}
    if isinstance(layout.environment, LightningEnvironment):
        promised |= {name: int(os.environ[name]) for name in ("RANK", "LOCAL_RANK") if name in os.environ}
    found = {
        "WORLD_SIZE": trainer.world_size,
        "LOCAL_WORLD_SIZE": trainer.num_devices,
        "nodes": trainer.num_nodes,
        "environment": type(getattr(trainer.strategy, "cluster_environment", layout.environment)).__name__,
        "RANK": trainer.global_rank,
        "LOCAL_RANK": trainer.local_rank,
    }
    wrong = [
        f"{name} {value}, Lightning found {found[name]}" for name, value in promised.items() if value != found[name]
    ]
    return f"the launcher promised {'; '.join(wrong)}" if wrong else ""


def describe(places: list[Place], trainer: pl.Trainer) -> str:
    """Return the table of the ranks, and in its first line what they have in common."""
    environment = cast(Any, trainer.strategy).cluster_environment if len(places) > 1 else None
    common = [f"world size {len(places)}", f"nodes {trainer.num_nodes}", f"precision {trainer.precision}"]
    if environment:
        backend = torch.distributed.get_backend()
        master = f"master {environment.main_address}:{environment.main_port}"
        common += [master, type(trainer.strategy).__name__, backend, type(environment).__name__]
    lines = [("rank", "node", "local rank", "host", "device")]
    lines += [(str(p.rank), str(p.node), str(p.local_rank), p.host, p.device) for p in places]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([", ".join(common), *rows])


def find_problem(places: list[Place], precision: str) -> str:
    """Return why ranks in these places cannot train together, if so."""
    for place in places:
        if place.mismatch:
            return f"rank {place.rank} on {place.host}: {place.mismatch}"
        if place.terms != places[0].terms:
            return f"rank {place.rank} on {place.host} trains with {place.terms}, rank 0 with {places[0].terms}"
        reason = precision_problem(precision, place.capability)
        if reason:
            return f"{reason} (rank {place.rank} on {place.host}: {place.device})"
    return ""


def precision_problem(precision: str, capability: tuple[int, int] | None) -> str:
    """Return why a GPU of this compute capability cannot train in this precision, if so."""
    if precision == "bf16-mixed" and capability and capability < (8, 0):
        # torch would emulate it, slower than 32 bits.
        version = ".".join(map(str, capability))
        return f"--precision bf16-mixed: a GPU has it from compute capability 8.0 on, this has {version}; use 16-mixed"
    return ""
