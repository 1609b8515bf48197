"""What mnist.py tells and writes: the table of ranks, a line an epoch, metrics.csv, metrics.json and pictures of both.

Lines for people go to stdout, the table to stderr. Rank 0 alone writes.
"""

import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger

from layout import Layout, StartError, call_the_roll  # the file beside this one


def make_output_dir(folder: Path) -> None:
    """Make the folder for what is written, or raise StartError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StartError(f"{folder}: cannot be written to ({error.strerror}); choose another --output-dir") from error


def make_loggers(folder: Path, first_rank: bool) -> list[Logger]:
    """Return the writers of the metrics, into a folder that no other run and no other attempt has."""
    logs, version = folder / "lightning_logs", 0
    while first_rank:  # Lightning's own choice of the next number is a race, and CSVLogger deletes what it finds
        try:
            (logs / f"version_{version}").mkdir(parents=True)
            break
        except FileExistsError:
            version += 1
    loggers: list[Logger] = [CSVLogger(folder, version=version, flush_logs_every_n_steps=1)]  # a kill loses nothing
    if importlib.util.find_spec("tensorboard") or importlib.util.find_spec("tensorboardX"):
        loggers.append(TensorBoardLogger(folder, version=version))
    return loggers


class Report(pl.Callback):
    """Shows who takes part, stops what cannot go well, and tells how the training goes."""

    def __init__(self, layout: Layout, terms: dict[str, Any], plots: Path | None, started: float) -> None:
        self.layout, self.terms, self.plots, self.started = layout, terms, plots, started
        self.first_step: float | None = None  # seconds from the start of the process to the end of the first step
        self.epoch_start, self.training_end = 0.0, 0.0
        self.history: list[dict[str, float]] = []  # of all epochs, also those of earlier attempts

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        # All ranks come to the same end: none is left waiting for one that has gone.
        table, problem = call_the_roll(trainer, self.layout, self.terms)
        if trainer.is_global_zero:
            print(table, file=sys.stderr, flush=True)
        if problem:
            print(f"mnist.py: {problem}", file=sys.stderr, flush=True)  # at once: a launcher may end us at any moment
            sys.exit(1)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.note_epoch(trainer)
        self.epoch_start = time.perf_counter()

    def note_epoch(self, trainer: pl.Trainer) -> None:
        """Add the last epoch to the history, if this process has trained it."""
        if trainer.current_epoch > len(self.history) and "loss" in trainer.callback_metrics:
            row = {name: float(trainer.callback_metrics[name]) for name in ("loss", "val loss", "val accuracy")}
            self.history.append({"epoch": trainer.current_epoch} | row)

    def on_train_batch_end(self, *_: Any) -> None:
        if self.first_step is None:
            self.first_step = time.time() - self.started

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize()
        self.training_end = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        data = cast(Any, trainer).datamodule
        epoch, step = data.resume_at
        part = 1 - step / int(trainer.num_training_batches) if trainer.current_epoch == epoch else 1.0
        speed = {
            "samples per second": part * len(data.train_set) / (self.training_end - self.epoch_start),
            "seconds to first step": self.first_step or 0.0,
        }
        pl_module.log_dict(speed, sync_dist=True)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.note_epoch(trainer)
        if trainer.is_global_zero and trainer.should_stop and trainer.current_epoch < (trainer.max_epochs or 0):
            print(f"stopped early, after epoch {trainer.current_epoch}: val accuracy rises no more", flush=True)
        if trainer.is_global_zero and self.plots and self.history:
            draw_curves(self.history, self.plots)

    def state_dict(self) -> dict[str, Any]:
        return {"history": self.history}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history = state_dict["history"]


def draw_curves(history: list[dict[str, float]], folder: Path) -> None:
    """Write loss.png and accuracy.png, over all epochs."""
    import matplotlib as mpl

    mpl.use("Agg")  # there is no screen
    from matplotlib import pyplot as plt

    for file, names in (("loss.png", ("loss", "val loss")), ("accuracy.png", ("val accuracy",))):
        figure, axes = plt.subplots()
        for name in names:
            axes.plot([row["epoch"] for row in history], [row[name] for row in history], "o-", label=name)
        axes.set(xlabel="epoch", ylabel=file.removesuffix(".png"))
        axes.legend()
        figure.savefig(folder / file)
        plt.close(figure)


def process_start() -> float:
    """Return when this process began, on the clock of time.time()."""
    try:
        ticks = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):  # no Linux
        return time.time()


def write_results(trainer: pl.Trainer, tested: Mapping[str, float], trained: Mapping[str, float], folder: Path) -> None:
    """Write metrics.json; speed is that of the last epoch, without its validation."""
    results: dict[str, float | None] = {
        "accuracy": tested["test accuracy"],
        "loss": tested["test loss"],
        "val_accuracy": trained.get("val accuracy"),
        "samples_per_second": trained.get("samples per second"),
        "world_size": trainer.world_size,
        "seconds_to_first_step": trained.get("seconds to first step"),
    }
    results = {name: value if value is None else round(value, 6) for name, value in results.items()}
    part = folder / "metrics.part"
    part.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    put_in_place(part, folder / "metrics.json")


def put_in_place(part: Path, path: Path) -> None:
    """Make a file that is written to the end the one of this name, also past a power cut."""
    with part.open("rb+") as file:
        os.fsync(file.fileno())  # or a node that dies may leave the new name without the new content
    part.replace(path)
