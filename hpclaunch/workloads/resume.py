"""Save a Lightning training before its job ends, and go on with the next step in the job's next attempt.

    from hpclaunch.lightning import SaveAndLeave, resume_path, trainer_places

    trainer = Trainer(callbacks=[SaveAndLeave()], **trainer_places())
    trainer.fit(model, ckpt_path=resume_path())

On SIGUSR1 or SIGTERM all ranks agree on a step, save together and leave with exit code 75, at which the job starts its
next attempt. This file needs only torch and Lightning: `hpclaunch workload copy resume` copies it.
"""

import importlib.util
import itertools
import math
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

# Lightning has two names; both may be installed, and this is for the one that the program uses.
if "lightning.pytorch" not in sys.modules and importlib.util.find_spec("pytorch_lightning"):
    from pytorch_lightning import Callback
    from pytorch_lightning.plugins.environments import LightningEnvironment  # type: ignore[attr-defined]
else:
    from lightning.pytorch import Callback  # type: ignore[no-redef]
    from lightning.pytorch.plugins.environments import LightningEnvironment  # type: ignore[no-redef]

_KEY = "hpclaunch"  # in a checkpoint


def trainer_places() -> dict[str, int]:
    """Return the Trainer's `devices` and `num_nodes` as the launcher has started ranks; {} if none has."""
    env = os.environ
    if "WORLD_SIZE" in env and "LOCAL_WORLD_SIZE" in env:
        ranks, per_node = int(env["WORLD_SIZE"]), int(env["LOCAL_WORLD_SIZE"])
        return {"devices": per_node, "num_nodes": ranks // per_node}
    if (ranks := int(env.get("SLURM_STEP_NUM_TASKS", "1"))) > 1:  # of this srun; a batch script has no such variable
        nodes = int(env["SLURM_STEP_NUM_NODES"])
        return {"devices": ranks // nodes, "num_nodes": nodes}
    return {}


def resume_path(folder: str | Path | None = None) -> str | None:
    """Return the newest save in `folder`, by default $HPCLAUNCH_RUN_DIR; None to start anew."""
    return next(map(str, _saves(_folder(folder))), None)


class SaveAndLeave(Callback):
    """Saves when the job is about to end, and leaves; saves also now and then, and at the end of the training.

    Saved is what Lightning saves, and each rank's place in its data and its random numbers, between two optimizer
    steps. A kill at any moment leaves a good save: the one before goes once the new one is complete. A data set that
    is iterable is read again up to its place; DataLoader workers begin their random numbers anew.
    Without a folder, given or in $HPCLAUNCH_RUN_DIR, the callback only compares the Trainer with its launcher.
    """

    def __init__(self, folder: str | Path | None = None, every_steps: int = 0, every_minutes: float = 30) -> None:
        self.folder, self.every_steps, self.every_minutes = _folder(folder), every_steps, every_minutes
        self.stop = torch.zeros((), dtype=torch.bool).share_memory_()  # type: ignore[no-untyped-call] # for ddp_spawn
        self.saved: dict[str, Any] = {}  # this rank's part of the save to go on with, until the first step
        self.to_save: dict[str, Any] = {}
        self.loaders: list[_Resumable] = []  # of this epoch's training
        self.before_fetch: dict[str, Any] = {}  # the random numbers
        self.since_vote, self.per_vote, self.last_vote = 0, 1, -math.inf  # steps, steps, seconds
        self.last_save = time.monotonic()
        LightningEnvironment.validate_settings = _compare  # type: ignore[assignment,method-assign] # the others have their own
        if self.folder:
            self.note(signal.SIGUSR1)

    def note(self, number: int) -> None:
        """Only note a signal when it comes, since that may be in the middle of a step."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(number, lambda *_: self.stop.fill_(True))

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        _compare(None, trainer.num_devices, trainer.num_nodes)  # a Trainer of one device asks no environment
        if stage == "fit" and self.folder:
            process = trainer.strategy.process_dataloader
            trainer.strategy.process_dataloader = lambda loader: self.resumable(process(loader), trainer.training)

    def resumable(self, loader: Any, training: bool) -> Any:
        """Return the loader, made to begin at the place of the save, or one that saves its own place as it is."""
        if not training or callable(getattr(loader, "load_state_dict", None)):
            return loader
        if any(one.start for one in self.loaders):  # they are of an epoch before
            self.loaders = []
        made = _Resumable(loader, self.saved, len(self.loaders))
        self.loaders.append(made)
        if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
            return made
        # What is left out need not be fetched. DataLoader lets nobody set a sampler; Lightning makes a new DataLoader.
        name = "sampler" if loader.batch_sampler is None else "batch_sampler"
        made.inner = getattr(loader, name)
        object.__setattr__(loader, name, made)
        return loader

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if self.to_save:  # another callback's checkpoint may be made on one rank only
            checkpoint[_KEY] = self.to_save

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if not (saved := checkpoint.get(_KEY)):
            return
        step, ranks = saved["step"], saved["ranks"]
        if len(ranks) != trainer.world_size:  # go on at the same sample, rounded down to an optimizer step
            step = step * len(ranks) // trainer.world_size
            step -= step % trainer.accumulate_grad_batches
        # Lightning's count has the batch of the next step fetched already, and is of the ranks that saved it.
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        progress |= {"current": dict.fromkeys(progress["current"], step), "is_last_batch": False}
        self.saved = ranks[trainer.global_rank % len(ranks)] | {"step": step}
        trainer.should_stop = saved["stopped"]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        for number in (signal.SIGUSR1, signal.SIGTERM) if self.folder else ():
            self.note(number)  # in place of Lightning's own, which are back after the training
        if self.saved and trainer.is_global_zero:
            print(f"resumed at epoch {trainer.current_epoch + 1}, step {trainer.global_step}", flush=True)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: object, batch_idx: int) -> None:
        if self.saved:
            _set_random(self.saved["now"])
            trainer.fit_loop.epoch_loop._batches_that_stepped = self.saved["logged"]  # Lightning counts one more
            self.saved = {}
        if not self.folder or batch_idx % trainer.accumulate_grad_batches:  # summed gradients are not saved
            return
        stop, due = self.vote(trainer, batch_idx)
        if stop or due or (self.every_steps and batch_idx and trainer.global_step % self.every_steps == 0):
            self.save(trainer, batch_idx)
        if stop:
            self.leave(trainer)

    def on_train_batch_end(self, *_: Any) -> None:
        if self.since_vote + 1 >= self.per_vote or self.every_steps:
            self.before_fetch = _random()

    on_validation_end = on_train_batch_end  # type: ignore[assignment]

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.folder:  # the attempt may end in what comes after the training
            self.save(trainer, 0)

    def vote(self, trainer: Any, batch_idx: int) -> tuple[bool, bool]:
        """Return whether to stop and whether a save is due: the same on all ranks.

        They ask each other about once a second, in steps that they agree on: asking costs as much as a small step.
        """
        self.since_vote += 1
        if self.since_vote < self.per_vote and batch_idx > 0:
            return False, False
        now = time.monotonic()
        due, seconds = now - self.last_save > 60 * self.every_minutes, (now - self.last_vote) / self.since_vote
        votes = torch.tensor([self.stop, due, seconds], device=trainer.strategy.root_device)
        stop, due, slowest = trainer.strategy.reduce(votes, reduce_op="max").tolist()
        self.since_vote, self.per_vote, self.last_vote = 0, min(100, 1 + int(1 / slowest)), now
        return bool(stop), bool(due)

    def save(self, trainer: Any, step: int) -> None:
        """Save together, at a step of this epoch. A save is a new file, or a folder if each rank saves its part."""
        mine = {"before_fetch": self.before_fetch, "now": _random(), "starts": [one.start for one in self.loaders]}
        mine["logged"] = trainer.fit_loop.epoch_loop._batches_that_stepped
        ranks = [mine] * trainer.world_size
        if trainer.world_size > 1:
            torch.distributed.all_gather_object(ranks, mine)
        self.to_save = {"step": step, "ranks": ranks, "stopped": trainer.should_stop}
        before = _saves(self.folder)
        path = Path(self.folder or "", f"resume-{1 + _number(before[0]) if before else 1}.ckpt")
        part: Path = trainer.strategy.broadcast(path).with_suffix(".part")
        if trainer.is_global_zero:
            _remove(part)  # of an attempt that was killed
        trainer.save_checkpoint(part)  # ends with a barrier
        if trainer.is_global_zero:
            for file in filter(Path.is_file, (part, *part.rglob("*"))):
                with file.open("rb+") as written:
                    os.fsync(written.fileno())  # else a node that dies may leave the new name without the content
            part.replace(path)
            for old in before:
                _remove(old)
        self.to_save, self.last_save = {}, time.monotonic()

    def leave(self, trainer: Any) -> None:
        """End all ranks at once with exit code 75, "try again": all is saved."""
        if trainer.is_global_zero:
            where = f"epoch {trainer.current_epoch + 1}, step {trainer.global_step}"
            print(f"saved in {self.folder}: {where}; start again to go on", flush=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a launcher ends the others once one has left
        try:
            for logger in trainer.loggers:
                logger.finalize("finished")
            trainer.strategy.barrier()  # until rank 0 has put the save in place
            sys.stdout.flush()
        finally:
            os._exit(os.EX_TEMPFAIL)  # 75, at once: in a teardown the ranks would leave seconds apart


class _Resumable:
    """A sampler or another iterable whose first pass leaves out what was used, with the random numbers of then."""

    def __init__(self, inner: Any, saved: dict[str, Any], number: int) -> None:
        self.inner, self.saved, self.number = inner, saved, number
        self.start: dict[str, Any] = {}  # random numbers at the start of this pass

    def __iter__(self) -> Iterator[Any]:
        saved, self.saved = self.saved, {}
        _set_random(saved["starts"][self.number] if saved else {})
        self.start, items = _random(), iter(self.inner)
        if saved and saved["step"]:
            next(itertools.islice(items, saved["step"] - 1, None), None)
            _set_random(saved["before_fetch"])
        yield from items

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:  # set_epoch, batch_size …
        if name == "inner" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)


def _compare(_environment: Any, num_devices: int, num_nodes: int) -> None:
    """Stop a Trainer that would train apart from its other ranks, or wait for ranks that nobody has started."""
    if (places := trainer_places()) and places != {"devices": num_devices, "num_nodes": num_nodes}:
        started = f"{places['num_nodes']} nodes with {places['devices']} ranks each; use Trainer(**trainer_places())"
        sys.exit(f"Trainer(devices={num_devices}, num_nodes={num_nodes}), but the launcher has started {started}")


def _folder(folder: str | Path | None) -> Path | None:
    given = folder or os.environ.get("HPCLAUNCH_RUN_DIR")
    return Path(given) if given else None


def _saves(folder: Path | None) -> list[Path]:
    """Return the complete saves in a folder, the newest first."""
    return sorted(folder.glob("resume-*.ckpt") if folder else (), key=_number, reverse=True)


def _number(path: Path) -> int:
    return int(path.stem.partition("-")[2])


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _random() -> dict[str, Any]:
    """Return the states of the random numbers that programs use, in what torch.load(weights_only=True) takes."""
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "random": random.getstate()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states["cuda"] = torch.cuda.get_rng_state()
    if numpy := sys.modules.get("numpy"):
        name, keys, *rest = numpy.random.get_state()
        states["numpy"] = (name, keys.tolist(), *rest)
    return states


def _set_random(states: dict[str, Any]) -> None:
    if states:
        torch.set_rng_state(states["torch"])
        random.setstate(states["random"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    if "numpy" in states and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(states["numpy"])
