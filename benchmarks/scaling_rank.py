"""One rank of scaling.py: mnist.py's own main(), timed; scaling.py starts it. OUT is the folder for what it finds."""

from __future__ import annotations

import os
import sys
import time

BEGAN = float(os.environ["BEGAN"])  # on the clock of time.time(), when this process was started
marks = {"python": time.time() - BEGAN}

import pytorch_lightning as pl  # noqa: E402
import torch  # noqa: E402

marks["import"] = time.time() - BEGAN

import importlib  # noqa: E402
import json  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402


class Clock(pl.Callback):
    """Notes when the first step is reached, and how long the steps of each epoch take."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        marks.setdefault("rendezvous", time.time() - BEGAN)  # Lightning has just made the process group

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.began = time.perf_counter()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if "first step" not in marks:
            wait()
            marks["first step"] = time.time() - BEGAN
        if batch_idx + 1 == trainer.num_training_batches:
            wait()
            self.seconds.append(time.perf_counter() - self.began)

    def on_train_end(self, trainer: Any, pl_module: pl.LightningModule) -> None:
        rates = [len(trainer.datamodule.train_set) / seconds for seconds in self.seconds[1:]]
        path = Path(os.environ["OUT"]) / f"{trainer.global_rank}.json"
        path.write_text(json.dumps({"marks": marks, "rates": rates}))


def wait() -> None:
    """Wait for the GPU; the step's all-reduce has waited for the other ranks."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    """Run the workload with one callback more."""
    sys.path.insert(0, os.environ["WORKLOADS"])
    mnist = importlib.import_module("mnist")
    fit = pl.Trainer.fit

    def timed_fit(self: Any, *args: Any, **options: Any) -> None:
        marks["set-up"] = time.time() - BEGAN
        self.callbacks.insert(0, Clock())
        fit(self, *args, **options)

    pl.Trainer.fit = timed_fit  # type: ignore[method-assign]
    mnist.main()


if __name__ == "__main__":
    main()
