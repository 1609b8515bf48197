"""The digits that mnist.py trains on: read MNIST's files, or draw digits where there are none.

Here is what is special to this data set, so that mnist.py beside it can show what is common to all trainings.
"""

import gzip
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from layout import StartError

# Images are (n, 28, 28), labels are (n,), both uint8, as in the MNIST files.
Digits = tuple[Tensor, Tensor]


NAMES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
BROKEN = (EOFError, IndexError, KeyError, ValueError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error)


def read_mnist(source: Path) -> tuple[Digits, Digits]:
    """Find MNIST's training and test images at `source`: a folder, torchvision's root folder, or a .npz file."""
    npz = source / "mnist.npz" if source.is_dir() else source
    if not source.exists():
        raise StartError(f"{source}: no such folder; --data-dir needs a folder with MNIST's IDX files or an mnist.npz")
    found = {}
    for key, name in NAMES.items():
        places = [source / folder / f"{name}{suffix}" for folder in ("", "MNIST/raw") for suffix in ("", ".gz")]
        path = next(filter(Path.is_file, [npz, *places]), None)
        if not path:
            raise StartError(f"{source}: has no {name}[.gz], neither in it nor in MNIST/raw, and no mnist.npz")
        try:
            found[key] = read_array(path, key)
        except BROKEN as error:
            raise StartError(f"{path}: not a complete file of MNIST's ({error}); copy it again") from error
    train, test = [check_digits(found[f"x_{part}"], found[f"y_{part}"], source) for part in ("train", "test")]
    return train, test


def read_array(path: Path, key: str) -> Tensor:
    """Read an IDX file of bytes (http://yann.lecun.com/exdb/mnist/), plain or gzipped, or one array of a .npz file."""
    if "idx" not in path.name:
        with np.load(path) as arrays:
            return torch.from_numpy(arrays[key])
    raw = path.read_bytes()
    raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    if raw[:3] != b"\0\0\x08":  # 8: unsigned bytes
        raise ValueError("an IDX file of bytes starts with 000008")
    shape = np.frombuffer(raw, ">i4", count=raw[3], offset=4)
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=4 + shape.nbytes).reshape(shape).copy())


def check_digits(images: Tensor, labels: Tensor, source: Path) -> Digits:
    """Return images and labels if they belong together, else raise StartError."""
    if images.dtype != torch.uint8 or images.shape != (*labels.shape, 28, 28) or len(images) < 2:
        found = f"images are {images.dtype} {list(images.shape)} and labels {list(labels.shape)}"
        raise StartError(f"{source}: {found}; needed are torch.uint8 [n, 28, 28] and [n], n at least 2")
    if labels.min() < 0 or labels.max() > 9:
        raise StartError(f"{source}: needed are labels from 0 to 9")
    return images, labels


# The ways to write each digit from 0 to 9: strokes divided by "|", each a pen's way through points "xy" on a grid of
# 10 by 10, y downwards.
GLYPHS = (
    ("50 22 15 28 59 78 85 72 50", "60 32 24 27 49 68 75 72 50 31"),
    ("50 59", "33 50|50 59", "32 50|50 59|29 79"),
    ("22 40 61 73 55 19|19 89", "22 50 73 65 38 19 27 48 69 88"),
    ("21 40 71 73 44|44 76 77 59 18", "20 70|70 44|44 76 77 59 18"),
    ("20 15|15 85|62 59", "60 15|15 85|60 69", "20 14 26 65|70 69"),
    ("70 30|30 24|24 54 76 78 49 18", "30 24|24 54 76 78 49 18|30 80"),
    ("60 33 16 28 59 78 76 54 25 17", "40 27 49 68 66 45 27"),
    ("10 80|80 49", "10 80|80 39|35 75", "12 10|10 80|80 65 59"),
    ("71 40 22 34 65 77 59 38 26 54 73 71", "50 72 54 32 50|54 77 59 27 54"),
    ("73 50 22 34 65 73|73 69", "72 50 22 34 64 72|72 76 59 28"),
)


def draw_digits(count: int, seed: int) -> Digits:
    """Draw `count` digits, an equal number of each, in random order; the same seed gives the same digits."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 10
    variants = torch.arange(count) // 10
    images = torch.empty(count, 28, 28, dtype=torch.uint8)
    for digit, glyphs in enumerate(GLYPHS):
        for variant, glyph in enumerate(glyphs):
            chosen = (labels == digit) & (variants % len(glyphs) == variant)
            images[chosen] = draw_glyph(glyph, int(chosen.sum()), rng).mul_(255).to(torch.uint8)
    order = torch.randperm(count, generator=rng)
    return images[order], labels[order].to(torch.uint8)


def draw_glyph(glyph: str, count: int, rng: torch.Generator) -> Tensor:
    """Draw one glyph `count` times, each in another hand; returns (count, 28, 28), 0 paper, 1 ink."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, generator=rng)

    # The hand: turn, slant, width and height; 2 pixels per unit of the grid at most, so that a digit fits in 28.
    turn, slant, width, height = (uniform(-0.3, 0.3), uniform(-0.4, 0.4), uniform(1.1, 2.1), uniform(1.4, 2.1))
    x_axis = torch.cat([turn.cos(), turn.sin()], 1) * width
    y_axis = torch.cat([-turn.sin() - slant, turn.cos()], 1) * height
    shift = 13.5 + torch.cat([uniform(-2, 2), uniform(-2, 2)], 1)

    curves = []
    for stroke in glyph.split("|"):
        grid = torch.tensor([[float(xy) for xy in point] for point in stroke.split()]).T - 4.5
        points = grid + 0.35 * torch.randn(count, *grid.shape, generator=rng)
        points = x_axis * points[:, :1] + y_axis * points[:, 1:] + shift
        # A smooth curve through the points: image scaling in one dimension, about a dot a pixel.
        dots = int(2 * grid.diff().norm(dim=0).sum()) + 1
        curves.append(F.interpolate(points[:, :, None], (1, dots), mode="bicubic", align_corners=True)[:, :, 0])
    curve = torch.cat(curves, 2)

    # Each dot leaves a round Gaussian blot. That is a factor in x times a factor in y, so that the sum over
    # all dots is one matrix product an image. Where there is as good as no ink, numbers too small for the processor's
    # fast way would make it eight times slower.
    blots = torch.arange(28.0)[:, None] - curve[:, :, None]
    blots.div_(uniform(0.6, 1.2)[..., None]).square_().mul_(-0.5).clamp_(min=-50).exp_()
    ink = (blots[:, 1] @ blots[:, 0].mT).clamp(max=1) * uniform(0.6, 1)
    return ink.add_(torch.randn(ink.shape, generator=rng), alpha=0.12).clamp_(0, 1)
