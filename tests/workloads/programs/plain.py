"""A Lightning script as most are, with all that a save must hold; options of the environment make it differ."""

import hashlib
import os
import random
import sys
import time
from types import SimpleNamespace

import numpy
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from hpclaunch.lightning import SaveAndLeave, resume_path, trainer_places
from hpclaunch.workloads import resume

if os.environ.get("LIGHTNING") == "lightning":
    from lightning.pytorch import LightningModule, Trainer, seed_everything
    from lightning.pytorch.callbacks import EarlyStopping
    from lightning.pytorch.utilities import CombinedLoader
else:
    from pytorch_lightning import LightningModule, Trainer, seed_everything
    from pytorch_lightning.callbacks import EarlyStopping
    from pytorch_lightning.utilities import CombinedLoader

KIND = os.environ.get("KIND", "")
torch.set_num_threads(1)
# The ranks ask each other in every step.
resume.time = SimpleNamespace(time=time.time, monotonic=lambda: 1000 * time.monotonic())


def item(i, augment=True):
    """Return a sample; as augmentation has it, random numbers of three kinds are in it."""
    x = torch.randn(8, generator=torch.Generator().manual_seed(i))
    if not augment:
        return x, x.sum()[None]
    return x + 0.1 * torch.randn(8) + random.random() + numpy.random.rand(), x.sum()[None]


class Data(Dataset):
    """Samples by number."""

    def __init__(self, augment=KIND != "workers"):  # whose random numbers begin anew
        self.augment = augment

    def __len__(self):
        return 70

    def __getitem__(self, i):
        return item(i, self.augment)


class Stream(IterableDataset):
    """Samples one after the other, the ranks' own."""

    def __iter__(self):
        rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        return (item(i) for i in range(rank, 70, ranks))


class Stateful:
    """A loader that saves its own place."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        self.at %= 17  # one with a length is not asked for its end
        while self.at < 17:
            self.at += 1
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(self.at))
            yield x, x.sum(1, keepdim=True)

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class Sized(Stateful):
    """The same, with a length."""

    def __len__(self):
        return 17


class Model(LightningModule):
    """A network with dropout and batch norm."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Dropout(0.3), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1)
        )
        self.automatic_optimization = KIND != "manual"

    def training_step(self, batch, batch_idx):
        print("step", self.global_step, flush=True)
        time.sleep(float(os.environ.get("STEP", "0.005")))
        batch, *other = batch if KIND == "combined" else (batch,)
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        for x, y in other:
            loss = loss + torch.nn.functional.l1_loss(self.net(x), y)
        if KIND == "manual":
            for optimizer in self.optimizers():
                optimizer.zero_grad()
            self.manual_backward(loss)
            for optimizer in self.optimizers():
                optimizer.step()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        if KIND == "manual":
            parts = list(self.net[0].parameters()), [p for part in self.net[1:] for p in part.parameters()]
            return [torch.optim.Adam(part, 1e-2) for part in parts]
        optimizer = torch.optim.Adam(self.parameters(), 1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    def train_dataloader(self):
        if KIND in ("stateful", "sized"):
            return Sized() if KIND == "sized" else Stateful()
        if KIND == "stream":
            return DataLoader(Stream(), 4)
        whole = DataLoader(Data(), 4, shuffle=True, num_workers=2 * (KIND == "workers"))
        if KIND == "combined":
            return CombinedLoader([whole, DataLoader(Data(), 16, shuffle=True)], "max_size_cycle")
        return whole

    def val_dataloader(self):
        return DataLoader(Data(), 8)


def show(model, first):
    """Print what the weights are, on rank 0."""
    if first:
        weights = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
        print("weights", hashlib.sha256(weights).hexdigest(), flush=True)


def main():
    seed_everything(1)
    print("run", *(os.environ.get(name) for name in ("HPCLAUNCH_RUN_ID", "WANDB_RUN_ID", "WANDB_RESUME")), flush=True)
    stop = [EarlyStopping("val", patience=1, min_delta=9.0)] if KIND == "early" else []
    options = {
        "accumulate": {"accumulate_grad_batches": 2, "val_check_interval": 0.3},
        "reload": {"reload_dataloaders_every_n_epochs": 1},
        "max_steps": {"max_steps": 50, "max_epochs": -1},
    }.get(KIND, {})
    words = {
        "max_epochs": int(os.environ.get("EPOCHS", "5")),
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
    } | options
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    if KIND == "slow":  # to save: killed after 5 to 10 steps, it is often in the middle
        resume.os = SimpleNamespace(fsync=lambda _: time.sleep(0.1), environ=os.environ)
    trainer = Trainer(
        callbacks=[SaveAndLeave(every_steps=5 * (KIND == "slow")), *stop], **trainer_places(), **words, **quiet
    )
    model = Model()
    trainer.fit(model, ckpt_path=resume_path())
    show(model, trainer.is_global_zero)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # else torch 2.13 with gloo aborts now and then when all is done
