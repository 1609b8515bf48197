"""Train a small network on handwritten digits, on one process or on many: copy this file to start your own training.

    python mnist.py                                   one process
    torchrun --nproc-per-node 4 mnist.py              four processes on this machine
    srun python mnist.py                              in a Slurm job with --ntasks-per-node, one process a task
    WORLD_SIZE=8 LOCAL_WORLD_SIZE=4 NODE_RANK=0 MASTER_ADDR=node1 MASTER_PORT=29500 python mnist.py
                                                      once on each of two nodes (NODE_RANK=1 on the second):
                                                      Lightning starts the other three processes of the node

How many processes there are and where comes from the environment alone (see `find_layout`). Without --data-dir
it trains on digits that it draws itself: nothing is ever downloaded.

A training outlives its walltime: told by SIGUSR1 or SIGTERM that the end is near, all processes save together, between
two steps, and leave with exit code 75; started again in the same way they go on with the next step (see `Checkpoints`).
"""

import argparse
import math
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.plugins.environments import LightningEnvironment, SLURMEnvironment  # type: ignore[attr-defined]
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.utils.data import DistributedSampler, TensorDataset

from digits import DataError, Digits, draw_digits, read_mnist  # the file beside this one

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
        std, mean = torch.std_mean(train[0].float())
        self.mean, self.std = mean.item(), std.item()
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


class DigitsModel(pl.LightningModule):
    """Two convolutions and two linear layers. No batch norm: it would behave differently for each world size."""

    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=5, stride=2, padding=2),  # 28 x 28 -> 14 x 14
            nn.ReLU(),
            nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1),  # -> 7 x 7
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 7 * 7, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
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

    def on_validation_epoch_start(self) -> None:
        self.correct, self.counted = torch.zeros((), device=self.device), 0

    on_test_epoch_start = on_validation_epoch_start

    def validation_step(self, batch: Digits, batch_idx: int) -> None:
        images, labels = batch
        self.correct += (self.net(images).argmax(1) == labels).sum()
        self.counted += len(labels)

    def test_step(self, batch: Digits, batch_idx: int) -> None:
        self.validation_step(batch, batch_idx)

    def on_validation_epoch_end(self) -> None:
        self.log_correct("val")

    def on_test_epoch_end(self) -> None:
        self.log_correct("test")

    def log_correct(self, part: str) -> None:
        # Two sums over all ranks. Lightning's mean would divide by the ranks' average number of images, rounded down.
        self.log(f"{part} correct", self.correct, sync_dist=True, reduce_fx="sum")
        self.log(f"{part} images", float(self.counted), sync_dist=True, reduce_fx="sum")

    def on_train_epoch_end(self) -> None:
        self.log("loss", self.loss_sum / self.images_seen, sync_dist=True)
        self.on_train_start()
        metrics = self.trainer.callback_metrics  # on every rank: reading them adds up over the ranks
        loss, accuracy = metrics["loss"].item(), percent_correct("val", metrics)
        self.print(f"epoch {self.current_epoch + 1}: loss {loss:.4f}, val accuracy {accuracy:.2f} %")
        sys.stdout.flush()  # Python keeps what goes to a log file back; self.print takes no flush=True

    def configure_optimizers(self) -> Any:
        # One cycle up and down bears a high peak rate, so a few epochs are enough. More ranks mean larger batches
        # and fewer steps; with Adam the same rate serves from 1 to some 16 ranks.
        optimizer = torch.optim.AdamW(self.parameters(), weight_decay=0.01)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=self.lr, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def percent_correct(part: str, metrics: Mapping[str, Any]) -> float:
    """Return the accuracy in percent that `DigitsModel.log_correct` counted."""
    return 100 * float(metrics[f"{part} correct"]) / float(metrics[f"{part} images"])


class CheckpointError(Exception):
    """The checkpoint cannot be used; the message says what is wrong, where, and what to do."""


