"""An accelerate program: the library saves its objects and random numbers, the loop keeps the contract."""

import os
import shutil
import signal
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from plain import Data, show
from torch.utils.data import DataLoader

SAVE = Path(os.environ["HPCLAUNCH_RUN_DIR"], "save")
stop = torch.zeros(1)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda *_: stop.fill_(1))


class Place:
    """Where the training is."""

    epoch = step = 0

    def state_dict(self):
        return {"epoch": self.epoch, "step": self.step}

    def load_state_dict(self, state):
        self.epoch, self.step = state["epoch"], state["step"]


accelerator = Accelerator(cpu=True)
set_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1))
loader = DataLoader(Data(augment=False), 4, shuffle=True)
model, optimizer, loader = accelerator.prepare(net, torch.optim.Adam(net.parameters(), 1e-2), loader)
place = Place()
accelerator.register_for_checkpointing(place)
if SAVE.exists():
    accelerator.load_state(str(SAVE))

while place.epoch < 5:
    set_seed(100 * place.epoch)
    for step, (x, y) in enumerate(loader):
        if step < place.step:
            continue
        if accelerator.reduce(stop.clone()).item():
            part = SAVE.with_suffix(".part")
            if accelerator.is_main_process:
                shutil.rmtree(part, ignore_errors=True)
            accelerator.wait_for_everyone()
            accelerator.save_state(str(part))
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                shutil.rmtree(SAVE, ignore_errors=True)
                part.rename(SAVE)
            accelerator.wait_for_everyone()
            sys.exit(75)
        torch.manual_seed(100 * place.epoch + step)  # for the dropout of this step
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
        optimizer.step()
        place.step += 1
        print("step", step, flush=True)
    place.epoch, place.step = place.epoch + 1, 0
show(net, accelerator.is_main_process)
