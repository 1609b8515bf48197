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

There are three files: this one, which reads downwards (batches, the model, checkpoints, results, the start), and beside
it digits.py (the data) and layout.py (where the processes are, the checks before the start).
`hpclaunch workload copy mnist train.py` brings them all.

A training outlives its walltime: on SIGUSR1 or SIGTERM all processes save together, between two steps, and leave with
exit code 75; started again in the same way they go on with the next step (see `Checkpoints`).
"""

import argparse
import importlib.util
import json
import math
import multiprocessing.util
import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from pytorch_lightning import Callback, LightningDataModule, LightningModule, Trainer, seed_everything
from pytorch_lightning.callbacks import EarlyStopping
from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger
from pytorch_lightning.strategies import FSDPStrategy
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.multiprocessing.spawn import ProcessExitedException
from torch.utils.data import DistributedSampler, TensorDataset

# The files beside this one.
from digits import DataError, Digits, draw_digits, read_mnist
from layout import (
    SPAWNING,
    STRATEGIES,
    Layout,
    RollCall,
    StartError,
    check_choices,
    find_layout,
    is_later_rank,
    make_strategy,
    strategy_name,
)


class DigitsData(LightningDataModule):
    """The digits in memory; each rank gets its own part of them."""

    resume_at = (0, 0)  # the epoch and the step in it with which training goes on

    def __init__(self, args: argparse.Namespace) -> None:
        # Read here and not in setup(), which runs when all ranks already wait for each other: bad data then ends
        # every rank at once and none hangs.
        super().__init__()
        self.batch_size, self.seed = args.batch_size, args.seed
        source = args.data_dir
        train, test = read_mnist(source) if source else (draw_digits(12_000, seed=1), draw_digits(2_000, seed=2))
        pixels = train[0].float()
        self.mean, self.std = pixels.mean().item(), pixels.std().item()
        held_out = max(1, len(train[0]) // 12)  # of MNIST's 60,000 the usual 5,000
        self.train_set = TensorDataset(train[0][held_out:], train[1][held_out:])
        self.val_set = TensorDataset(train[0][:held_out], train[1][:held_out])
        self.test_set = TensorDataset(*test)

    def train_dataloader(self) -> "Batches":
        return Batches(self, self.train_set, shuffle=True)

    def val_dataloader(self) -> "Batches":
        return Batches(self, self.val_set)

    def test_dataloader(self) -> "Batches":
        return Batches(self, self.test_set)


class Batches:
    """One rank's images in batches, gathered where they lie: in the memory of the rank's own device.

    A DataLoader fetches image by image, in Python, which takes time or more processes. What fits into memory needs
    neither: a batch is one gathering of bytes, made into numbers on the way. Lightning takes any iterable with a length
    for a loader, and tells each epoch to what it finds in `sampler`.

    There are as many batches on every rank, since a batch is where all ranks meet; the last may be smaller, or empty.
    In the epoch with which training goes on those already used are left out, but not from the length: Lightning goes
    on counting from the step of the checkpoint.
    """

    batch_sampler = None  # Lightning asks for it if there is a sampler

    def __init__(self, data: DigitsData, digits: TensorDataset, shuffle: bool = False) -> None:
        trainer: Any = data.trainer
        rank, world_size = trainer.global_rank, trainer.world_size
        self.data, self.resume_at = data, data.resume_at  # as it is now
        self.images, self.labels = [tensor.to(trainer.strategy.root_device) for tensor in digits.tensors]
        self.sampler: Any = range(rank, len(digits), world_size)  # each image once: counts are exact
        if shuffle:  # fills up the ranks: all have the same number of images
            self.sampler = DistributedSampler(digits, world_size, rank, seed=data.seed)
        self.steps: int = math.ceil(math.ceil(len(digits) / world_size) / data.batch_size)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Digits]:
        order = torch.tensor(list(self.sampler), dtype=torch.int64, device=self.images.device)
        epoch, step = self.resume_at
        first = step if getattr(self.sampler, "epoch", None) == epoch else 0
        for batch in range(first, self.steps):
            chosen = order[batch * self.data.batch_size :][: self.data.batch_size]
            images = self.images.index_select(0, chosen).sub(self.data.mean).div_(self.data.std)
            yield images[:, None], self.labels.index_select(0, chosen).long()


def make_network(name: str, batch_norm: bool = False) -> nn.Sequential:
    """Return the network of this name: images (n, 1, 28, 28) to the scores of the ten digits (n, 10)."""

    def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0) -> list[nn.Module]:
        norm = [nn.BatchNorm2d(outputs)] if batch_norm else []
        return [nn.Conv2d(inputs, outputs, kernel, stride, padding), *norm, nn.ReLU()]

    def head(features: int) -> list[nn.Module]:
        return [nn.Flatten(), nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, 10)]

    if name == "perceptron":  # 0.1 million parameters
        return nn.Sequential(*head(784))
    if name == "cnn-large":  # 1.2 million, that of https://github.com/pytorch/examples/blob/main/mnist/main.py
        flatten, hidden, relu, scores = head(64 * 12 * 12)
        return nn.Sequential(
            *convolution(1, 32, 3),  # 28 x 28 -> 26 x 26
            *convolution(32, 64, 3),  # -> 24 x 24
            nn.MaxPool2d(2),  # -> 12 x 12
            *(nn.Dropout(0.25), flatten, hidden, relu, nn.Dropout(0.5), scores),
        )
    return nn.Sequential(  # 0.2 million
        *convolution(1, 16, 5, stride=2, padding=2),  # 28 x 28 -> 14 x 14
        *convolution(16, 32, 3, stride=2, padding=1),  # -> 7 x 7
        *head(32 * 7 * 7),
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


class DigitsModel(LightningModule):
    """A network, its loss, its exact metrics, and how it learns."""

    def __init__(self, args: argparse.Namespace, data: DigitsData) -> None:
        super().__init__()
        self.args, self.data = args, data
        self.net = make_network(args.model, args.sync_batchnorm)
        self.first_step: float | None = None  # seconds from the start of the process to the end of the first step

    # What is to be known of an epoch is added up on the device and logged at its end. `self.log` in every step costs
    # more than a small network's forward pass, and `item()` in a step makes a GPU wait.

    def on_train_start(self) -> None:  # on_train_epoch_start does not come where training goes on within an epoch
        self.loss_sum, self.images_seen = torch.zeros((), device=self.device), 0
        self.epoch_start = time.perf_counter()

    def training_step(self, batch: Digits, batch_idx: int) -> Tensor:
        images, labels = batch
        loss = F.cross_entropy(self.net(images), labels)
        self.loss_sum.add_(loss.detach(), alpha=len(labels))
        self.images_seen += len(labels)
        return loss

    def on_train_batch_end(self, *_: Any) -> None:
        self.first_step = self.first_step or seconds_since_start()

    def on_validation_start(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.training_seconds = time.perf_counter() - self.epoch_start

    def validation_step(self, batch: Digits, batch_idx: int) -> None:
        self.evaluate("val", batch, len(self.data.val_set))

    def test_step(self, batch: Digits, batch_idx: int) -> None:
        self.evaluate("test", batch, len(self.data.test_set))

    def evaluate(self, part: str, batch: Digits, count: int) -> None:
        # Sums over all ranks, over the number of images. A mean of the ranks' means would be another number, since they
        # have not the same number of images.
        images, labels = batch
        scores = self.net(images).float()
        loss, correct = F.cross_entropy(scores, labels, reduction="sum"), (scores.argmax(1) == labels).sum()
        values = {f"{part} loss": loss / count, f"{part} accuracy": correct / count}
        self.log_dict(values, reduce_fx="sum", sync_dist=True)

    def on_train_epoch_end(self) -> None:
        results: dict[str, Any] = {
            "loss": self.loss_sum / self.images_seen,
            "samples per second": self.images_seen * self.trainer.world_size / self.training_seconds,
            "seconds to first step": self.first_step or 0.0,
        }
        self.log_dict(results, sync_dist=True)
        self.on_train_start()
        metrics = self.trainer.callback_metrics  # on every rank: reading them adds up over the ranks
        loss, accuracy = metrics["loss"].item(), 100 * metrics["val accuracy"].item()
        self.print(f"epoch {self.current_epoch + 1}: loss {loss:.4f}, val accuracy {accuracy:.2f} %")
        sys.stdout.flush()  # Python keeps what goes to a log file back; self.print takes no flush=True

    def configure_optimizers(self) -> Any:
        trainer = self.trainer
        peak = self.args.lr * LR_SCALING[self.args.lr_scaling](trainer.world_size * trainer.accumulate_grad_batches)
        optimizer = torch.optim.AdamW(self.parameters(), lr=peak, weight_decay=0.01)
        steps = int(trainer.estimated_stepping_batches)
        # A rise at the start bears a high peak, so a few epochs are enough.
        warmup = steps * (0.3 if self.args.warmup is None else self.args.warmup / self.args.epochs)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: lr_factor(step, warmup, steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        if gradient_clip_val and isinstance(self.trainer.strategy, FSDPStrategy):
            cast(Any, self.trainer.model).clip_grad_norm_(gradient_clip_val)  # a rank sees a part of the gradient only
        else:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm="norm")


def note_signal(number: int, stop: Tensor) -> None:
    """Only note a signal when it comes, since that may be in the middle of a step."""
    signal.signal(number, lambda *_: stop.fill_(True))


class Checkpoints(Callback):
    """Saves the training at the end of each epoch and when SIGUSR1 or SIGTERM comes, and puts a saved one back.

    mnist.ckpt is the last, mnist-best.ckpt the one of the best validation accuracy. Saving and going on happen at one
    point, `on_train_batch_start` where the step before is done and this one has not begun, so none is trained twice or
    left out. With another number of ranks or another batch size training goes on at the same image, rounded down to a
    step, and at that step of the learning rate's schedule.
    """

    step = 0  # of this epoch
    rng: dict[str, Tensor] | None = None  # states to put back before the first step
    steps_since_vote, steps_per_vote, last_vote = 0, 1, -math.inf
    stopping = False
    accuracy = best = -1.0  # of the last validation, and the highest that is saved

    def __init__(self, args: argparse.Namespace, data: DigitsData, stop: Tensor) -> None:
        self.args, self.data, self.stop = args, data, stop  # `stop` becomes true when a signal comes
        saves = args.output_dir and args.strategy != "deepspeed"  # whose checkpoint is a folder of parts
        self.path = args.output_dir / "mnist.ckpt" if saves else None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            note_signal(signal.SIGUSR1, self.stop)  # again: ddp_spawn has started this process

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.path:  # preemption, or a scheduler's end; Lightning's own handler is back after the training
            note_signal(signal.SIGTERM, self.stop)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.accuracy = float(trainer.callback_metrics["val accuracy"])

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        if self.rng:
            torch.set_rng_state(self.rng["cpu"])
            if "cuda" in self.rng and pl_module.device.type == "cuda":
                torch.cuda.set_rng_state(self.rng["cuda"])
            self.rng = None
        first_step, self.step = self.step, batch_idx
        if not self.path:
            return
        self.stopping = self.stopping or self.vote(trainer, pl_module.device)
        if batch_idx % trainer.accumulate_grad_batches:  # gradients in the middle of adding up are not saved
            return
        epoch_done = batch_idx == 0 and trainer.current_epoch > 0
        due = self.args.save_every and trainer.global_step % self.args.save_every == 0 and batch_idx > first_step
        if self.stopping or epoch_done or due:
            self.save(trainer)
        if self.stopping:
            self.leave(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.step = 0  # of the epoch that would come next
        if self.path:
            self.save(trainer)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.args.strategy in SPAWNING:
            multiprocessing.util.Finalize(None, end, exitpriority=-100)  # last, when its results are sent

    def leave(self, trainer: Trainer) -> None:
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

    def vote(self, trainer: Trainer, device: torch.device) -> bool:
        """Return whether any rank has been asked to stop: before each step the same answer on all ranks.

        They ask each other at the start of an epoch and about once a second, since asking costs as much as a small
        step. In how many steps a second will have passed is a part of what they agree on.
        """
        self.steps_since_vote += 1
        if self.steps_since_vote < self.steps_per_vote and self.step > 0:
            return False
        step_seconds = (time.monotonic() - self.last_vote) / self.steps_since_vote
        votes = torch.tensor([self.stop, step_seconds], device=device)
        stop, slowest = trainer.strategy.reduce(votes, reduce_op="max").tolist()
        self.steps_since_vote, self.steps_per_vote, self.last_vote = 0, min(100, 1 + int(1 / slowest)), time.monotonic()
        return bool(stop)

    def save(self, trainer: Trainer) -> None:
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

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint["images"] = self.step * self.data.batch_size * trainer.world_size
        checkpoint["rng"] = {"cpu": torch.get_rng_state()}  # rank 0's serve for all: one seed, and all draw alike
        if pl_module.device.type == "cuda":
            checkpoint["rng"]["cuda"] = torch.cuda.get_rng_state()

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        batch_size, epoch = self.data.batch_size * trainer.world_size, checkpoint["epoch"]
        accumulate = trainer.accumulate_grad_batches
        self.step = step = checkpoint["images"] // batch_size // accumulate * accumulate
        self.data.resume_at, self.rng = (epoch, step), checkpoint["rng"]
        # Lightning's count has the batch of the next step fetched already, and is of the ranks that saved it.
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        progress |= {"current": dict.fromkeys(progress["current"], step), "is_last_batch": False}
        # Of the schedule only its place: what follows from the number of steps is already set up.
        batches = math.ceil(len(self.data.train_set) / batch_size)
        steps = epoch * math.ceil(batches / accumulate) + step // accumulate
        checkpoint["lr_schedulers"] = [{"last_epoch": steps, "_step_count": steps + 1, "lr_lambdas": [None]}]


class Patience(EarlyStopping):
    """Stops when so many epochs have not raised the validation accuracy; counts on where a checkpoint has stopped."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict | {"patience": self.patience})  # that of now, not of then

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.should_stop = self.wait_count >= self.patience

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero and trainer.current_epoch < (trainer.max_epochs or 0):
            print(f"stopped early, after epoch {trainer.current_epoch}: val accuracy rises no more", flush=True)


