"""A LightningCLI program: the command line and configuration files make the Trainer."""

import sys

import torch
from plain import Data, show
from pytorch_lightning import LightningModule
from pytorch_lightning.cli import LightningCLI
from torch.utils.data import DataLoader

from hpclaunch.lightning import SaveAndLeave, resume_path, trainer_places


class Model(LightningModule):
    """A network whose width is an option."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.Dropout(0.3), torch.nn.Linear(width, 1))

    def training_step(self, batch, batch_idx):
        print("step", self.global_step, flush=True)
        return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)

    def train_dataloader(self):
        return DataLoader(Data(), 4, shuffle=True)


class CLI(LightningCLI):
    """Goes on with the newest save."""

    def before_fit(self):
        self.config_init[self.subcommand]["ckpt_path"] = resume_path()


if __name__ == "__main__":
    defaults = {"callbacks": [SaveAndLeave()], **trainer_places(), "logger": False, "enable_checkpointing": False}
    cli = CLI(Model, trainer_defaults=defaults, save_config_callback=None, args=sys.argv[1:])
    show(cli.model, cli.trainer.is_global_zero)
