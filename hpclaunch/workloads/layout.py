"""How mnist.py finds its ranks, how they share the work, and what is checked before they wait for each other.

Nothing here knows what is trained. A mistake found here ends a job in seconds; found later, it is ranks that wait for
each other until the walltime is over.
"""

import argparse
import os
import shutil
import socket
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.plugins.environments import LightningEnvironment, SLURMEnvironment  # type: ignore[attr-defined]
from pytorch_lightning.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy, Strategy
from pytorch_lightning.utilities import rank_zero_warn


class StartError(Exception):
    """The training cannot start; the message says what is wrong, where, and what to use."""


@dataclass(frozen=True)
class Layout:
    """Ranks per node, nodes, and the reader of this process's own rank."""

    per_node: int
    nodes: int
    environment: LightningEnvironment | SLURMEnvironment

    @property
    def world_size(self) -> int:
        return self.per_node * self.nodes


def find_layout(devices: int | None = None) -> Layout:
    """Read from the environment where the ranks are; `devices` is for a process that no launcher has started.

    The reader is named rather than left to Lightning, which takes any Slurm variables for `srun`: `python` in a
    batch script would wait for ranks that nobody started.
    """
    env = os.environ

    def number(name: str, default: int = 0) -> int:
        return int(env.get(name, default))

    environment: LightningEnvironment | SLURMEnvironment = LightningEnvironment()
    if "WORLD_SIZE" in env and "LOCAL_WORLD_SIZE" in env:  # torchrun, a job script, or by hand
        ranks, per_node = number("WORLD_SIZE"), number("LOCAL_WORLD_SIZE")
        nodes = ranks // max(per_node, 1)
        local, node = number("LOCAL_RANK"), number("GROUP_RANK", number("NODE_RANK"))
        if number("RANK", node * per_node + local) != node * per_node + local:
            place = f"RANK={env['RANK']} with LOCAL_RANK={local}, NODE_RANK={node} and LOCAL_WORLD_SIZE={per_node}"
            raise StartError(f"{place} of {ranks}: RANK must be NODE_RANK x LOCAL_WORLD_SIZE + LOCAL_RANK")
    elif (ranks := number("SLURM_STEP_NUM_TASKS", 1)) > 1:  # of this srun; a batch script has no such variable
        nodes = number("SLURM_STEP_NUM_NODES", 1)
        per_node, environment = ranks // nodes, SLURMEnvironment(auto_requeue=False)
    else:
        ranks = per_node = devices or 1
        nodes = 1
        for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
            if number(name, ranks) != ranks:  # each would train alone, and nobody would notice
                raise StartError(
                    f"{name}={env[name]}, but nothing says which ranks share a node: set LOCAL_WORLD_SIZE, NODE_RANK, "
                    "LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun and hpclaunch set them"
                )
    if ranks < 1 or ranks != per_node * nodes:
        raise StartError(f"{ranks} ranks on {nodes} nodes: Lightning needs the same number, at least one, on each node")
    if devices not in (None, per_node):
        raise StartError(f"--devices {devices}, but a launcher has set {per_node} ranks for this node; leave it out")
    return Layout(per_node, nodes, environment)


def is_later_rank() -> bool:
    """Return whether the environment says that this is not rank 0."""
    return any(os.environ.get(name, "0") != "0" for name in ("RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID"))


SPAWNING = {"ddp_spawn": "spawn", "ddp_fork": "fork"}
STRATEGIES = ("auto", "ddp", *SPAWNING, "fsdp", "deepspeed")
# What Lightning had once, and what became of it.
GONE = {
    "dp": "DataParallel, one process for all GPUs, left Lightning with 2.0; use ddp",
    "ddp2": "dp in a node and ddp between nodes left Lightning with 1.7; use ddp",
    "horovod": "Horovod left Lightning with 2.0; use ddp",
    "bagua": "Bagua left Lightning with 2.0; use ddp",
    "fairscale": "FairScale left Lightning with 2.0; use fsdp",
}


def strategy_name(name: str) -> str:
    """Reject what Lightning no longer has."""
    if name in GONE:
        raise argparse.ArgumentTypeError(f"{name}: {GONE[name]}")
    return name


