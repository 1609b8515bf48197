"""Train a small network on handwritten digits, on one process or on many: a start for a training of your own.

    python mnist.py                                   one process
    torchrun --nproc-per-node 4 mnist.py              four processes on this machine
    srun python mnist.py                              in a Slurm job with --ntasks-per-node, one process a task
    python mnist.py --devices 4                       the same; Lightning starts the other three
    WORLD_SIZE=8 LOCAL_WORLD_SIZE=4 NODE_RANK=0 MASTER_ADDR=node1 MASTER_PORT=29500 python mnist.py
                                                      once on each of two nodes (NODE_RANK=1 on the second):
                                                      Lightning starts the other three processes of the node

How many processes there are and where comes from the environment, else from --devices (see `find_layout`). Without
--data-dir it trains on digits that it draws itself: nothing is ever downloaded.

There are four files: this one, which reads downwards (batches, the model, checkpoints, the start), and beside it
digits.py (the data), layout.py (where the processes are, the checks before the start) and report.py (what is told and
written). `hpclaunch workload copy mnist train.py` brings them all.

A training outlives its walltime: told by SIGUSR1 or SIGTERM that the end is near, all processes save together, between
two steps, and leave with exit code 75; started again in the same way they go on with the next step (see `Checkpoints`).
"""

import argparse
import math
import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.callbacks import EarlyStopping
from pytorch_lightning.loggers import Logger
from pytorch_lightning.strategies import FSDPStrategy
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.multiprocessing.spawn import ProcessExitedException
from torch.utils.data import DistributedSampler, TensorDataset
from torchmetrics import MeanMetric

# The files beside this one.
from digits import DataError, Digits, draw_digits, read_mnist
from layout import (
    SPAWNING,
    STRATEGIES,
    Layout,
    LayoutError,
    StartError,
    check_choices,
    find_layout,
    is_later_rank,
    make_strategy,
    strategy_name,
)
from report import Report, make_loggers, make_output_dir, process_start, put_in_place, write_results

Sampler = DistributedSampler[Any] | range  # the images of one rank, by number


class DigitsData(pl.LightningDataModule):
    """The digits in memory; each rank gets its own part of them."""

    resume_at = (0, 0)  # the epoch and the step in it with which training goes on

    def __init__(self, data_dir: Path | None, batch_size: int, seed: int) -> None:
        # Read here and not in setup(), which runs when all ranks already wait for each other: bad data then ends
        # every rank at once and none hangs.
        super().__init__()
        self.batch_size, self.seed = batch_size, seed
        train, test = read_mnist(data_dir) if data_dir else (draw_digits(12_000, seed=1), draw_digits(2_000, seed=2))
        pixels = train[0].float()
        self.mean, self.std = pixels.mean().item(), pixels.std().item()
        held_out = max(1, len(train[0]) // 12)  # of MNIST's 60,000 the usual 5,000
        self.train_set = TensorDataset(train[0][held_out:], train[1][held_out:])
        self.val_set = TensorDataset(train[0][:held_out], train[1][:held_out])
        self.test_set = TensorDataset(*test)

    def train_dataloader(self) -> "Batches":
        assert self.trainer is not None
        rank, world_size = self.trainer.global_rank, self.trainer.world_size
        sampler: DistributedSampler[Any] = DistributedSampler(self.train_set, world_size, rank, seed=self.seed)
        return self.batches(self.train_set, sampler, self.resume_at)

    def val_dataloader(self) -> "Batches":
        return self.each_once(self.val_set)

    def test_dataloader(self) -> "Batches":
        return self.each_once(self.test_set)

    def each_once(self, digits: TensorDataset) -> "Batches":
        """Deal out the images without repeating any, where DistributedSampler fills up the ranks: counts are exact."""
        assert self.trainer is not None
        return self.batches(digits, range(self.trainer.global_rank, len(digits), self.trainer.world_size))

    def batches(self, digits: TensorDataset, sampler: Sampler, resume_at: tuple[int, int] = (0, 0)) -> "Batches":
        assert self.trainer is not None
        images, labels = [tensor.to(self.trainer.strategy.root_device) for tensor in digits.tensors]
        most = math.ceil(len(digits) / self.trainer.world_size)
        steps = math.ceil(most / self.batch_size)
        return Batches(images, labels, self.mean, self.std, sampler, self.batch_size, steps, resume_at)

    def transfer_batch_to_device(self, batch: Digits, device: torch.device, dataloader_idx: int) -> Digits:
        return batch  # it is there already


@dataclass(eq=False)
class Batches:
    """One rank's images in batches, gathered where they lie: in the memory of the rank's own device.

    A DataLoader fetches image by image, in Python, which takes time or more processes. What fits into memory needs
    neither: a batch is one gathering of bytes, made into numbers on the way. Lightning takes any iterable with a length
    for a loader, and tells each epoch to what it finds in `sampler`.

    There are `steps` batches on every rank, since a batch is where all ranks meet; the last may be smaller, or empty.
    In the epoch with which training goes on those already used are left out, but not from the length: Lightning goes
    on counting from the step of the checkpoint.
    """

    images: Tensor
    labels: Tensor
    mean: float
    std: float
    sampler: Sampler
    batch_size: int
    steps: int
    resume_at: tuple[int, int] = (0, 0)  # the epoch and the step in it

    batch_sampler = None  # Lightning asks for it where there is a sampler

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Digits]:
        order = torch.tensor(list(self.sampler), dtype=torch.int64, device=self.images.device)
        epoch, step = self.resume_at
        first = step if getattr(self.sampler, "epoch", None) == epoch else 0
        for begin in range(first * self.batch_size, self.steps * self.batch_size, self.batch_size):
            chosen = order[begin : begin + self.batch_size]
            images = self.images.index_select(0, chosen).sub(self.mean).div_(self.std)
            yield images[:, None], self.labels.index_select(0, chosen).long()