class Checkpoints(pl.Callback):
    """Saves the training at the end of each epoch and when SIGUSR1 or SIGTERM comes, and puts a saved one back.

    Saving and going on happen at one point, `on_train_batch_start`: the step before is done, this one has not begun,
    so none is trained twice or left out. With another number of ranks or another batch size training goes on at the
    same image, rounded down to a step, and at that step of the learning rate's schedule.
    """

    stop_asked = False  # this process has had one of them

    def __init__(self, folder: Path | None, data: DigitsData) -> None:
        self.path, self.data = folder and folder / "mnist.ckpt", data
        self.step = 0  # of this epoch
        self.rng: dict[str, Tensor] = {}  # states to put back before the first step
        self.steps_since_vote, self.steps_per_vote, self.last_vote = 0, 1, -math.inf

    @classmethod
    def ask_to_stop(cls, *_: object) -> None:
        """Take a signal: only note it, since it comes in the middle of a step."""
        cls.stop_asked = True

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        steps = torch.tensor([trainer.global_step, -trainer.global_step], device=pl_module.device)
        last, first = trainer.strategy.reduce(steps, reduce_op="max").tolist()
        if last != -first:
            sys.exit(f"mnist.py: the ranks start from steps {-first} to {last}; does every node see {self.path}?")
        if self.path:  # preemption, or a scheduler's end; Lightning's own handler is back after the training
            signal.signal(signal.SIGTERM, self.ask_to_stop)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: object, batch_idx: int
    ) -> None:
        if self.rng:
            torch.set_rng_state(self.rng["cpu"])
            if "cuda" in self.rng and pl_module.device.type == "cuda":
                torch.cuda.set_rng_state(self.rng["cuda"])
            self.rng = {}
        self.step = batch_idx
        if not self.path:
            return
        stop = self.vote(trainer, pl_module.device)
        if stop or (batch_idx == 0 and trainer.current_epoch > 0):
            self.save(trainer)
        if stop:
            if trainer.is_global_zero:
                where = f"epoch {trainer.current_epoch + 1}, step {trainer.global_step}"
                print(f"saved {self.path}: {where}; start again to go on", flush=True)
            # A launcher ends the others once one has left. Lightning would answer its SIGTERM with a broadcast.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            try:
                trainer.strategy.barrier()  # until rank 0 has replaced the file
            finally:
                os._exit(os.EX_TEMPFAIL)  # 75, at once: in a teardown the ranks would leave seconds apart

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.step = 0  # of the epoch that would come next
        if self.path:
            self.save(trainer)

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
        part = self.path.with_suffix(".part")
        trainer.save_checkpoint(part)
        if trainer.is_global_zero:
            with part.open("rb+") as file:
                os.fsync(file.fileno())  # or a node that dies may leave the new name without the new content
            part.replace(self.path)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint["images"] = self.step * self.data.batch_size * trainer.world_size
        checkpoint["rng"] = {"cpu": torch.get_rng_state()}  # rank 0's serve for all: one seed, and all draw alike
        if pl_module.device.type == "cuda":
            checkpoint["rng"]["cuda"] = torch.cuda.get_rng_state()

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        batch_size, epoch = self.data.batch_size * trainer.world_size, checkpoint["epoch"]
        step = checkpoint["images"] // batch_size
        self.data.resume_at = (epoch, step)
        self.rng = checkpoint["rng"]
        # Lightning's count has the batch of the next step fetched already, and is of the ranks that saved it.
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        progress |= {"current": dict.fromkeys(progress["current"], step), "is_last_batch": False}
        # Of the schedule only its place: what follows from the number of steps is already set up.
        steps = epoch * math.ceil(len(self.data.train_set) / batch_size) + step
        checkpoint["lr_schedulers"] = [{"last_epoch": steps, "_step_count": steps + 1}]


def find_checkpoint(resume: str, own: Path | None) -> Path | None:
    """Return the checkpoint to go on with, if any: `resume` is auto, never or a path, `own` is where this run saves."""
    # A choice is for the first attempt of a job; the later ones go on where the one before has stopped.
    if own and own.exists() and (resume == "auto" or int(os.environ.get("HPCLAUNCH_ATTEMPT", "1")) > 1):
        return own
    return None if resume in ("auto", "never") else Path(resume)


def check_checkpoint(path: Path, model: DigitsModel, epochs: int) -> str:
    """Return at which epoch and step a checkpoint stands, or raise CheckpointError if it is none of this training."""
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(checkpoint["state_dict"])
        epoch, step, _ = [checkpoint[key] for key in ("epoch", "global_step", "images")]
    except Exception as error:  # a broken file makes torch.load raise any of a dozen kinds
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        advice = "move it away, or start anew with --resume never"
        raise CheckpointError(f"{path}: is no checkpoint of this training ({reason}); {advice}") from error
    if epoch > epochs:
        raise CheckpointError(f"{path}: has {epoch} epochs behind it, more than --epochs {epochs}")
    return f"epoch {min(epoch + 1, epochs)}, step {step}"


def find_layout() -> tuple[int, int, LightningEnvironment | SLURMEnvironment]:
    """Read from the environment: ranks per node, nodes, and the reader of this process's own rank.

    The reader is named rather than left to Lightning, which takes any Slurm variables for `srun`: `python` in a
    batch script would wait for ranks that nobody started.
    """
    env = os.environ
    if "WORLD_SIZE" in env and "LOCAL_WORLD_SIZE" in env:  # torchrun, a job script, or by hand
        per_node = int(env["LOCAL_WORLD_SIZE"])
        return per_node, int(env["WORLD_SIZE"]) // per_node, LightningEnvironment()
    tasks = int(env.get("SLURM_STEP_NUM_TASKS", 1))  # of this srun; a batch script has no such variable
    if tasks > 1:
        nodes = int(env["SLURM_STEP_NUM_NODES"])
        return tasks // nodes, nodes, SLURMEnvironment(auto_requeue=False)
    return 1, 1, LightningEnvironment()


