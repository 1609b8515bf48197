"""A Hydra program: its configuration is in YAML, and each start has an output folder of its own."""

from pathlib import Path

import hydra
from plain import Data, show
from pytorch_lightning import Trainer, seed_everything
from torch.utils.data import DataLoader
from with_cli import Model

from hpclaunch.lightning import SaveAndLeave, resume_path, trainer_places


@hydra.main(version_base=None, config_path=str(Path(__file__).parent), config_name="with_hydra")
def main(config):
    seed_everything(config.seed)
    trainer = Trainer(**config.trainer, **trainer_places(), callbacks=[SaveAndLeave()])
    model = Model(config.width)
    trainer.fit(model, DataLoader(Data(), config.batch_size, shuffle=True), ckpt_path=resume_path())
    show(model, trainer.is_global_zero)


if __name__ == "__main__":
    main()
