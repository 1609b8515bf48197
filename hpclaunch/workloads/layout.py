"""Where the ranks of mnist.py and resnet.py are, how they share the work, and what is checked before they wait.

Nothing here knows what is trained. A mistake found here ends a job in seconds; found later, it is ranks that wait for
each other until the walltime is over.
"""

import argparse
import os
import re
import socket
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.plugins.environments import LightningEnvironment, SLURMEnvironment  # type: ignore[attr-defined]
from pytorch_lightning.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy, Strategy
from pytorch_lightning.utilities import rank_zero_warn

from resume import trainer_places


class StartError(Exception):
    """The training cannot start; the message says what is wrong, where, and what to use."""


class Layout(NamedTuple):
    """Ranks per node, nodes, the reader of this process's own rank, and whether each rank has a GPU."""

    per_node: int
    nodes: int
    environment: LightningEnvironment | SLURMEnvironment
    on_gpu: bool


def find_layout(args: argparse.Namespace) -> Layout:
    """Read from the environment where the ranks are, else from the options.

    The reader is named rather than left to Lightning, which takes any Slurm variables for `srun`: `python` in a
    batch script would wait for ranks that nobody started.
    """
    env = os.environ
    devices = args.devices or len(args.gpu_ids or ()) or None
    use_classic_options(args, devices or 1)

    places = trainer_places()
    environment: LightningEnvironment | SLURMEnvironment = LightningEnvironment()
    per_node, nodes = places.get("devices", devices or 1), places.get("num_nodes", 1)
    launched = "WORLD_SIZE" in env and "LOCAL_WORLD_SIZE" in env  # by torchrun, a job script, or by hand
    if places and not launched:
        environment = SLURMEnvironment(auto_requeue=False)
    ranks = int(env["WORLD_SIZE" if launched else "SLURM_STEP_NUM_TASKS"]) if places else per_node
    for name in () if places else ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        if int(env.get(name, ranks)) != ranks:  # each would train alone, and nobody would notice
            raise StartError(
                f"{name}={env[name]}, but nothing says which ranks share a node: set LOCAL_WORLD_SIZE, NODE_RANK, "
                "LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun and hpclaunch set them"
            )
    if ranks < 1 or ranks != per_node * nodes:
        raise StartError(f"{ranks} ranks on {nodes} nodes: Lightning needs the same number, at least one, on each node")
    if devices not in (None, per_node):
        raise StartError(f"--devices {devices}, but a launcher has set {per_node} ranks for this node; leave it out")
    gpus = torch.cuda.device_count()
    if 0 < gpus < per_node:  # a task that sees only its own GPU (srun --gpus-per-task) looks like this too
        rank_zero_warn(f"{per_node} ranks on this node, but each sees {gpus} GPU(s): training on the CPU")
    return Layout(per_node, nodes, environment, gpus >= per_node)


def use_classic_options(args: argparse.Namespace, per_node: int) -> None:
    """Set the variables that --gpu_ids, --dist_url, --world_size and --rank stand for, unless a launcher has.

    A process that has been started by hand with a --rank starts as many ranks as it has --gpu_ids.
    """
    meant: dict[str, object] = {}
    if args.gpu_ids:
        meant["CUDA_VISIBLE_DEVICES"] = ",".join(args.gpu_ids)
    if args.dist_url and args.dist_url != "env://":
        found = re.fullmatch(r"tcp://(.+):(\d+)", args.dist_url)
        if not found:
            raise StartError(f"--dist_url {args.dist_url}: must be tcp://HOST:PORT or env://")
        meant["MASTER_ADDR"], meant["MASTER_PORT"] = found.groups()
    if (args.world_size is None) != (args.rank is None):
        raise StartError("--world_size and --rank belong together; use both, or leave them to the launcher")
    if args.rank is not None:
        meant |= {"WORLD_SIZE": args.world_size, "LOCAL_WORLD_SIZE": per_node, "NODE_RANK": args.rank // per_node}
    if not trainer_places():
        os.environ.update({name: str(value) for name, value in meant.items()})
    elif (launched := os.environ.get("WORLD_SIZE")) and args.world_size not in (None, int(launched)):
        raise StartError(f"--world_size {args.world_size}, but a launcher has set WORLD_SIZE={launched}; leave it out")


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
    "ddp_sharded": "FairScale's sharded ddp left Lightning with 2.0; use fsdp",
}


def strategy_name(name: str) -> str:
    """Reject what Lightning no longer has."""
    if name in GONE:
        raise argparse.ArgumentTypeError(f"{name}: {GONE[name]}")
    return name


