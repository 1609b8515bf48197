"""python benchmarks/data.py [--rounds 5]: images per second that the way to the data gives, with no network behind it.

In turns, epochs of the bundled workload's batches and of the usual way: a Dataset that makes each image a tensor and
normalises it when it is asked for, as torchvision's MNIST with ToTensor and Normalize does, in a DataLoader. That is
written out here in torch, without PIL and torchvision's checks: they would make it slower still.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import click
import torch
from ranks import MNIST, machine, verdict
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

OURS, GOAL = "bundled workload", 5


class PerImage(Dataset[tuple[Tensor, int]]):
    """Images as bytes, made floats from 0 to 1 and normalised one by one."""

    def __init__(self, images: Tensor, labels: Tensor, mean: float, std: float) -> None:
        self.images, self.labels, self.mean, self.std = images, labels, mean / 255, std / 255

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = self.images[index].unsqueeze(0).to(torch.float32).div(255)  # ToTensor
        mean, std = torch.as_tensor(self.mean), torch.as_tensor(self.std)
        return image.sub_(mean).div_(std), int(self.labels[index])  # Normalize


def epoch(batches: Iterable[Any], device: torch.device) -> tuple[float, float]:
    """Return how many seconds an epoch takes, and a sum over it that shows that all ways have the same images."""
    total = torch.zeros((), dtype=torch.float64, device=device)
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for position, (images, labels) in enumerate(batches):
        total += images.to(device)[:, :, 9, 9].sum() * position + labels.to(device).sum() * position
    checksum = total.item()  # waits for a GPU
    return time.perf_counter() - began, checksum


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--images", type=click.IntRange(min=2), default=60_000, show_default=True)
@click.option("--batch-size", type=click.IntRange(min=1), default=64, show_default=True)
def main(rounds: int, images: int, batch_size: int) -> None:
    """Measure the data path alone."""
    sys.path.insert(0, str(MNIST.parent))
    mnist = importlib.import_module("mnist")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(f"{images} images in batches of {batch_size} on {device.type}, {machine()}")
    torch.set_num_threads(1)  # as in a rank with a core of its own
    pixels, labels = mnist.draw_digits(images, seed=1)
    per_image = PerImage(pixels, labels, 33.3, 78.6)
    trainer = SimpleNamespace(strategy=SimpleNamespace(root_device=device), global_rank=0, world_size=1)
    data = SimpleNamespace(trainer=trainer, batch_size=batch_size, mean=33.3, std=78.6, seed=0)
    ours = mnist.Batches(data, TensorDataset(pixels, labels), shuffle=True)
    sampler = ours.sampler
    pinned = {"pin_memory": device.type == "cuda"}
    ways: dict[str, Iterable[Any]] = {
        OURS: ours,
        "DataLoader, 0 workers": DataLoader(per_image, batch_size, sampler=sampler, **pinned),
        "DataLoader, 2 workers": DataLoader(per_image, batch_size, sampler=sampler, num_workers=2, **pinned),
    }
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds):
        sums = {}
        sampler.set_epoch(number)
        for way, batches in ways.items():
            seconds, sums[way] = epoch(batches, device)
            rates[way].append(images / seconds)
        if max(sums.values()) - min(sums.values()) > 1e-6 * abs(sums[OURS]):
            raise click.ClickException(f"the ways have not the same images: {sums}")
    print(f"{'':24}{'images/s':>10}{'ratio':>7}")
    ratios = {}
    for way, row in rates.items():
        ratios[way] = statistics.median(mine / other for mine, other in zip(rates[OURS], row, strict=True))
        print(f"{way:24}{statistics.median(row):10.0f}{1 / ratios[way]:7.3f}")
    least = min(ratio for way, ratio in ratios.items() if way != OURS)
    print(f"goal: at least {GOAL} x either DataLoader ({least:.1f}): {verdict(least >= GOAL)}")


if __name__ == "__main__":
    main()
