"""python benchmarks/lightning_overhead.py [--rounds 20] [--parts]: what Lightning costs beside a plain loop.

The bundled workload trains by its own main(), and after the steps of each of its epochs the same processes train for
an epoch in a plain torch DDP loop: same network, images, batches, optimizer, steps. `ratio` is the median over
the epochs after the first of Lightning's time to the plain loop's just after, which neighbours on the machine disturb
less than the times; `from` and `to` are its quartiles. `cores` is that ratio in processor time of rank 0: neighbours
hardly change it, and waiting for other ranks does not count. --parts tries in turns also what this workload avoids, and
what it would gain if Lightning let it.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from operator import sub, truediv
from pathlib import Path

import click
from ranks import MNIST, machine, run_ranks, verdict

GOALS = {"cpu": {"cnn-large": 1.02, "perceptron": 1.15}, "gpu": {"cnn-large": 1.03}}
ARMS = {
    "as bundled": "as bundled",
    "DataLoader": "+ a DataLoader with a TensorDataset",
    "self.log": "+ self.log(on_epoch, sync_dist) in each step",
    "no broadcast": "- Lightning's broadcast of SIGTERM in each step",
}


def in_turns(arm: str, model: str, epochs: int, world_size: int, options: tuple[str, ...]) -> list[tuple[float, ...]]:
    """Return of each epoch but the first milliseconds a step, Lightning's and the plain loop's, and those of a core."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "seconds.json"
        script = str(Path(__file__).with_name("overhead_rank.py"))
        words = ["--model", model, "--epochs", str(epochs), "--strategy", "ddp", *options]  # also where there is one
        run_ranks([script, *words], world_size, ARM=arm, OUT=str(out), WORKLOADS=str(MNIST.parent))
        found = json.loads(out.read_text())
    pairs = zip(found["lightning"], found["plain"], strict=True)
    return [tuple(1e3 * seconds / found["steps"] for seconds in (*ours, *plain)) for ours, plain in pairs][1:]


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--rounds", type=click.IntRange(min=1), default=20, show_default=True, help="Epochs that count.")
@click.option("--starts", type=click.IntRange(min=1), default=3, show_default=True, help="Over so many new starts.")
@click.option("--processes", type=click.IntRange(min=1), help="2 without a GPU, one for each GPU with.")
@click.option("--model", "models", multiple=True, default=["perceptron", "cnn-large"], show_default=True)
@click.option("--parts", is_flag=True, help="Find where the time goes.")
@click.argument("options", nargs=-1)
def main(
    rounds: int, starts: int, processes: int | None, models: tuple[str, ...], parts: bool, options: tuple[str, ...]
) -> None:
    """Measure Lightning against a plain loop; OPTIONS are mnist.py's."""
    import torch

    gpus = torch.cuda.device_count()
    world_size = processes or gpus or 2
    goals = GOALS["gpu" if gpus >= world_size else "cpu"]
    print(f"{world_size} process{'es' if world_size > 1 else ''} on {machine()}")
    print(f"{'ms a step':52}{'Lightning':>10}{'plain':>8}{'more':>7}{'ratio':>7}{'from':>6}{'to':>6}{'cores':>7}")
    reached = {}
    for model in models:
        arms = ARMS if parts else {"as bundled": ""}
        epochs = 1 + -(-rounds // starts)
        found: dict[str, list[tuple[float, ...]]] = {arm: [] for arm in arms}
        for _ in range(starts):
            for arm in arms:
                found[arm] += in_turns(arm, model, epochs, world_size, options)
        for arm, rows in found.items():
            ours, our_cores, plain, plain_cores = [list(column) for column in zip(*rows, strict=True)]
            ratios = list(map(truediv, ours, plain))
            low, ratio, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
            cores = statistics.median(map(truediv, our_cores, plain_cores))
            more = statistics.median(map(sub, ours, plain))
            name = f"{model}, {ARMS[arm]}" if arm == "as bundled" else f"  {ARMS[arm]}"
            times = f"{statistics.median(ours):10.2f}{statistics.median(plain):8.2f}{more:7.2f}"
            print(f"{name:52}{times}{ratio:7.2f}{low:6.2f}{high:6.2f}{cores:7.2f}")
            if arm == "as bundled":
                reached[model] = ratio
    for model, ratio in reached.items():
        if model in goals:
            met = verdict(ratio <= goals[model])
            print(f"goal: {model} at most {goals[model]} x the plain loop ({ratio:.2f}): {met}")


if __name__ == "__main__":
    main()