def make_trainer(epochs: int, checkpoints: Checkpoints) -> pl.Trainer:
    """Set up Lightning for the ranks and GPUs that are there."""
    per_node, nodes, environment = find_layout()
    gpus = torch.cuda.device_count()
    on_gpu = gpus >= per_node
    if 0 < gpus < per_node:  # a task that sees only its own GPU (srun --gpus-per-task) looks like this too
        rank_zero_warn(f"{per_node} ranks on this node, but each sees {gpus} GPU(s): training on the CPU")
    ddp = DDPStrategy(process_group_backend="nccl" if on_gpu else "gloo")
    return pl.Trainer(
        accelerator="gpu" if on_gpu else "cpu",
        devices=per_node,
        num_nodes=nodes,
        strategy=ddp if per_node * nodes > 1 else "auto",
        plugins=[environment],
        max_epochs=epochs,
        callbacks=[checkpoints],
        use_distributed_sampler=False,  # DigitsData brings its own
        num_sanity_val_steps=0,
        logger=False,  # writes nothing to the disk
        enable_checkpointing=False,  # Checkpoints does it
        enable_model_summary=False,
        enable_progress_bar=sys.stdout.isatty(),  # in a log file a bar is a thousand lines
    )


def main() -> None:
    signal.signal(signal.SIGUSR1, Checkpoints.ask_to_stop)  # before it only the imports: nothing to save yet
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step on each rank (%(default)s)")
    parser.add_argument("--lr", type=float, default=4e-3, help="peak learning rate, for any world size (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the network and the order of images (%(default)s)")
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=os.environ.get("MNIST_DIR") or None,
        help="folder with MNIST's IDX files or mnist.npz ($MNIST_DIR, else digits drawn here)",
    )
    parser.add_argument(
        "--checkpoint-dir",
        type=Path,
        default=os.environ.get("HPCLAUNCH_RUN_DIR") or None,
        help="folder for mnist.ckpt, seen by all nodes ($HPCLAUNCH_RUN_DIR, else nothing is saved)",
    )
    parser.add_argument(
        "--resume",
        default="auto",
        metavar="auto|never|PATH",
        help="go on with the mnist.ckpt in --checkpoint-dir if there is one; start anew; go on with PATH (%(default)s)",
    )
    args = parser.parse_args()
    if min(args.epochs, args.batch_size) < 1:
        parser.error("--epochs and --batch-size must be at least 1")

    start = time.perf_counter()
    cores = (os.cpu_count() or 1) // find_layout()[0]
    torch.set_num_threads(max(1, min(torch.get_num_threads(), cores)))  # more threads than cores wait for each other
    try:
        data = DigitsData(args.data_dir, args.batch_size, args.seed)
        pl.seed_everything(args.seed)  # the same first weights on every rank
        model, checkpoints = DigitsModel(args.lr), Checkpoints(args.checkpoint_dir, data)
        resumed = find_checkpoint(args.resume, checkpoints.path)
        where = check_checkpoint(resumed, model, args.epochs) if resumed else ""
    except (DataError, CheckpointError, OSError) as error:
        sys.exit(f"mnist.py: {error}")

    warnings.filterwarnings("ignore", message="The `srun` command is available")  # find_layout knows who started us
    warnings.filterwarnings("ignore", category=FutureWarning, module="pytorch_lightning")  # how Lightning calls torch
    warnings.filterwarnings("ignore", message="You're resuming .* not resumable")  # Batches are
    trainer = make_trainer(args.epochs, checkpoints)
    if resumed and trainer.is_global_zero:
        print(f"resumed from {resumed}: {where}", flush=True)
    trainer.fit(model, data, ckpt_path=resumed)
    accuracy = percent_correct("test", trainer.test(model, data, verbose=False)[0])
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # all is done; a handler would not last to the very end of Python
    if trainer.is_global_zero:
        print(
            f"test accuracy: {accuracy:.2f} % (world size {trainer.world_size}, {len(data.train_set)} training images, "
            f"{args.epochs} epochs, {time.perf_counter() - start:.1f} s)",
            flush=True,
        )
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        # Left to end in its own way, a process aborts now and then after all is done (torch 2.13, gloo: "terminate
        # called without an active exception"), and its launcher takes the training for a failed one.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
