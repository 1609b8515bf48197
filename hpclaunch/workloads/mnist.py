"""Train a small network on handwritten digits, on one process or on many: a start for a training of your own.

    python mnist.py                                   one process
    torchrun --nproc-per-node 4 mnist.py              four processes on this machine
    srun python mnist.py                              in a Slurm job with --ntasks-per-node, one process a task
    python mnist.py --devices 4                       the same; Lightning starts the other three
    python mnist.py --gpu_ids 0,1,2,3 --world_size 8 --rank 0 --dist_url tcp://node1:29500
                                                      once on each of two nodes (--rank 4 on the second):
                                                      Lightning starts the other three processes of the node

How many processes there are and where comes from the environment, else from the options (see `find_layout`). Without
--data-dir it trains on digits that it draws itself: nothing is ever downloaded.

This file has what is special to this training: batches, the network, the optimizer. Beside it lie digits.py (reading
the data), training.py (options, metrics, the Trainer), layout.py (where the processes are, the checks before the start)
and resume.py. `hpclaunch workload copy mnist train.py` brings them all.

A training outlives its walltime: on SIGUSR1 or SIGTERM all processes save together, between two steps, and leave with
exit code 75; started again in the same way they go on with the next step (see `SaveAndLeave` in resume.py).
"""

import argparse
import math
import os
from collections.abc import Iterator
from typing import Any

import torch
from pytorch_lightning import LightningDataModule
from torch import nn
from torch.utils.data import DistributedSampler, TensorDataset

# The files beside this one.
from digits import Digits, draw_digits, read_mnist
from training import Classifier, make_parser, train


class DigitsData(LightningDataModule):
    """The digits in memory; each rank gets its own part of them."""

    def __init__(self, args: argparse.Namespace) -> None:
        # Read here and not in setup(), which runs when all ranks already wait for each other: bad data then ends
        # every rank at once and none hangs.
        super().__init__()
        self.batch_size, self.seed = args.batch_size, args.seed
        source = args.data_dir
        train, test = read_mnist(source) if source else (draw_digits(12_000, seed=1), draw_digits(2_000, seed=2))
        pixels = train[0].float()
        self.mean, self.std = pixels.mean().item(), pixels.std().item()
        held_out = max(1, len(train[0]) // 12)  # of MNIST's 60,000 the usual 5,000
        self.train_set = TensorDataset(train[0][held_out:], train[1][held_out:])
        self.val_set = TensorDataset(train[0][:held_out], train[1][:held_out])
        self.test_set = TensorDataset(*test)

    def train_dataloader(self) -> "Batches":
        return Batches(self, self.train_set, shuffle=True)

    def val_dataloader(self) -> "Batches":
        return Batches(self, self.val_set)

    def test_dataloader(self) -> "Batches":
        return Batches(self, self.test_set)


class Batches:
    """One rank's images in batches, gathered where they lie: in the memory of the rank's own device.

    A DataLoader fetches image by image, in Python, which takes time or more processes. What fits into memory needs
    neither: a batch is one gathering of bytes, made into numbers on the way. Lightning takes any iterable with a length
    for a loader, and tells each epoch to what it finds in `sampler`.

    There are as many batches on every rank, since a batch is where all ranks meet; the last may be smaller, or empty.
    """

    batch_sampler = None  # Lightning asks for it if there is a sampler

    def __init__(self, data: DigitsData, digits: TensorDataset, shuffle: bool = False) -> None:
        trainer: Any = data.trainer
        rank, world_size = trainer.global_rank, trainer.world_size
        self.data = data
        self.images, self.labels = [tensor.to(trainer.strategy.root_device) for tensor in digits.tensors]
        self.sampler: Any = range(rank, len(digits), world_size)  # each image once: counts are exact
        if shuffle:  # fills up the ranks: all have the same number of images
            self.sampler = DistributedSampler(digits, world_size, rank, seed=data.seed)
        self.steps: int = math.ceil(math.ceil(len(digits) / world_size) / data.batch_size)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Digits]:
        order = torch.tensor(list(self.sampler), dtype=torch.int64, device=self.images.device)
        for batch in range(self.steps):
            chosen = order[batch * self.data.batch_size :][: self.data.batch_size]
            images = self.images.index_select(0, chosen).sub(self.data.mean).div_(self.data.std)
            yield images[:, None], self.labels.index_select(0, chosen).long()


def make_network(name: str, batch_norm: bool = False) -> nn.Sequential:
    """Return the network of this name: images (n, 1, 28, 28) to the scores of the ten digits (n, 10)."""

    def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0) -> list[nn.Module]:
        norm = [nn.BatchNorm2d(outputs)] if batch_norm else []
        return [nn.Conv2d(inputs, outputs, kernel, stride, padding), *norm, nn.ReLU()]

    if name == "perceptron":  # 0.1 million parameters
        features, before = 784, []
    elif name == "cnn-large":  # 1.2 million, that of https://github.com/pytorch/examples/blob/main/mnist/main.py
        features, before = 64 * 12 * 12, [*convolution(1, 32, 3), *convolution(32, 64, 3), nn.MaxPool2d(2)]
    else:  # 0.2 million; 28 x 28 -> 14 x 14 -> 7 x 7
        features, before = 32 * 7 * 7, [*convolution(1, 16, 5, 2, 2), *convolution(16, 32, 3, 2, 1)]
    layers = [*before, nn.Flatten(), nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, 10)]
    if name == "cnn-large":
        layers[-4:] = [nn.Dropout(0.25), *layers[-4:-1], nn.Dropout(0.5), layers[-1]]
    return nn.Sequential(*layers)


class DigitsModel(Classifier):  # type: ignore[misc] # mypy knows it by another name
    """A network and how it learns; its loss and metrics are every classifier's."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.lr, self.net = args.lr, make_network(args.model, args.sync_batchnorm)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=0.01)


def main() -> None:
    parser = make_parser("Train a small network on handwritten digits.")
    parser.add_argument("--model", choices=("cnn", "cnn-large", "perceptron"), default="cnn")
    parser.set_defaults(data_dir=os.environ.get("MNIST_DIR") or None)
    # The peak of the learning rate grows with Adam as the square root of a step's images (Malladi et al. 2022,
    # https://arxiv.org/abs/2205.10287).
    train(parser, DigitsData, DigitsModel, scale=math.sqrt)


if __name__ == "__main__":
    main()
