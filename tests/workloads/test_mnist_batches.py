"""The bundled workload's way to its images: whose they are, in which order, and from where on."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pl = pytest.importorskip("pytorch_lightning")

from torch.utils.data import DataLoader, DistributedSampler, TensorDataset  # noqa: E402

SCRIPT = Path(__file__).parents[2] / "hpclaunch" / "workloads" / "mnist.py"


@pytest.fixture(scope="module")
def mnist() -> Iterator[ModuleType]:
    sys.path.insert(0, str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("mnist_of_batches", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(SCRIPT.parent))


def digits_data(mnist: ModuleType, count: int, rank: int, world_size: int, batch_size: int = 8, seed: int = 0) -> Any:
    """Make DigitsData of `count` training images, each with its number in its first two pixels, on one of the ranks."""
    data = object.__new__(mnist.DigitsData)
    super(mnist.DigitsData, data).__init__()
    images = torch.zeros(count, 28, 28, dtype=torch.uint8)
    images[:, 0, 0], images[:, 0, 1] = torch.arange(count) // 256, torch.arange(count) % 256
    digits = images, (torch.arange(count) % 10).to(torch.uint8)
    data.train_set = data.val_set = data.test_set = TensorDataset(*digits)
    data.batch_size, data.seed, data.mean, data.std = batch_size, seed, 2.0, 4.0
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    data.trainer = SimpleNamespace(global_rank=rank, world_size=world_size, strategy=strategy)
    return data


def numbers(batches: Any) -> list[list[int]]:
    """Return which images each batch has."""
    pixels = [(images[:, 0, 0, :2] * 4 + 2).long() for images, _ in batches]
    return [(256 * high + low).tolist() for high, low in (two.T for two in pixels)]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("count", [5, 64, 100, 1001])
def test_training_deals_as_torch_does(mnist: ModuleType, count: int, world_size: int) -> None:
    """Each rank trains on the images, in the order, that DistributedSampler and a DataLoader would give it."""
    for seed in (0, 3):
        for rank in range(world_size):
            batches = digits_data(mnist, count, rank, world_size, seed=seed).train_dataloader()
            usual = DistributedSampler(range(count), world_size, rank, seed=seed)
            loader = DataLoader(TensorDataset(torch.arange(count)), 8, sampler=usual)
            for epoch in (0, 1, 5):
                batches.sampler.set_epoch(epoch)
                usual.set_epoch(epoch)
                assert numbers(batches) == [batch.tolist() for (batch,) in loader]
            assert len(batches) == len(loader)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [1, 2, 16, 33, 100])
def test_validation_has_each_image_once(mnist: ModuleType, count: int, world_size: int) -> None:
    """However the ranks share them, each image counts once, and all ranks meet equally often."""
    ranks = [digits_data(mnist, count, rank, world_size).val_dataloader() for rank in range(world_size)]
    seen = [number for batches in ranks for batch in numbers(batches) for number in batch]
    assert sorted(seen) == list(range(count))
    lengths = {len(batches) for batches in ranks} | {len(list(batches)) for batches in ranks}
    assert lengths == {math.ceil(math.ceil(count / world_size) / 8)}


def test_batches_are_what_a_network_wants(mnist: ModuleType) -> None:
    """A batch is one channel of normalised floats and whole-number labels, from bytes that stay as they were."""
    batches = digits_data(mnist, 20, rank=0, world_size=1).test_dataloader()
    before = batches.images.clone()
    sizes = []
    for images, labels in batches:
        assert images.dtype == torch.float32 and labels.dtype == torch.int64
        assert images.shape == (len(labels), 1, 28, 28)
        assert images[:, 0, 5, 5].tolist() == [-0.5] * len(labels)  # black, (0 - 2) / 4
        sizes.append(len(labels))
    assert sizes == [8, 8, 4]
    assert torch.equal(batches.images, before)


def test_lightning_tells_the_sampler_its_epoch(mnist: ModuleType) -> None:
    """Lightning finds the sampler of what is no DataLoader: each epoch has another order, the one of its number."""
    orders = []

    class Model(mnist.Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            orders.append((self.trainer.current_epoch, numbers([batch])[0]))

        def configure_optimizers(self) -> None:
            return None

    options = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    data = digits_data(mnist, 20, rank=0, world_size=1)
    trainer = pl.Trainer(max_epochs=3, accelerator="cpu", logger=False, use_distributed_sampler=False, **options)
    trainer.fit(Model(), train_dataloaders=data.train_dataloader())
    expected = data.train_dataloader()
    for epoch in range(3):
        expected.sampler.set_epoch(epoch)
        assert [order for of, order in orders if of == epoch] == numbers(expected)
    assert len(orders) == 9
