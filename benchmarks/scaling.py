"""python benchmarks/scaling.py [--rounds 3] [-n 1 -n 2 -n 4]: images per second by processes, and the way to step one.

The bundled workload by its own main(), each process with a thread, 64 images a step for each (weak scaling); `of n x
one` is the efficiency. More processes than cores, or than GPUs, share them. Then the seconds from the start of a
process to the end of its first step, of the slowest rank, with their parts: the import of torch and Lightning, which is
the floor; set-up is mnist.py's own (the digits, the network); rendezvous is until the process group stands; first batch
includes what DDP prepares. Medians over the rounds.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

import click
from ranks import MNIST, machine, run_ranks, verdict

PARTS = ("import", "set-up", "rendezvous", "first step")
GOAL = 1.15


def start(world_size: int, words: list[str]) -> tuple[list[float], dict[str, float]]:
    """Return images per second in each epoch but the first, and the seconds that each part of the start took."""
    with tempfile.TemporaryDirectory() as out:
        script = str(Path(__file__).with_name("scaling_rank.py"))
        run_ranks([script, *words], world_size, OUT=out, WORKLOADS=str(MNIST.parent), OMP_NUM_THREADS="1")
        ranks = [json.loads(path.read_text()) for path in sorted(Path(out).iterdir())]
    slowest = max((rank["marks"] for rank in ranks), key=lambda marks: marks["first step"])
    reached = [0.0, *(slowest[part] for part in PARTS)]
    parts = {part: reached[i + 1] - reached[i] for i, part in enumerate(PARTS)}
    return ranks[0]["rates"], parts


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("-n", "sizes", type=click.IntRange(min=1), multiple=True, default=[1, 2, 4], show_default=True)
@click.option("--epochs", type=click.IntRange(min=2), default=3, show_default=True)
@click.argument("options", nargs=-1)
def main(rounds: int, sizes: tuple[int, ...], epochs: int, options: tuple[str, ...]) -> None:
    """Measure scaling and the start; OPTIONS are mnist.py's."""
    print(machine())
    words = ["--epochs", str(epochs), *options]
    rates: dict[int, list[float]] = {size: [] for size in sizes}
    starts: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
    start(1, words)  # once beforehand: bytecode, the page cache
    for _ in range(rounds):
        for size in sizes:
            found, parts = start(size, words)
            rates[size] += found
            starts[size].append(parts)

    print(f"{'processes':>9}{'images/s':>10}{'of n x one':>12}")
    one = statistics.median(rates[sizes[0]]) / sizes[0]
    for size in sizes:
        rate = statistics.median(rates[size])
        print(f"{size:9}{rate:10.0f}{rate / one / size:12.2f}")

    heads = f"{'to step one':>13}{'import':>9}{'set-up':>9}{'rendezvous':>12}{'first batch':>13}{'ratio':>8}"
    print(f"\n{'processes':>9}{heads}")
    ratios = []
    for size in sizes:
        parts = {part: statistics.median(each[part] for each in starts[size]) for part in PARTS}
        total = statistics.median(sum(each.values()) for each in starts[size])
        ratios.append(statistics.median(sum(each.values()) / each["import"] for each in starts[size]))
        shown = [f"{parts[part]:.2f} s" for part in PARTS]
        print(f"{size:9}{f'{total:.2f} s':>13}{shown[0]:>9}{shown[1]:>9}{shown[2]:>12}{shown[3]:>13}{ratios[-1]:8.2f}")
    met = verdict(max(ratios) <= GOAL)
    print(f"goal: first step after at most {GOAL} x the import ({max(ratios):.2f}): {met}")


if __name__ == "__main__":
    main()
