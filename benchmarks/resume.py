"""python benchmarks/resume.py [--rounds 9] [--steps 1000]: what SaveAndLeave costs in a step of 10 ms.

A Lightning training with almost no work in a step runs in turns without and with SaveAndLeave. A round's cost is the
difference in processor time for each step, which neighbours on the machine hardly change: hooks, fetches of batches and
votes are in it (as many as with 10 ms), saves are not. The goal is at most 0.5 % of 10 ms, 50 us.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings

import click
from ranks import machine, verdict

STEP, GOAL = 10.0, 0.005  # milliseconds, a part of them


def step_time(steps: int, with_callback: bool) -> float:
    """Return the milliseconds of a processor from each step to the next."""
    import torch
    from pytorch_lightning import Callback, LightningModule, Trainer
    from torch.utils.data import DataLoader, TensorDataset

    from hpclaunch.lightning import SaveAndLeave

    class Model(LightningModule):
        """A step of almost nothing."""

        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(8, 1)
            self.at: list[float] = []

        def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
            self.at.append(time.process_time())
            return self.net(batch[0]).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    model, data = Model(), TensorDataset(torch.randn(4 * steps, 8))
    with tempfile.TemporaryDirectory() as folder:
        callbacks: list[Callback] = [SaveAndLeave(folder)] if with_callback else []
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = Trainer(max_epochs=1, accelerator="cpu", callbacks=callbacks, enable_checkpointing=False, **quiet)
        trainer.fit(model, DataLoader(data, 4, shuffle=True))
    return 1000 * (model.at[-1] - model.at[0]) / (len(model.at) - 1)


@click.command()
@click.option("--rounds", type=click.IntRange(min=2), default=9, show_default=True)
@click.option("--steps", type=click.IntRange(min=10), default=1000, show_default=True)
def main(rounds: int, steps: int) -> None:
    """Measure what SaveAndLeave adds to a step."""
    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    step_time(steps, True)  # imports, caches
    costs = []
    for number in range(rounds):
        times = {arm: step_time(steps, arm) for arm in ((True, False) if number % 2 else (False, True))}
        costs.append((times[True] - times[False]) / STEP)
        print(f"round {number + 1}: {times[False]:.3f} ms without, {times[True]:.3f} ms with SaveAndLeave")
    low, cost, high = statistics.quantiles(costs, n=4)
    print(f"SaveAndLeave adds {100 * cost:.2f} % ({100 * low:.2f} to {100 * high:.2f}) to {STEP:g} ms on {machine()}")
    print(f"goal: at most {100 * GOAL} %: {verdict(cost <= GOAL)}")


if __name__ == "__main__":
    main()
