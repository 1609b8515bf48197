"""What mnist.py and resnet.py have in common: options, learning rate, exact metrics, files, the Trainer."""

import argparse
import importlib.util
import json
import math
import multiprocessing.util
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, cast

import torch
import torch.nn.functional as F
from pytorch_lightning import Callback, LightningModule, Trainer, seed_everything
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint, ModelSummary
from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger
from pytorch_lightning.strategies import FSDPStrategy
from torch import Tensor, nn
from torch.multiprocessing.spawn import ProcessExitedException

import layout
from layout import StartError
from resume import SaveAndLeave, resume_path

BEGAN = time.perf_counter()
Batch = tuple[Tensor, Tensor]  # images and labels


def make_parser(description: str) -> argparse.ArgumentParser:
    """Return the options of every training. Those with _ are the classic DDP scripts'."""
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument_group("what is learned, and how").add_argument
    add("--epochs", type=int, default=10)
    add("--batch-size", "--batch_size", type=int, default=64, help="images per step on each rank (%(default)s)")
    add("--accumulate", "--accumulation_steps", type=int, default=1, metavar="N", help="add up N batches for one step")
    add("--lr", "--learning_rate", type=float, default=3e-3, help="peak learning rate of one rank (%(default)s)")
    add("--warmup", type=float, metavar="EPOCHS", help="rise of the rate (0.3 x --epochs)")
    add("--clip", type=float, metavar="NORM", help="scale larger gradients down to this norm")
    add("--sync-batchnorm", action="store_true", help="batch norm over the batch of all ranks")
    add("--patience", type=int, metavar="N", help="stop when N epochs have not raised val accuracy")
    add("--seed", type=int, default=0, help="of the network and the order of images (%(default)s)")
    add("--deterministic", action="store_true", help="only algorithms that repeat bit for bit, on GPUs too")

    add = parser.add_argument_group("ranks and hardware").add_argument
    how = "how ranks share the work (%(default)s: ddp if there are several)"
    add("--strategy", type=layout.strategy_name, choices=layout.STRATEGIES, default="auto", help=how)
    add("--devices", type=int, metavar="N", help="ranks here, if no launcher starts them")
    add("--gpu_ids", type=lambda text: text.split(","), metavar="0,1,...", help="a rank for each of these GPUs")
    add("--dist_url", metavar="tcp://HOST:PORT", help="where the ranks meet, if no launcher says it")
    add("--world_size", type=int, metavar="N", help="number of ranks, if no launcher says it")
    add("--rank", type=int, metavar="N", help="number of this process's first rank, if no launcher says it")
    add("--backend", choices=("nccl", "gloo"), help="between the ranks (nccl on GPUs, else gloo)")
    add("--precision", choices=("32", "16-mixed", "bf16-mixed"), default="32", help="(%(default)s)")
    add("--timeout", type=int, default=600, metavar="SECONDS", help="to wait for other ranks (%(default)s)")

    add = parser.add_argument_group("files").add_argument
    add("--data-dir", type=Path, help="folder with the data set (else images drawn here)")
    out = "for checkpoints and metrics, seen by all nodes ($HPCLAUNCH_RUN_DIR, else metrics in ./lightning_logs)"
    add("--output-dir", type=Path, default=os.environ.get("HPCLAUNCH_RUN_DIR") or None, help=out)
    resume = "go on with the save in --output-dir if there is one; start anew; go on with PATH (%(default)s)"
    add("--resume", default="auto", metavar="auto|never|PATH", help=resume)
    add("--save-every", type=int, default=0, metavar="STEPS", help="save also within an epoch")
    return parser


def end_with(reason: object) -> NoReturn:
    sys.exit(f"{Path(sys.argv[0]).name}: {reason}")


class Classifier(LightningModule):
    """A network, its loss, and metrics that are exact whatever the number of ranks."""

    net: nn.Module

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self.net(images), labels)

    def on_validation_start(self) -> None:
        for buffer in self.buffers() if self.trainer.world_size > 1 else ():
            torch.distributed.broadcast(buffer, 0)  # batch norm's means, of which rank 0's are saved

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.evaluate("val", batch, len(cast(Any, self.trainer).datamodule.val_set))

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        self.evaluate("test", batch, len(cast(Any, self.trainer).datamodule.test_set))

    def evaluate(self, part: str, batch: Batch, count: int) -> None:
        # A mean of the ranks' means would be another number, since they have not the same number of images.
        images, labels = batch
        scores = self.net(images).float()
        loss, correct = F.cross_entropy(scores, labels, reduction="sum"), (scores.argmax(1) == labels).sum()
        values = {f"{part} loss": loss / count, f"{part} accuracy": correct / count}
        self.log_dict(values, reduce_fx="sum", sync_dist=True)

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        if gradient_clip_val and isinstance(self.trainer.strategy, FSDPStrategy):
            cast(Any, self.trainer.model).clip_grad_norm_(gradient_clip_val)  # a rank sees a part of the gradient only
        else:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm="norm")


