"""python benchmarks/resume.py [--rounds 9] [--steps 300]: what SaveAndLeave costs in a step of 10 ms.

A Lightning training of 10 ms a step runs in turns without and with SaveAndLeave. A round's cost is the difference
of the mean times from step to step: hooks, the fetch of a batch and the votes are in it, saves are not. Printed are the
median over the rounds and the quartiles. The goal is at most 0.5 %.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings

import click
from ranks import machine, verdict

GOAL = 0.005


def step_times(steps: int, with_callback: bool, milliseconds: float) -> list[float]:
    """Return the milliseconds from each step to the next."""
    import torch
    from pytorch_lightning import Callback, LightningModule, Trainer
    from torch.utils.data import DataLoader, TensorDataset

    from hpclaunch.lightning import SaveAndLeave

    class Model(LightningModule):
        """A step that takes its time without a core, as one on a GPU does."""

        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(8, 1)
            self.at: list[float] = []

        def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
            self.at.append(time.perf_counter())
            while time.perf_counter() < self.at[-1] + milliseconds / 1000:
                pass
            return self.net(batch[0]).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    model, data = Model(), TensorDataset(torch.randn(4 * steps, 8))
    with tempfile.TemporaryDirectory() as folder:
        callbacks: list[Callback] = [SaveAndLeave(folder)] if with_callback else []
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = Trainer(max_epochs=1, accelerator="cpu", callbacks=callbacks, enable_checkpointing=False, **quiet)
        trainer.fit(model, DataLoader(data, 4, shuffle=True))
    return [1000 * (after - before) for before, after in zip(model.at, model.at[1:], strict=False)]


@click.command()
@click.option("--rounds", type=click.IntRange(min=2), default=9, show_default=True)
@click.option("--steps", type=click.IntRange(min=10), default=300, show_default=True)
@click.option("--milliseconds", type=float, default=10, show_default=True, help="Of a step.")
def main(rounds: int, steps: int, milliseconds: float) -> None:
    """Measure what SaveAndLeave adds to a step."""
    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    step_times(steps, True, 0)  # imports, caches
    costs = []
    for number in range(rounds):
        times = {arm: step_times(steps, arm, milliseconds) for arm in ((True, False) if number % 2 else (False, True))}
        plain, ours = statistics.fmean(times[False]), statistics.fmean(times[True])
        costs.append((ours - plain) / plain)
        print(f"round {number + 1}: {plain:.3f} ms without, {ours:.3f} ms with SaveAndLeave")
    low, cost, high = statistics.quantiles(costs, n=4)
    print(f"SaveAndLeave adds {100 * cost:.2f} % ({100 * low:.2f} to {100 * high:.2f}) to a step on {machine()}")
    print(f"goal: at most {100 * GOAL} %: {verdict(cost <= GOAL)}")


if __name__ == "__main__":
    main()
