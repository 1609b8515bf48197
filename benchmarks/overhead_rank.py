"""One rank of lightning_overhead.py: mnist.py's own main(), and after each of its epochs the same one in a plain loop.

Not to be started by hand. ARM says what the training is made worse or better by; OUT is the file for rank 0's seconds.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, os.environ["WORKLOADS"])
mnist = importlib.import_module("mnist")
ARM, OUT = os.environ["ARM"], Path(os.environ["OUT"])
train_batches = mnist.DigitsData.train_dataloader


class InTurns(pl.Callback):
    """Times the steps of each of Lightning's epochs, and runs and times the same epoch without it."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[tuple[float, float]]] = {"lightning": [], "plain": []}  # passed, and of cores

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.net = copy.deepcopy(pl_module.net)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.device = pl_module.device
        device_ids = [self.device.index] if self.device.type == "cuda" else None
        self.model = nn.parallel.DistributedDataParallel(self.net.to(self.device), device_ids=device_ids)
        settings = trainer.optimizers[0].param_groups[0]
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=settings["lr"], weight_decay=settings["weight_decay"]
        )
        self.schedule = next(one for one in trainer.callbacks if type(one).__name__ == "Schedule")
        self.batches = train_batches(trainer.datamodule)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.begin()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx + 1 == len(self.batches):
            self.end("lightning")
            self.begin()
            self.places = SimpleNamespace(
                num_training_batches=trainer.num_training_batches,
                current_epoch=trainer.current_epoch,
                world_size=trainer.world_size,
                optimizers=[self.optimizer],
            )
            self.plain_epoch(trainer.current_epoch)
            self.end("plain")

    def plain_epoch(self, epoch: int) -> None:
        """Train for an epoch as one does without Lightning."""
        self.batches.sampler.set_epoch(epoch)
        loss_sum = torch.zeros((), device=self.device)
        for number, (images, labels) in enumerate(self.batches):
            self.schedule.on_train_batch_start(self.places, None, None, number)
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(images), labels)
            loss.backward()
            self.optimizer.step()
            loss_sum += loss.detach()

    def begin(self) -> None:
        self.wait()
        self.began = time.perf_counter(), time.process_time()

    def end(self, name: str) -> None:
        self.wait()
        wall, cores = self.began
        self.seconds[name].append((time.perf_counter() - wall, time.process_time() - cores))

    def wait(self) -> None:
        """Wait for this rank's GPU and for the other ranks."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        dist.barrier()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            OUT.write_text(json.dumps({"steps": len(self.batches), **self.seconds}))


def change() -> None:
    """Give the workload what most trainings have and it has not, or take from Lightning what cannot be switched off."""
    if ARM == "DataLoader":

        def usual(self: Any) -> Any:
            own = train_batches(self)
            images = (own.images[:, None].float() - self.mean) / self.std
            return DataLoader(TensorDataset(images, own.labels.long()), self.batch_size, sampler=own.sampler)

        mnist.DigitsData.train_dataloader = usual
    elif ARM == "self.log":
        step = mnist.DigitsModel.training_step

        def logged(self: Any, batch: Any, batch_idx: int) -> Any:
            loss = step(self, batch, batch_idx)
            self.log("step loss", loss, on_step=False, on_epoch=True, sync_dist=True, batch_size=len(batch[1]))
            return loss

        mnist.DigitsModel.training_step = logged


def main() -> None:
    """Run the workload with one callback more."""
    change()
    fit = pl.Trainer.fit

    def fit_in_turns(self: Any, *args: Any, **options: Any) -> None:
        self.callbacks.insert(0, InTurns())
        if ARM == "no broadcast" and hasattr(self.fit_loop.epoch_loop, "_broadcast_sigterm_tensor"):
            self.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None
        fit(self, *args, **options)

    pl.Trainer.fit = fit_in_turns  # type: ignore[method-assign]
    mnist.main()


if __name__ == "__main__":
    main()