def check_choices(args: argparse.Namespace, layout: Layout) -> None:
    """Raise StartError for what cannot work here, before any rank waits for another."""
    cpu = not layout.on_gpu
    here, strategy = "no GPU for each rank here, and torch", f"--strategy {args.strategy}"
    for wrong, message in (
        (
            args.strategy in SPAWNING and layout.environment.creates_processes_externally,
            f"{strategy}: starts ranks itself, but a launcher has started these; use ddp",
        ),
        (args.strategy in ("fsdp", "deepspeed") and cpu, f"{strategy}: {here} shards a model over GPUs only; use ddp"),
        (args.backend == "nccl" and cpu, "--backend nccl: needs a GPU for each rank of the node; use gloo"),
        (
            args.sync_batchnorm and layout.per_node * layout.nodes > 1 and cpu,
            f"--sync-batchnorm: {here} synchronizes batch norm on GPUs only",
        ),
        (
            # torch would emulate it, slower than 32 bits. What asks the GPU cannot spawn ranks afterwards.
            args.precision == "bf16-mixed"
            and not (cpu or args.strategy in SPAWNING)
            and torch.cuda.get_device_capability() < (8, 0),
            "--precision bf16-mixed: a GPU has it from compute capability 8.0 on, this one has not; use 16-mixed",
        ),
    ):
        if wrong:
            raise StartError(message)
    restarts = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"
    if restarts and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # Seen with torch 2.13: one store for all attempts, in which a new rank may find a dead one's address.
        rank_zero_warn("restarted ranks may wait in vain for each other: set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1")


def make_strategy(args: argparse.Namespace, layout: Layout) -> Strategy | str:
    """Return how the ranks share the work."""
    if args.strategy == "auto" and layout.per_node * layout.nodes == 1:
        return "auto"
    backend = args.backend or ("nccl" if layout.on_gpu else "gloo")
    common: Any = {"process_group_backend": backend, "timeout": timedelta(seconds=args.timeout)}
    if args.strategy == "fsdp":  # "full": the checkpoint is one file, and any strategy can read its weights
        return FSDPStrategy(state_dict_type="full", **common)
    if args.strategy == "deepspeed":
        return DeepSpeedStrategy(**common)
    # Buffers, those of batch norm, are sent before a validation only.
    start: Any = SPAWNING.get(args.strategy, "popen")
    return DDPStrategy(start_method=start, broadcast_buffers=False, **common)


class RollCall(Callback):
    """Shows on stderr who takes part, and ends all ranks if they cannot train together.

    `terms` is what must be the same on all of them, or they wait for each other or learn something else.
    """

    def __init__(self, terms: dict[str, Any]) -> None:
        self.terms = {name: value for name, value in terms.items() if not isinstance(value, Path) and name != "rank"}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        device = trainer.strategy.root_device
        name = f"{device} {torch.cuda.get_device_name(device)}" if device.type == "cuda" else str(device)
        place = trainer.global_rank, trainer.node_rank, trainer.local_rank, socket.gethostname(), name
        ranks = [(place, self.terms)] * trainer.world_size
        if trainer.world_size > 1:
            torch.distributed.all_gather_object(ranks, ranks[0])
        if trainer.is_global_zero:
            common = f"world size {trainer.world_size}, nodes {trainer.num_nodes}, precision {trainer.precision}"
            if len(ranks) > 1:
                strategy, meeting = type(trainer.strategy).__name__, cast(Any, trainer.strategy).cluster_environment
                common += f", master {meeting.main_address}:{meeting.main_port}, {strategy}"
                common += f", {torch.distributed.get_backend()}, {type(meeting).__name__}"
            print(f"{common}\nrank  node  local rank  host, device", file=sys.stderr)
            for (rank, node, local_rank, host, name), _ in ranks:
                print(f"{rank:<4}  {node:<4}  {local_rank:<10}  {host}, {name}", file=sys.stderr, flush=True)
        # All ranks come to the same end: none is left waiting for one that has gone.
        for (rank, _, _, host, _), terms in ranks:
            first = ranks[0][1]
            differs = [f"{key} {terms[key]}, rank 0 with {first[key]}" for key in terms if terms[key] != first[key]]
            if differs:
                why = f"rank {rank} on {host}: trains with {'; '.join(differs)}"
                print(f"{Path(sys.argv[0]).name}: {why}", file=sys.stderr, flush=True)
                os._exit(1)  # left to end in its own way, a rank of gloo aborts now and then