class Schedule(Callback):
    """Sets the learning rate: a linear rise to its peak in `warmup` epochs, then a cosine to 0.

    It has no state: a training goes on right with another number of ranks, too. `scale` says by how much the peak grows
    with the number of batches in a step.
    """

    def __init__(self, args: argparse.Namespace, scale: Callable[[float], float]) -> None:
        # A rise at the start bears a high peak, so a few epochs are enough.
        self.args, self.scale, self.warmup = args, scale, 0.3 * args.epochs if args.warmup is None else args.warmup

    def on_train_batch_start(self, trainer: Any, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        if batch_idx % self.args.accumulate:
            return
        batches = trainer.num_training_batches  # of an epoch
        now = trainer.current_epoch * batches + batch_idx
        warmup, end = self.warmup * batches, self.args.epochs * batches
        falling = (1 + math.cos(math.pi * min(1, (now - warmup) / max(1, end - warmup)))) / 2
        factor = (now + 1) / (warmup + 1) if now < warmup else falling
        for group in trainer.optimizers[0].param_groups:
            group["lr"] = self.args.lr * self.scale(trainer.world_size * self.args.accumulate) * factor


class Meter(Callback):
    """Logs loss and speed of each epoch, and prints a line.

    They are added up on the device: `self.log` in every step costs more than a small network's forward pass.
    """

    def __init__(self, saver: SaveAndLeave) -> None:
        self.saver = saver

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.loss_sum, self.seen = torch.zeros((), device=pl_module.device), 0
        self.start = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        count = len(batch[1])
        self.loss_sum.add_(outputs["loss"].detach(), alpha=count * trainer.accumulate_grad_batches)
        self.seen += count

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds = time.perf_counter() - self.start

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        results: dict[str, Any] = {
            "loss": self.loss_sum / self.seen,
            "samples per second": self.seen * trainer.world_size / self.seconds,
        }
        pl_module.log_dict(results, sync_dist=True)
        self.on_train_start(trainer, pl_module)
        self.saver.last_save = -math.inf  # a save is due, at the next step
        metrics = trainer.callback_metrics  # on every rank: reading them adds up over the ranks
        loss, accuracy = metrics["loss"].item(), 100 * metrics["val accuracy"].item()
        if trainer.is_global_zero:
            print(f"epoch {trainer.current_epoch + 1}: loss {loss:.4f}, val accuracy {accuracy:.2f} %", flush=True)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if multiprocessing.parent_process():  # of ddp_spawn or ddp_fork
            multiprocessing.util.Finalize(None, end, exitpriority=-100)  # last, when its results are sent


def find_checkpoint(args: argparse.Namespace, model: LightningModule) -> str | None:
    """Return the checkpoint to go on with, if any; raise StartError if it is none of this training."""
    # A choice is for the first start; later attempts and torchrun's restarts go on where the one before has stopped.
    attempt, restart = os.environ.get("HPCLAUNCH_ATTEMPT", "1"), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    own: str | None = resume_path(args.output_dir)
    if not own or (args.resume != "auto" and (attempt, restart) == ("1", "0")):
        own = None if args.resume in ("auto", "never") else args.resume
    if not own or args.strategy == "deepspeed":  # whose checkpoint is a folder of parts
        return own
    try:
        model.load_state_dict(torch.load(own, map_location="cpu", weights_only=True)["state_dict"])
    except Exception as error:  # a broken file makes torch.load raise any of a dozen kinds
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        advice = "move it away, or start anew with --resume never"
        raise StartError(f"{own}: not a checkpoint of this training ({reason}); {advice}") from error
    return own


def make_trainer(
    args: argparse.Namespace, saver: SaveAndLeave, scale: Callable[[float], float], terms: dict[str, Any]
) -> Trainer:
    """Set up Lightning for the ranks and GPUs that are there."""
    places = layout.find_layout(args)
    layout.check_choices(args, places)
    if args.strategy == "ddp_fork":  # a process that has used several threads cannot be forked
        torch.set_num_threads(1)
    folder = args.output_dir or Path()
    # Lightning's own choice of a number is a race, and CSVLogger deletes what it finds.
    version = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(4).hex()}"
    loggers: list[Logger] = [CSVLogger(folder, version=version, flush_logs_every_n_steps=1)]  # a kill loses nothing
    if any(map(importlib.util.find_spec, ("tensorboard", "tensorboardX"))):
        loggers.append(TensorBoardLogger(folder, version=version))
    callbacks = [layout.RollCall(vars(args) | terms), ModelSummary(max_depth=2), Schedule(args, scale)]
    callbacks += [Meter(saver), saver]
    if args.patience:
        callbacks.append(EarlyStopping("val accuracy", mode="max", patience=args.patience))
    if args.output_dir:
        folder.mkdir(parents=True, exist_ok=True)
        best: Any = {"monitor": "val accuracy", "mode": "max", "enable_version_counter": False}
        callbacks.append(ModelCheckpoint(folder, "best", **best))
    return Trainer(
        accelerator="gpu" if places.on_gpu else "cpu",
        devices=places.per_node,
        num_nodes=places.nodes,
        strategy=layout.make_strategy(args, places),
        plugins=[places.environment],
        precision=args.precision,
        max_epochs=args.epochs,
        accumulate_grad_batches=args.accumulate,
        gradient_clip_val=args.clip,
        sync_batchnorm=args.sync_batchnorm and places.per_node * places.nodes > 1,
        deterministic=args.deterministic or None,
        callbacks=callbacks,
        enable_model_summary=False,  # but for that in the callbacks
        logger=loggers,
        use_distributed_sampler=False,  # the data bring their own
        num_sanity_val_steps=0,
        enable_checkpointing=bool(args.output_dir),
        enable_progress_bar=sys.stdout.isatty(),  # in a log file a bar is a thousand lines
    )