def check_choices(args: argparse.Namespace, layout: Layout, on_gpu: bool) -> None:
    """Raise StartError for what cannot work here, before any rank waits for another."""
    here = "torch" if on_gpu else "no GPU for each rank here, and torch"
    strategy, cpu = f"--strategy {args.strategy}", not on_gpu
    for wrong, message in (
        (
            args.strategy in SPAWNING and layout.environment.creates_processes_externally,
            f"{strategy}: starts ranks itself, but a launcher has started these; use ddp",
        ),
        (args.strategy in ("fsdp", "deepspeed") and cpu, f"{strategy}: {here} shards a model over GPUs only; use ddp"),
        (args.backend == "nccl" and cpu, "--backend nccl: needs a GPU for each rank of the node; use gloo"),
        (
            args.backend == "mpi" and not torch.distributed.is_mpi_available(),
            "--backend mpi: this torch was built without MPI, as all from PyPI and conda are; use nccl or gloo",
        ),
        (
            args.sync_batchnorm and layout.world_size > 1 and cpu,
            f"--sync-batchnorm: {here} synchronizes batch norm on GPUs only",
        ),
        (
            args.compile and cpu and not shutil.which(os.environ.get("CXX", "g++")),
            "--compile: torch.compile needs a C++ compiler, and there is no g++ here; set CXX",
        ),
    ):
        if wrong:
            raise StartError(message)
    restarts = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"
    if restarts and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # Seen with torch 2.13: one store for all attempts, in which a new rank may find a dead one's address.
        rank_zero_warn(
            "after a restart the ranks may wait for each other in vain: set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 "
            "for torchrun, so that each attempt has a store of its own"
        )


def make_strategy(args: argparse.Namespace, layout: Layout, on_gpu: bool) -> Strategy | str:
    """Return how the ranks share the work."""
    if args.strategy == "auto" and layout.world_size == 1:
        return "auto"
    backend = args.backend or ("nccl" if on_gpu else "gloo")
    common: Any = {"process_group_backend": backend, "timeout": timedelta(seconds=args.timeout)}
    if args.strategy == "fsdp":  # "full": the checkpoint is one file, and any strategy can read its weights
        return FSDPStrategy(state_dict_type="full", **common)
    if args.strategy == "deepspeed":
        return DeepSpeedStrategy(**common)
    # No buffers to send: the only ones are of batch norm, which is in step already.
    start: Any = SPAWNING.get(args.strategy, "popen")
    return DDPStrategy(start_method=start, broadcast_buffers=False, **common)


class RollCall(Callback):
    """Shows on stderr who takes part, and ends all ranks if they cannot train together.

    `terms` is what must be the same on all of them.
    """

    def __init__(self, terms: dict[str, Any]) -> None:
        self.terms = terms

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        device, problem = trainer.strategy.root_device, ""
        name = str(device)
        if device.type == "cuda":
            name += f" {torch.cuda.get_device_name(device)}"
            problem = precision_problem(trainer.precision, torch.cuda.get_device_capability(device))
        place = trainer.global_rank, trainer.node_rank, trainer.local_rank, socket.gethostname(), name
        ranks = [(place, self.terms, problem)] * trainer.world_size
        if trainer.world_size > 1:
            torch.distributed.all_gather_object(ranks, ranks[0])
        if trainer.is_global_zero:
            show(trainer, [place for place, _, _ in ranks])
        # All ranks come to the same end: none is left waiting for one that has gone.
        for (rank, _, _, host, _), terms, problem in ranks:
            first = ranks[0][1]
            differs = [f"{key} {terms[key]}, rank 0 with {first[key]}" for key in terms if terms[key] != first[key]]
            if problem or differs:
                why = problem or f"trains with {'; '.join(differs)}"
                print(f"mnist.py: rank {rank} on {host}: {why}", file=sys.stderr, flush=True)
                os._exit(1)  # left to end in its own way, a rank of gloo aborts now and then


def show(trainer: Trainer, places: list[tuple[Any, ...]]) -> None:
    """Print what the ranks have in common, and the table of the ranks."""
    common = f"world size {trainer.world_size}, nodes {trainer.num_nodes}, precision {trainer.precision}"
    if len(places) > 1:
        environment = cast(Any, trainer.strategy).cluster_environment
        common += f", master {environment.main_address}:{environment.main_port}, {type(trainer.strategy).__name__}"
        common += f", {torch.distributed.get_backend()}, {type(environment).__name__}"
    print(f"{common}\nrank  node  local rank  host, device", file=sys.stderr)
    for rank, node, local_rank, host, device in places:
        print(f"{rank:<4}  {node:<4}  {local_rank:<10}  {host}, {device}", file=sys.stderr, flush=True)


def precision_problem(precision: str, capability: tuple[int, int]) -> str:
    """Return why a GPU of this compute capability cannot train in this precision, if so."""
    if precision == "bf16-mixed" and capability < (8, 0):
        # torch would emulate it, slower than 32 bits.
        version = ".".join(map(str, capability))
        return f"--precision bf16-mixed: a GPU has it from compute capability 8.0 on, this has {version}; use 16-mixed"
    return ""
