"""Train ResNet-18 or ResNet-50 on CIFAR-10, from scratch or from a weights file (transfer learning).

    python resnet.py                                  one process, on images that it draws itself
    torchrun --nproc-per-node 4 resnet.py --data-dir cifar-10-batches-py --channels-last --precision bf16-mixed
    python resnet.py --arch resnet50 --weights resnet50.pth --freeze
                                                      only the last layer learns; images are scaled up to 224 x 224

It needs torchvision, and never downloads. This file has what is special to this training: images, the network, the
optimizer. Beside it lie training.py, layout.py and resume.py, as of mnist.py. `hpclaunch workload copy resnet train.py`
brings them all.
"""

import argparse
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pytorch_lightning import LightningDataModule
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

# The files beside this one.
from layout import StartError
from training import Batch, Classifier, make_parser, train


class Arrays(pickle.Unpickler):
    """Reads arrays only: a pickle may name any function to call."""

    def find_class(self, module: str, name: str) -> Any:
        known = {"_reconstruct": np.zeros(1).__reduce__()[0], "ndarray": np.ndarray, "dtype": np.dtype}
        if not module.startswith("numpy") or name not in known:
            raise pickle.UnpicklingError(f"{module}.{name} is no array")
        return known[name]


def read_part(folder: Path, name: str) -> Batch:
    """Read one of CIFAR-10's six files, python or binary (https://www.cs.toronto.edu/~kriz/cifar.html)."""
    folders = (folder, folder / "cifar-10-batches-py", folder / "cifar-10-batches-bin")
    path = next((p for f in folders for p in (f / name, f / f"{name}.bin") if p.is_file()), None)
    if not path:
        raise StartError(f"{folder}: has no {name}[.bin]; --data-dir needs CIFAR-10's python or binary files")
    try:
        if path.suffix == ".bin":
            rows = np.fromfile(path, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
            labels, images = rows[:, 0], rows[:, 1:]
        else:
            with path.open("rb") as file:
                found = Arrays(file, encoding="bytes").load()
            labels, images = np.array(found[b"labels"]), found[b"data"]
        pair = torch.tensor(images.reshape(len(labels), 3, 32, 32)), torch.tensor(labels, dtype=torch.int64)
        if pair[0].dtype != torch.uint8 or not len(labels) or labels.min() < 0 or labels.max() > 9:
            raise ValueError("needed are bytes and labels from 0 to 9")
    except (EOFError, KeyError, TypeError, ValueError, AttributeError, IndexError, pickle.UnpicklingError) as error:
        raise StartError(f"{path}: not a complete file of CIFAR-10's ({error}); copy it again") from error
    return pair


def draw_images(count: int, seed: int) -> Batch:
    """Draw 32 x 32 images of ten classes: parts of a smooth pattern of each class, with noise."""
    patterns = torch.rand(10, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    patterns = F.interpolate(patterns, 40, mode="bicubic").clamp(0, 1)
    rng = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=rng)
    images = crop(patterns[labels], 32, torch.randint(9, (2, count, 1, 1), generator=rng))
    noise = 0.2 * torch.randn(images.shape, generator=rng)
    return ((images + noise).clamp(0, 1) * 255).to(torch.uint8), labels


def crop(images: Tensor, size: int, corners: Tensor) -> Tensor:
    """Cut a square out of each image; `corners` (2, n, 1, 1) are their rows and columns."""
    along = torch.arange(size, device=images.device)
    rows, columns = corners[0] + along[:, None], corners[1] + along
    each = torch.arange(len(images), device=images.device)[:, None, None]
    return images[each, :, rows, columns].permute(0, 3, 1, 2)


class CifarData(LightningDataModule):
    """The images, fetched by worker processes into pinned memory; each rank gets its own part of them."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.args = args
        if args.data_dir:
            parts = [read_part(args.data_dir, f"data_batch_{number}") for number in range(1, 6)]
            images, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
            test = read_part(args.data_dir, "test_batch")
        else:
            (images, labels), test = draw_images(6_000, seed=1), draw_images(1_000, seed=2)
        held_out = max(1, len(images) // 10)
        self.train_set = TensorDataset(images[held_out:], labels[held_out:])
        self.val_set = TensorDataset(images[:held_out], labels[:held_out])
        self.test_set = TensorDataset(*test)

    def loader(self, images: TensorDataset, shuffle: bool = False) -> "DataLoader[Any]":
        trainer: Any = self.trainer
        rank, ranks = trainer.global_rank, trainer.world_size
        sampler: Any = range(rank, len(images), ranks)  # each image once: counts are exact
        if shuffle:  # fills up the ranks: all have the same number of images
            sampler = DistributedSampler(images, ranks, rank, seed=self.args.seed)
        pinned = trainer.strategy.root_device.type == "cuda"
        workers: Any = {"num_workers": self.args.workers, "persistent_workers": self.args.workers > 0}
        return DataLoader(images, self.args.batch_size, sampler=sampler, pin_memory=pinned, **workers)

    def on_after_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """Make floats of bytes, on the device, and other images of the training's with the rank's random numbers."""
        images, labels = batch
        images = (images / 255 - 0.45) / 0.225  # about ImageNet's mean and deviation, as weights files expect
        if self.trainer and self.trainer.training:
            corners = torch.randint(9, (2, len(images), 1, 1), device=images.device)
            images = crop(F.pad(images, (4, 4, 4, 4)), 32, corners)
            images = images.where(torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5, images.flip(3))
        if self.args.weights:
            images = F.interpolate(images, 224, mode="bilinear")
        layout = torch.channels_last if self.args.channels_last else torch.contiguous_format
        return images.contiguous(memory_format=layout), labels

    def train_dataloader(self) -> "DataLoader[Any]":
        return self.loader(self.train_set, shuffle=True)

    def val_dataloader(self) -> "DataLoader[Any]":
        return self.loader(self.val_set)

    def test_dataloader(self) -> "DataLoader[Any]":
        return self.loader(self.test_set)


class ResNet(Classifier):  # type: ignore[misc] # mypy knows it by another name
    """torchvision's network for ten classes, and how it learns."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        try:
            from torchvision import models
        except ImportError as error:
            advice = f"install the one that fits torch {torch.__version__}, from where torch is from"
            raise StartError(f"torchvision is not installed ({error}); {advice}") from error
        self.args = args
        self.net = getattr(models, args.arch)(num_classes=10)
        if args.weights:
            self.load_weights(args.weights)
        else:  # a stem for small images
            self.net.conv1, self.net.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
        for name, layer in self.net.named_children() if args.freeze else ():
            if name != "fc":
                layer.requires_grad_(False).eval()  # batch norm keeps its means, too
        if args.channels_last:
            self.net.to(memory_format=torch.channels_last)

    def load_weights(self, path: Path) -> None:
        """Load a state_dict for ImageNet, or one of our own checkpoints; the last layer begins anew."""
        try:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
            state = {name.removeprefix("net."): value for name, value in loaded.get("state_dict", loaded).items()}
            own = {name: value for name, value in self.net.state_dict().items() if name.startswith("fc.")}
            self.net.load_state_dict(state | own)
        except Exception as error:  # a broken file makes torch.load raise any of a dozen kinds
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise StartError(f"{path}: no weights of {self.args.arch} ({reason})") from error

    def configure_optimizers(self) -> Any:
        learning = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return torch.optim.SGD(learning, lr=self.args.lr, momentum=0.9, weight_decay=5e-4)


def main() -> None:
    parser = make_parser("Train a ResNet on CIFAR-10.")
    add = parser.add_argument_group("the network and its images").add_argument
    add("--arch", choices=("resnet18", "resnet50"), default="resnet18")
    add("--weights", type=Path, metavar="FILE", help="begin with these, for ImageNet; images become 224 x 224")
    add("--freeze", action="store_true", help="only the last layer learns")
    add("--channels-last", action="store_true", help="a layout in memory that GPUs prefer")
    add("--workers", type=int, default=2, help="processes that fetch images, for each rank (%(default)s)")
    parser.set_defaults(data_dir=os.environ.get("CIFAR10_DIR") or None, batch_size=128, lr=0.05)
    # The peak of the learning rate grows with SGD as a step's images (Goyal et al. 2017,
    # https://arxiv.org/abs/1706.02677).
    train(parser, CifarData, ResNet, scale=float)


if __name__ == "__main__":
    main()