def find_checkpoint(resume: str, own: Path | None) -> Path | None:
    """Return the checkpoint to go on with, if any: `resume` is auto, never or a path, `own` is where this run saves."""
    # A choice is for the first start; later attempts and torchrun's restarts go on where the one before has stopped.
    attempt, restart = os.environ.get("HPCLAUNCH_ATTEMPT", "1"), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    later = (attempt, restart) != ("1", "0")
    if own and own.exists() and (resume == "auto" or later):
        return own
    return None if resume in ("auto", "never") else Path(resume)


def load_checkpoint(path: Path, model: DigitsModel) -> dict[str, Any]:
    """Return a checkpoint, or raise StartError if it is none of this training."""
    try:
        checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(checkpoint["state_dict"])
        if checkpoint.keys() >= {"epoch", "global_step", "images", "rng"}:
            return checkpoint
        reason = "it was saved by another program"
    except Exception as error:  # a broken file makes torch.load raise any of a dozen kinds
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
    advice = "move it away, or start anew with --resume never"
    raise StartError(f"{path}: not a checkpoint of --model {model.args.model} ({reason}); {advice}")


def make_loggers(folder: Path) -> list[Logger]:
    """Return the writers of the metrics, into a folder that no other run and no other attempt has."""
    version = 0
    # Lightning's own choice of the next number is a race, and CSVLogger deletes what it finds.
    while not is_later_rank():
        try:
            (folder / "lightning_logs" / f"version_{version}").mkdir(parents=True)
            break
        except FileExistsError:
            version += 1
    loggers: list[Logger] = [CSVLogger(folder, version=version, flush_logs_every_n_steps=1)]  # a kill loses nothing
    if any(map(importlib.util.find_spec, ("tensorboard", "tensorboardX"))):
        loggers.append(TensorBoardLogger(folder, version=version))
    return loggers