def make_network(name: str, batch_norm: bool = False) -> nn.Sequential:
    """Return the network of this name: images (n, 1, 28, 28) to the scores of the ten digits (n, 10)."""

    def norm(channels: int) -> list[nn.Module]:
        return [nn.BatchNorm2d(channels)] if batch_norm else []

    if name == "perceptron":  # 0.1 million parameters
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    if name == "cnn-large":  # 1.2 million, that of https://github.com/pytorch/examples/blob/main/mnist/main.py
        return nn.Sequential(
            *(nn.Conv2d(1, 32, kernel_size=3), *norm(32), nn.ReLU()),  # 28 x 28 -> 26 x 26
            *(nn.Conv2d(32, 64, kernel_size=3), *norm(64), nn.ReLU()),  # -> 24 x 24
            *(nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten()),  # -> 12 x 12
            *(nn.Linear(64 * 12 * 12, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)),
        )
    return nn.Sequential(  # 0.2 million
        *(nn.Conv2d(1, 16, kernel_size=5, stride=2, padding=2), *norm(16), nn.ReLU()),  # 28 x 28 -> 14 x 14
        *(nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1), *norm(32), nn.ReLU()),  # -> 7 x 7
        *(nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


# The learning rate by the factor n by which a step's batch is larger than that of one rank. With Adam the square root
# (Malladi et al. 2022, https://arxiv.org/abs/2205.10287), with plain SGD n (Goyal et al. 2017,
# https://arxiv.org/abs/1706.02677), both after a warm-up.
LR_SCALING = {"none": lambda _: 1.0, "sqrt": math.sqrt, "linear": float}


def lr_factor(step: int, warmup: float, steps: int) -> float:
    """Return the part of the peak learning rate at a step: a linear rise in `warmup` steps, then a cosine to 0."""
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return (1 + math.cos(math.pi * min(1, (step - warmup) / max(1, steps - warmup)))) / 2


PARTS = ("val", "test")


class DigitsModel(pl.LightningModule):
    """A network, its loss, its exact metrics, and how it learns."""

    def __init__(
        self,
        lr: float,
        network: str = "cnn",
        batch_norm: bool = False,
        lr_scaling: str = "sqrt",
        warmup: float | None = None,
    ) -> None:
        super().__init__()
        self.lr, self.lr_scaling, self.warmup = lr, lr_scaling, warmup
        self.net = make_network(network, batch_norm)
        # Each adds up its sum and its count over all images and ranks, and divides at the end. A mean of the ranks'
        # means would be another number, since they have not the same number of images.
        self.metrics = nn.ModuleDict(
            {f"{part} {what}": MeanMetric() for part in PARTS for what in ("accuracy", "loss")}
        )

    # What is to be known of an epoch is added up on the device and logged at its end. `self.log` in every step costs
    # more than a small network's forward pass, and `item()` in a step makes a GPU wait.

    def on_train_start(self) -> None:
        self.loss_sum, self.images_seen = torch.zeros((), device=self.device), 0

    def training_step(self, batch: Digits, batch_idx: int) -> Tensor:
        images, labels = batch
        loss = F.cross_entropy(self.net(images), labels)
        self.loss_sum.add_(loss.detach(), alpha=len(labels))
        self.images_seen += len(labels)
        return loss

    def validation_step(self, batch: Digits, batch_idx: int) -> None:
        self.evaluate("val", batch)

    def test_step(self, batch: Digits, batch_idx: int) -> None:
        self.evaluate("test", batch)

    def evaluate(self, part: str, batch: Digits) -> None:
        images, labels = batch
        scores = self.net(images).float()
        values = {"accuracy": scores.argmax(1) == labels, "loss": F.cross_entropy(scores, labels, reduction="none")}
        for what, value in values.items():
            metric = cast(MeanMetric, self.metrics[f"{part} {what}"])
            metric.update(value.float())
            self.log(f"{part} {what}", metric, on_step=False, on_epoch=True)

    def on_train_epoch_end(self) -> None:
        self.log("loss", self.loss_sum / self.images_seen, sync_dist=True)
        self.on_train_start()
        metrics = self.trainer.callback_metrics  # on every rank: reading them adds up over the ranks
        loss, accuracy = metrics["loss"].item(), 100 * metrics["val accuracy"].item()
        self.print(f"epoch {self.current_epoch + 1}: loss {loss:.4f}, val accuracy {accuracy:.2f} %")
        sys.stdout.flush()  # Python keeps what goes to a log file back; self.print takes no flush=True

    def configure_optimizers(self) -> Any:
        trainer = self.trainer
        peak = self.lr * LR_SCALING[self.lr_scaling](trainer.world_size * trainer.accumulate_grad_batches)
        optimizer = torch.optim.AdamW(self.parameters(), lr=peak, weight_decay=0.01)
        steps = int(trainer.estimated_stepping_batches)
        # A rise at the start bears a high peak, so a few epochs are enough.
        epochs = trainer.max_epochs or 1
        warmup = steps * (0.3 if self.warmup is None else self.warmup / epochs)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: lr_factor(step, warmup, steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(self, optimizer: Any, *limits: Any, **named: Any) -> None:
        limit = named.get("gradient_clip_val", limits[0] if limits else None)
        if limit and isinstance(self.trainer.strategy, FSDPStrategy):  # a rank sees a part of the gradient only
            cast(Any, self.trainer.model).clip_grad_norm_(limit)
        else:
            self.clip_gradients(optimizer, gradient_clip_val=limit, gradient_clip_algorithm="norm")


class Checkpoints(pl.Callback):
    """Saves the training at the end of each epoch and when SIGUSR1 or SIGTERM comes, and puts a saved one back.

    mnist.ckpt is the last, mnist-best.ckpt the one of the best validation accuracy. Saving and going on happen at one
    point, `on_train_batch_start` where the step before is done and this one has not begun, so none is trained twice or
    left out. With another number of ranks or another batch size training goes on at the same image, rounded down to a
    step, and at that step of the learning rate's schedule.
    """

    # Whether this process has had one of the signals. Shared with the processes that ddp_spawn and ddp_fork start.
    stop_asked = torch.zeros((), dtype=torch.bool).share_memory_()  # type: ignore[no-untyped-call]

    def __init__(self, folder: Path | None, data: DigitsData, network: str = "cnn", save_every: int = 0) -> None:
        self.path, self.data = folder and folder / "mnist.ckpt", data
        self.network, self.save_every = network, save_every
        self.stop_asked = Checkpoints.stop_asked
        self.step = 0  # of this epoch
        self.rng: dict[str, Tensor] = {}  # states to put back before the first step
        self.steps_since_vote, self.steps_per_vote, self.last_vote = 0, 1, -math.inf
        self.stopping = False
        self.accuracy, self.best = -1.0, -1.0  # of the last validation, and the highest that is saved

    @classmethod
    def ask_to_stop(cls, *_: object) -> None:
        """Take a signal: only note it, since it comes in the middle of a step."""
        cls.stop_asked.fill_(True)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if stage == "fit":
            Checkpoints.stop_asked = self.stop_asked  # another one in a process that ddp_spawn has started
            signal.signal(signal.SIGUSR1, self.ask_to_stop)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        steps = torch.tensor([trainer.global_step, -trainer.global_step], device=pl_module.device)
        last, first = trainer.strategy.reduce(steps, reduce_op="max").tolist()
        if last != -first:
            sys.exit(f"mnist.py: the ranks start from steps {-first} to {last}; does every node see {self.path}?")
        if self.path:  # preemption, or a scheduler's end; Lightning's own handler is back after the training
            signal.signal(signal.SIGTERM, self.ask_to_stop)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.accuracy = float(trainer.callback_metrics["val accuracy"])

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: object, batch_idx: int
    ) -> None:
        if self.rng:
            torch.set_rng_state(self.rng["cpu"])
            if "cuda" in self.rng and pl_module.device.type == "cuda":
                torch.cuda.set_rng_state(self.rng["cuda"])
            self.rng = {}
        first_step, self.step = self.step, batch_idx
        if not self.path:
            return
        self.stopping = self.stopping or self.vote(trainer, pl_module.device)
        if batch_idx % trainer.accumulate_grad_batches:  # gradients in the middle of adding up are not saved
            return
        epoch_done = batch_idx == 0 and trainer.current_epoch > 0
        due = self.save_every and trainer.global_step % self.save_every == 0 and batch_idx > first_step
        if self.stopping or epoch_done or due:
            self.save(trainer)
        if self.stopping:
            self.leave(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.step = 0  # of the epoch that would come next
        if self.path:
            self.save(trainer)

    def leave(self, trainer: pl.Trainer) -> None:
        """End all ranks at once with exit code 75, "try again": all is saved."""
        if trainer.is_global_zero:
            where = f"epoch {trainer.current_epoch + 1}, step {trainer.global_step}"
            print(f"saved {self.path}: {where}; start again to go on", flush=True)
        # A launcher ends the others once one has left. Lightning would answer its SIGTERM with a broadcast.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            trainer.strategy.barrier()  # until rank 0 has replaced the file
        finally:
            os._exit(os.EX_TEMPFAIL)  # 75, at once: in a teardown the ranks would leave seconds apart

    def vote(self, trainer: pl.Trainer, device: torch.device) -> bool:
        """Return whether any rank has been asked to stop: before each step the same answer on all ranks.

        They ask each other at the start of an epoch and about once a second, since asking costs as much as a small
        step. In how many steps a second will have passed is a part of what they agree on.
        """
        self.steps_since_vote += 1
        if self.steps_since_vote < self.steps_per_vote and self.step > 0:
            return False
        step_seconds = (time.monotonic() - self.last_vote) / self.steps_since_vote
        votes = torch.tensor([self.stop_asked, step_seconds], device=device)
        stop, slowest = trainer.strategy.reduce(votes, reduce_op="max").tolist()
        self.steps_since_vote, self.steps_per_vote, self.last_vote = 0, min(100, 1 + int(1 / slowest)), time.monotonic()
        return bool(stop)

    def save(self, trainer: pl.Trainer) -> None:
        """Write the checkpoint on rank 0; a kill at any moment leaves the file of before or the new one."""
        assert self.path
        part, better = self.path.with_suffix(".part"), self.accuracy > self.best
        self.best = max(self.best, self.accuracy)
        trainer.save_checkpoint(part, weights_only=False)
        if trainer.is_global_zero:
            if better:
                shutil.copyfile(part, copy := self.path.with_name("mnist-best.part"))
                put_in_place(copy, self.path.with_name("mnist-best.ckpt"))
            put_in_place(part, self.path)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best = self.accuracy = state_dict["best"]

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint["network"] = self.network
        checkpoint["images"] = self.step * self.data.batch_size * trainer.world_size
        checkpoint["rng"] = {"cpu": torch.get_rng_state()}  # rank 0's serve for all: one seed, and all draw alike
        if pl_module.device.type == "cuda":
            checkpoint["rng"]["cuda"] = torch.cuda.get_rng_state()

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        batch_size, epoch = self.data.batch_size * trainer.world_size, checkpoint["epoch"]
        accumulate = trainer.accumulate_grad_batches
        self.step = step = checkpoint["images"] // batch_size // accumulate * accumulate
        self.data.resume_at = (epoch, step)
        # Lightning's count has the batch of the next step fetched already, and is of the ranks that saved it.
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        progress |= {"current": dict.fromkeys(progress["current"], step), "is_last_batch": False}
        # Of the schedule only its place: what follows from the number of steps is already set up.
        batches = math.ceil(len(self.data.train_set) / batch_size)
        steps = epoch * math.ceil(batches / accumulate) + step // accumulate
        checkpoint["lr_schedulers"] = [{"last_epoch": steps, "_step_count": steps + 1, "lr_lambdas": [None]}]


class Patience(EarlyStopping):
    """Stops when so many epochs have not raised the validation accuracy; counts on where a checkpoint has stopped."""

    def __init__(self, epochs: int) -> None:
        super().__init__("val accuracy", mode="max", patience=epochs)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict | {"patience": self.patience})  # that of now, not of then

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.should_stop = self.wait_count >= self.patience


def find_checkpoint(resume: str, own: Path | None) -> Path | None:
    """Return the checkpoint to go on with, if any: `resume` is auto, never or a path, `own` is where this run saves."""
    # A choice is for the first start; later attempts and torchrun's restarts go on where the one before has stopped.
    later = max(
        int(os.environ.get("HPCLAUNCH_ATTEMPT", "1")) - 1, int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    )
    if own and own.exists() and (resume == "auto" or later):
        return own
    return None if resume in ("auto", "never") else Path(resume)


def load_checkpoint(path: Path, model: DigitsModel, network: str, epochs: int) -> dict[str, Any]:
    """Return a checkpoint, or raise StartError if it is none of this training."""
    advice = "move it away, or start anew with --resume never"
    try:
        checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        if checkpoint.get("network", network) != network:
            raise StartError(f"{path}: was trained with --model {checkpoint['network']}, not {network}; {advice}")
        model.load_state_dict(checkpoint["state_dict"])
        epoch, _, _, _ = [checkpoint[key] for key in ("epoch", "global_step", "images", "rng")]
    except StartError:
        raise
    except Exception as error:  # a broken file makes torch.load raise any of a dozen kinds
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise StartError(f"{path}: is no checkpoint of this training ({reason}); {advice}") from error
    if epoch > epochs:
        raise StartError(f"{path}: has {epoch} epochs behind it, more than --epochs {epochs}")
    return checkpoint


# The options that must be the same on all ranks, or they wait for each other or learn something else.
TERMS = ("model", "epochs", "batch_size", "accumulate", "lr", "seed", "precision", "sync_batchnorm", "patience")


def make_trainer(
    args: argparse.Namespace, layout: Layout, on_gpu: bool, loggers: list[Logger], callbacks: list[pl.Callback]
) -> pl.Trainer:
    """Set up Lightning for the ranks and GPUs that are there."""
    return pl.Trainer(
        accelerator="gpu" if on_gpu else "cpu",
        devices=layout.per_node,
        num_nodes=layout.nodes,
        strategy=make_strategy(args, layout, on_gpu),
        plugins=[layout.environment],
        precision="32-true" if args.precision == "32" else args.precision,
        max_epochs=args.epochs,
        accumulate_grad_batches=args.accumulate,
        gradient_clip_val=args.clip,
        sync_batchnorm=args.sync_batchnorm and layout.world_size > 1,
        deterministic=args.deterministic or None,
        callbacks=callbacks,
        logger=loggers,
        use_distributed_sampler=False,  # DigitsData brings its own
        num_sanity_val_steps=0,
        enable_checkpointing=False,  # Checkpoints does it
        enable_model_summary=False,
        enable_progress_bar=sys.stdout.isatty(),  # in a log file a bar is a thousand lines
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a small network on handwritten digits.", usage="%(prog)s [options]"
    )

    def number(least: float, kind: type = int) -> Any:
        def check(text: str) -> Any:
            value = kind(text)
            if not least <= value < math.inf:
                raise argparse.ArgumentTypeError(f"{text}: must be at least {least}")
            return value

        check.__name__ = kind.__name__  # argparse says: invalid int value
        return check

    learn = parser.add_argument_group("what is learned, and how")
    learn.add_argument("--model", choices=("cnn", "cnn-large", "perceptron"), default="cnn")
    learn.add_argument("--epochs", type=number(1), default=10)
    learn.add_argument("--batch-size", type=number(1), default=64, help="images per step on each rank (%(default)s)")
    learn.add_argument("--accumulate", type=number(1), default=1, metavar="N", help="add up N batches for one step")
    learn.add_argument("--lr", type=number(0, float), default=3e-3, help="peak learning rate of one rank (%(default)s)")
    learn.add_argument(
        "--lr-scaling",
        choices=LR_SCALING,
        default="sqrt",
        help="of --lr with ranks x accumulated batches (%(default)s)",
    )
    learn.add_argument("--warmup", type=number(0, float), metavar="EPOCHS", help="rise of the rate (0.3 x --epochs)")
    learn.add_argument("--clip", type=number(0, float), metavar="NORM", help="scale larger gradients down to this norm")
    learn.add_argument("--sync-batchnorm", action="store_true", help="batch norm over the batch of all ranks")
    learn.add_argument(
        "--patience", type=number(1), metavar="N", help="stop when N epochs have not raised val accuracy"
    )
    learn.add_argument("--seed", type=number(0), default=0, help="of the network and the order of images (%(default)s)")
    learn.add_argument(
        "--deterministic", action="store_true", help="only algorithms that repeat bit for bit, on GPUs too"
    )

    ranks = parser.add_argument_group("ranks and hardware")
    ranks.add_argument(
        "--strategy",
        type=strategy_name,
        choices=STRATEGIES,
        default="auto",
        help="how ranks share the work (%(default)s: ddp where there are several)",
    )
    ranks.add_argument("--devices", type=number(1), metavar="N", help="ranks here, where no launcher tells")
    ranks.add_argument(
        "--backend", choices=("nccl", "gloo", "mpi"), help="of the ranks' talk (nccl on GPUs, else gloo)"
    )
    ranks.add_argument(
        "--precision", choices=("32", "32-true", "16-mixed", "bf16-mixed"), default="32", help="(%(default)s)"
    )
    ranks.add_argument("--compile", action="store_true", help="by torch.compile")
    ranks.add_argument(
        "--timeout", type=number(1), default=600, metavar="SECONDS", help="to wait for other ranks (%(default)s)"
    )

    files = parser.add_argument_group("files")
    files.add_argument(
        "--data-dir",
        type=Path,
        default=os.environ.get("MNIST_DIR") or None,
        help="folder with MNIST's IDX files or mnist.npz ($MNIST_DIR, else digits drawn here)",
    )
    files.add_argument(
        "--output-dir",
        type=Path,
        default=os.environ.get("HPCLAUNCH_RUN_DIR") or None,
        help="for checkpoints and metrics, seen by all nodes ($HPCLAUNCH_RUN_DIR, else metrics in ./lightning_logs)",
    )
    files.add_argument(
        "--resume",
        default="auto",
        metavar="auto|never|PATH",
        help="go on with the mnist.ckpt in --output-dir if there is one; start anew; go on with PATH (%(default)s)",
    )
    files.add_argument("--save-every", type=number(1), default=0, metavar="STEPS", help="save also within an epoch")
    files.add_argument("--plot", action="store_true", help="draw loss.png and accuracy.png")
    return parser.parse_args()


def fit(trainer: pl.Trainer, model: DigitsModel, data: DigitsData, resumed: Path | None, timeout: int) -> None:
    """Train, and tell an end that is no fault of the training from one that is."""
    try:
        trainer.fit(model, data, ckpt_path=resumed)
    except ProcessExitedException as error:  # a rank of ddp_spawn has left: what it has told is all there is to tell
        sys.exit(error.exit_code)
    except (torch.distributed.DistStoreError, torch.distributed.DistNetworkError) as error:
        reason = str(error).splitlines()[0]
        sys.exit(f"mnist.py: not all {trainer.world_size} ranks came together within {timeout} s: {reason}")


def ignore_warnings() -> None:
    warnings.filterwarnings("ignore", message="The `srun` command is available")  # find_layout knows who started us
    warnings.filterwarnings("ignore", message="The number of training batches")  # what is logged is of whole epochs
    warnings.filterwarnings("ignore", category=FutureWarning, module="pytorch_lightning")  # how Lightning calls torch
    warnings.filterwarnings("ignore", message="You're resuming .* not resumable")  # Batches are


def leave() -> None:
    """End this process, if it is a rank of several."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        # Left to end in its own way, a process aborts now and then after all is done (torch 2.13, gloo: "terminate
        # called without an active exception"), and its launcher takes the training for a failed one.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def main() -> None:
    signal.signal(signal.SIGUSR1, Checkpoints.ask_to_stop)  # before it only the imports: nothing to save yet
    start, args = time.perf_counter(), parse_arguments()
    try:
        layout = find_layout(args.devices)
        gpus = torch.cuda.device_count()
        on_gpu = gpus >= layout.per_node
        if 0 < gpus < layout.per_node:  # a task that sees only its own GPU (srun --gpus-per-task) looks like this too
            rank_zero_warn(f"{layout.per_node} ranks on this node, but each sees {gpus} GPU(s): training on the CPU")
        check_choices(args, layout, on_gpu)
        # More threads than cores wait for each other; a process that has used several cannot be forked.
        cores = 1 if args.strategy == "ddp_fork" else (os.cpu_count() or 1) // layout.per_node
        torch.set_num_threads(max(1, min(torch.get_num_threads(), cores)))
        data = DigitsData(args.data_dir, args.batch_size, args.seed)
        pl.seed_everything(args.seed)  # the same first weights on every rank
        model = DigitsModel(args.lr, args.model, args.sync_batchnorm, args.lr_scaling, args.warmup)
        make_output_dir(args.output_dir or Path())
        saves = args.output_dir if args.strategy != "deepspeed" else None  # its checkpoint is a folder of parts
        checkpoints = Checkpoints(saves, data, args.model, args.save_every)
        resumed = find_checkpoint(args.resume, checkpoints.path)
        checkpoint = load_checkpoint(resumed, model, args.model, args.epochs) if resumed else {}
        checkpoints.rng = checkpoint.get("rng", {})
    except (StartError, DataError, OSError) as error:
        if is_later_rank() and not isinstance(error, LayoutError):
            time.sleep(10)  # rank 0 tells it and its launcher ends this rank; if not, it is wrong here alone
        sys.exit(f"mnist.py: {error}")

    ignore_warnings()
    loggers = make_loggers(args.output_dir or Path(), first_rank=not is_later_rank())
    folder = args.output_dir or Path(loggers[0].log_dir or "")
    terms = {"images": len(data.train_set)} | {name: getattr(args, name) for name in TERMS}
    report = Report(layout, terms, folder if args.plot else None, process_start())
    callbacks: list[pl.Callback] = [report, checkpoints]
    if args.patience:
        callbacks.append(Patience(args.patience))
    trainer = make_trainer(args, layout, on_gpu, loggers, callbacks)
    if args.compile:
        model.net.compile()
    if args.strategy in SPAWNING and checkpoints.path:  # this process is none of the ranks, but it is the one told
        signal.signal(signal.SIGTERM, Checkpoints.ask_to_stop)
    if resumed and trainer.is_global_zero:
        where = f"epoch {min(checkpoint['epoch'] + 1, args.epochs)}, step {checkpoint['global_step']}"
        print(f"resumed from {resumed}: {where}", flush=True)
    fit(trainer, model, data, resumed, args.timeout)
    trained = {name: float(value) for name, value in trainer.callback_metrics.items()}
    trainer.loggers = []  # ddp_spawn tests in other processes, where CSVLogger would begin its file anew
    tested = trainer.test(model, data, verbose=False)[0]
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # all is done; a handler would not last to the very end of Python
    if trainer.is_global_zero:
        write_results(trainer, tested, trained, folder)
        print(
            f"test accuracy: {100 * tested['test accuracy']:.2f} % (world size {trainer.world_size}, "
            f"{len(data.train_set)} training images, {args.epochs} epochs, {time.perf_counter() - start:.1f} s)",
            flush=True,
        )
    leave()


if __name__ == "__main__":
    main()
