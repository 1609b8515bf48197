"""A Fabric program: a loop of one's own, which keeps the contract itself."""

import os
import signal
import sys
from pathlib import Path

import torch
from lightning_fabric import Fabric
from plain import Data, show
from torch.utils.data import DataLoader

SAVE = Path(os.environ["HPCLAUNCH_RUN_DIR"], "save.ckpt")
stop = torch.zeros(1)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda *_: stop.fill_(1))

fabric = Fabric(accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]))
fabric.launch()
fabric.seed_everything(1)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1))
model, optimizer = fabric.setup(net, torch.optim.Adam(net.parameters(), 1e-2))
state = {"model": model, "optimizer": optimizer, "epoch": 0, "step": 0}
if SAVE.exists():
    fabric.load(SAVE, state)

for epoch in range(state["epoch"], 5):
    fabric.seed_everything(100 * epoch, verbose=False)
    loader = fabric.setup_dataloaders(DataLoader(Data(augment=False), 4, shuffle=True))
    for step, (x, y) in enumerate(loader):
        if epoch == state["epoch"] and step < state["step"]:
            continue
        if fabric.all_reduce(stop.clone(), reduce_op="max"):
            fabric.save(SAVE.with_suffix(".part"), state | {"epoch": epoch, "step": step})
            if fabric.is_global_zero:
                SAVE.with_suffix(".part").replace(SAVE)
            fabric.barrier()
            sys.exit(75)
        torch.manual_seed(100 * epoch + step)  # for the dropout of this step
        optimizer.zero_grad()
        fabric.backward(torch.nn.functional.mse_loss(model(x), y))
        optimizer.step()
        print("step", step, flush=True)
show(net, fabric.is_global_zero)