def end() -> None:
    """End a rank that has done its work: by itself, one of gloo aborts now and then (torch 2.13)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def train(parser: argparse.ArgumentParser, make_data: Any, make_model: Any, scale: Callable[[float], float]) -> None:
    """Train and test, from the last save if there is one, and write the results."""
    args = parser.parse_args()
    for name, value in vars(args).items():
        least = int(name in ("epochs", "batch_size", "accumulate", "devices", "patience", "timeout", "world_size"))
        if isinstance(value, int | float) and not least <= value < math.inf:
            parser.error(f"argument --{name.replace('_', '-')}: {value}: must be at least {least}")
    saver = SaveAndLeave(args.output_dir, args.save_every)  # first, as a signal may come at any time
    try:
        data = make_data(args)
        seed_everything(args.seed)  # the same first weights on every rank
        model = make_model(args)
        resumed = find_checkpoint(args, model)
        terms = {"images": len(data.train_set), "checkpoint": resumed and Path(resumed).name}
        trainer = make_trainer(args, saver, scale, terms)
    except (StartError, OSError) as error:
        if layout.is_later_rank():
            time.sleep(10)  # rank 0 says it and its launcher ends this rank; if not, it is wrong only here
        end_with(error)
    if args.strategy in layout.SPAWNING and saver.folder:  # this process is none of the ranks, but gets the signal
        saver.listen(signal.SIGTERM)
    # find_layout knows who started us; what is logged is of whole epochs; SaveAndLeave resumes any data.
    expected = "The `srun` command is available|The number of training batches|You're resuming .* not resumable"
    warnings.filterwarnings("ignore", f"{expected}|Checkpoint directory .* exists|.* by the model summary")
    warnings.filterwarnings("ignore", category=FutureWarning, module="pytorch_lightning")  # how Lightning calls torch
    try:
        trainer.fit(model, datamodule=data, ckpt_path=resumed)
    except ProcessExitedException as error:  # a rank of ddp_spawn has left, and has said why
        sys.exit(error.exit_code)
    except (torch.distributed.DistStoreError, torch.distributed.DistNetworkError) as error:
        late = f"not all {trainer.world_size} ranks came together within {args.timeout} s"
        end_with(f"{late}: {str(error).splitlines()[0]}")
    results = {name: float(value) for name, value in trainer.callback_metrics.items()}
    folder = args.output_dir or Path(trainer.log_dir or "")
    trainer.loggers = []  # ddp_spawn tests in other processes, where CSVLogger would begin its file anew
    results |= trainer.test(model, data, verbose=False)[0]
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # all is done; a handler would not last to the very end of Python
    if trainer.is_global_zero:
        images, accuracy, results["loss"] = len(data.train_set), results.pop("test accuracy"), results.pop("test loss")
        results |= {"accuracy": accuracy, "samples per epoch": images, "world size": trainer.world_size}
        text = json.dumps({name.replace(" ", "_"): value for name, value in results.items()}, indent=2)
        (folder / "metrics.json").write_text(text + "\n", encoding="utf-8")
        where = f"world size {trainer.world_size}, {images} training images, {args.epochs} epochs"
        print(f"test accuracy: {100 * accuracy:.2f} % ({where}, {time.perf_counter() - BEGAN:.1f} s)", flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        end()