def seconds_since_start() -> float:
    """Return how long ago this process began, or was ready to train where there is no /proc."""
    try:
        ticks = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    except OSError:
        return time.process_time()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def write_results(trainer: Trainer, tested: Mapping[str, float], trained: Mapping[str, float], folder: Path) -> None:
    """Write metrics.json; speed is that of the last epoch, without its validation."""
    found = {**trained, "accuracy": tested["test accuracy"], "loss": tested["test loss"]}
    names = ("accuracy", "loss", "val accuracy", "samples per second", "seconds to first step")
    results = {name.replace(" ", "_"): found.get(name) for name in names} | {"world_size": trainer.world_size}
    (folder / "metrics.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def put_in_place(part: Path, path: Path) -> None:
    """Make a file that is written to the end the one of this name, also past a power cut."""
    with part.open("rb+") as file:
        os.fsync(file.fileno())  # or a node that dies may leave the new name without the new content
    part.replace(path)


def make_trainer(
    args: argparse.Namespace, layout: Layout, on_gpu: bool, loggers: list[Logger], callbacks: list[Callback]
) -> Trainer:
    """Set up Lightning for the ranks and GPUs that are there."""
    return Trainer(
        accelerator="gpu" if on_gpu else "cpu",
        devices=layout.per_node,
        num_nodes=layout.nodes,
        strategy=make_strategy(args, layout, on_gpu),
        plugins=[layout.environment],
        precision=args.precision,
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
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")

    add = parser.add_argument_group("what is learned, and how").add_argument
    add("--model", choices=("cnn", "cnn-large", "perceptron"), default="cnn")
    add("--epochs", type=int, default=10)
    add("--batch-size", type=int, default=64, help="images per step on each rank (%(default)s)")
    add("--accumulate", type=int, default=1, metavar="N", help="add up N batches for one step")
    add("--lr", type=float, default=3e-3, help="peak learning rate of one rank (%(default)s)")
    add("--lr-scaling", choices=LR_SCALING, default="sqrt", help="with ranks x accumulated batches (%(default)s)")
    add("--warmup", type=float, metavar="EPOCHS", help="rise of the rate (0.3 x --epochs)")
    add("--clip", type=float, metavar="NORM", help="scale larger gradients down to this norm")
    add("--sync-batchnorm", action="store_true", help="batch norm over the batch of all ranks")
    add("--patience", type=int, metavar="N", help="stop when N epochs have not raised val accuracy")
    add("--seed", type=int, default=0, help="of the network and the order of images (%(default)s)")
    add("--deterministic", action="store_true", help="only algorithms that repeat bit for bit, on GPUs too")

    add = parser.add_argument_group("ranks and hardware").add_argument
    how = "how ranks share the work (%(default)s: ddp if there are several)"
    add("--strategy", type=strategy_name, choices=STRATEGIES, default="auto", help=how)
    add("--devices", type=int, metavar="N", help="ranks here, if no launcher starts them")
    add("--backend", choices=("nccl", "gloo", "mpi"), help="between the ranks (nccl on GPUs, else gloo)")
    add("--precision", choices=("32", "16-mixed", "bf16-mixed"), default="32", help="(%(default)s)")
    add("--compile", action="store_true", help="by torch.compile")
    add("--timeout", type=int, default=600, metavar="SECONDS", help="to wait for other ranks (%(default)s)")

    add = parser.add_argument_group("files").add_argument
    data = "folder with MNIST's IDX files or mnist.npz ($MNIST_DIR, else digits drawn here)"
    add("--data-dir", type=Path, default=os.environ.get("MNIST_DIR") or None, help=data)
    out = "for checkpoints and metrics, seen by all nodes ($HPCLAUNCH_RUN_DIR, else metrics in ./lightning_logs)"
    add("--output-dir", type=Path, default=os.environ.get("HPCLAUNCH_RUN_DIR") or None, help=out)
    resume = "go on with the mnist.ckpt in --output-dir if there is one; start anew; go on with PATH (%(default)s)"
    add("--resume", default="auto", metavar="auto|never|PATH", help=resume)
    add("--save-every", type=int, default=0, metavar="STEPS", help="save also within an epoch")
    args = parser.parse_args()
    for name, value in vars(args).items():
        least = int(name in ("epochs", "batch_size", "accumulate", "devices", "patience", "timeout"))
        if isinstance(value, int | float) and not least <= value < math.inf:
            parser.error(f"argument --{name.replace('_', '-')}: {value}: must be at least {least}")
    return args


def fit(trainer: Trainer, model: DigitsModel, data: DigitsData, resumed: Path | None, timeout: int) -> None:
    """Train, and tell an end that is no fault of the training from one that is."""
    # find_layout knows who started us; what is logged is of whole epochs; Batches can be resumed.
    expected = "The `srun` command is available|The number of training batches|You're resuming .* not resumable"
    warnings.filterwarnings("ignore", expected)
    warnings.filterwarnings("ignore", category=FutureWarning, module="pytorch_lightning")  # how Lightning calls torch
    try:
        trainer.fit(model, data, ckpt_path=resumed)
    except ProcessExitedException as error:  # a rank of ddp_spawn has left, and has said why
        sys.exit(error.exit_code)
    except (torch.distributed.DistStoreError, torch.distributed.DistNetworkError) as error:
        reason = str(error).splitlines()[0]
        sys.exit(f"mnist.py: not all {trainer.world_size} ranks came together within {timeout} s: {reason}")


def end() -> None:
    """End a rank that has done its work.

    Left to end in its own way, a process aborts now and then after all is done (torch 2.13, gloo: "terminate called
    without an active exception"), and its launcher takes the training for a failed one.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main() -> None:
    stop = torch.zeros((), dtype=torch.bool).share_memory_()  # type: ignore[no-untyped-call] # with spawned ranks
    note_signal(signal.SIGUSR1, stop)  # before it only the imports: nothing to save yet
    args = parse_arguments()
    try:
        layout = find_layout(args.devices)
        gpus = torch.cuda.device_count()
        on_gpu = gpus >= layout.per_node
        if 0 < gpus < layout.per_node:  # a task that sees only its own GPU (srun --gpus-per-task) looks like this too
            rank_zero_warn(f"{layout.per_node} ranks on this node, but each sees {gpus} GPU(s): training on the CPU")
        check_choices(args, layout, on_gpu)
        if args.strategy == "ddp_fork":  # a process that has used several threads cannot be forked
            torch.set_num_threads(1)
        data = DigitsData(args)
        seed_everything(args.seed)  # the same first weights on every rank
        model = DigitsModel(args, data)
        checkpoints = Checkpoints(args, data, stop)
        resumed = find_checkpoint(args.resume, checkpoints.path)
        checkpoint = load_checkpoint(resumed, model) if resumed else {}
        loggers = make_loggers(args.output_dir or Path())
    except (StartError, DataError, OSError) as error:
        if is_later_rank():
            time.sleep(10)  # rank 0 says it and its launcher ends this rank; if not, it is wrong only here
        sys.exit(f"mnist.py: {error}")

    # What must be the same on all ranks, or they wait for each other or learn something else.
    terms = {name: value for name, value in vars(args).items() if not isinstance(value, Path)}
    terms |= {"images": len(data.train_set), "step": checkpoint.get("global_step", 0)}
    callbacks: list[Callback] = [RollCall(terms), checkpoints]
    if args.patience:
        callbacks.append(Patience("val accuracy", mode="max", patience=args.patience))
    trainer = make_trainer(args, layout, on_gpu, loggers, callbacks)
    if args.compile:
        model.net.compile()
    if args.strategy in SPAWNING and checkpoints.path:  # this process is none of the ranks, but gets the signal
        note_signal(signal.SIGTERM, stop)
    if resumed and trainer.is_global_zero:
        where = f"epoch {min(checkpoint['epoch'] + 1, args.epochs)}, step {checkpoint['global_step']}"
        print(f"resumed from {resumed}: {where}", flush=True)
    fit(trainer, model, data, resumed, args.timeout)
    trained = {name: float(value) for name, value in trainer.callback_metrics.items()}
    trainer.loggers = []  # ddp_spawn tests in other processes, where CSVLogger would begin its file anew
    tested = trainer.test(model, data, verbose=False)[0]
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # all is done; a handler would not last to the very end of Python
    if trainer.is_global_zero:
        write_results(trainer, tested, trained, args.output_dir or Path(loggers[0].log_dir or ""))
        print(
            f"test accuracy: {100 * tested['test accuracy']:.2f} % (world size {trainer.world_size}, "
            f"{len(data.train_set)} training images, {args.epochs} epochs, {seconds_since_start():.1f} s)",
            flush=True,
        )
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        end()


if __name__ == "__main__":
    main()
