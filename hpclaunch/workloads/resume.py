"""Save a Lightning training before its job ends, and go on with the next step in the job's next attempt.

    from hpclaunch.lightning import SaveAndLeave, resume_path, trainer_places
    trainer = Trainer(callbacks=[SaveAndLeave()], **trainer_places())
    trainer.fit(model, ckpt_path=resume_path())

On SIGUSR1 or SIGTERM all ranks agree on a step, save together and leave with exit code 75, at which the job starts its
next attempt. This file needs only torch and Lightning: `hpclaunch workload copy resume` copies it.
"""

import importlib.util
import os
import random
import shutil
import signal
import sys
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

# Lightning has two names, and both are often installed; hooks of a callback of either do for a Trainer of the other.
_new = "lightning.pytorch" in sys.modules or not importlib.util.find_spec("pytorch_lightning")
_lightning = importlib.import_module("lightning.pytorch" if _new else "pytorch_lightning")
_WORLD_SIZE = os.environ.get("WORLD_SIZE")  # Lightning deletes it at the end of a fit


def trainer_places() -> dict[str, int]:
    """Return the Trainer's `devices` and `num_nodes` as the launcher has started ranks; {} if none has."""
    env = os.environ
    if (size := env.get("WORLD_SIZE", _WORLD_SIZE)) and (per_node := int(env.get("LOCAL_WORLD_SIZE", "0"))):
        return {"devices": per_node, "num_nodes": int(size) // per_node}
    if (ranks := int(env.get("SLURM_STEP_NUM_TASKS", "1"))) > 1:  # of this srun; a batch script has no such variable
        return {"devices": ranks // (nodes := int(env["SLURM_STEP_NUM_NODES"])), "num_nodes": nodes}
    return {}


def resume_path(folder: str | Path | None = None) -> str | None:
    """Return the newest save in `folder`, by default $HPCLAUNCH_RUN_DIR; None to start anew."""
    return next(map(str, _saves(folder or os.environ.get("HPCLAUNCH_RUN_DIR"))), None)


class SaveAndLeave(_lightning.Callback):  # type: ignore[misc,name-defined]
    """Saves when the job is about to end, and leaves; saves also now and then, and at the end of the training.

    Saved is what Lightning saves, and each rank's place in its data and its random numbers, between two optimizer
    steps. A kill at any moment leaves a good save: the one before goes once the new one is complete.
    Without a folder, given or in $HPCLAUNCH_RUN_DIR, the callback only compares the Trainer with its launcher.
    """

    def __init__(self, folder: str | Path | None = None, every_steps: int = 0, every_minutes: float = 30) -> None:
        self.folder = folder or os.environ.get("HPCLAUNCH_RUN_DIR")
        self.every_steps, self.every_minutes, self.last_save = every_steps, every_minutes, time.monotonic()
        self.stop = torch.zeros((), dtype=torch.bool).share_memory_()  # type: ignore[no-untyped-call] # for ddp_spawn
        # This rank's part of the save to go on with, until its first step; what goes into the next save.
        self.saved, self.to_save = dict[str, Any](), dict[str, Any]()
        self.loaders: list[_Resumable] = []  # of this epoch's training
        self.ends: list[dict[str, Any]] = []  # random numbers and loaders' states at the ends of the last two batches
        self.first_vote, self.since_vote, self.per_vote, self.last_vote = 0, 0, 1, 0.0  # batch, steps, steps, seconds
        for fabric in ("lightning.fabric", "lightning_fabric"):
            if environments := sys.modules.get(f"{fabric}.plugins.environments"):
                environments.LightningEnvironment.validate_settings = _compare  # others have their own
        if self.folder:
            self.listen()  # before Lightning, which then does not requeue a Slurm job itself

    def listen(self, number: int = signal.SIGUSR1) -> None:  # and only note it, as it may come in the middle of a step
        with suppress(ValueError):  # not in the main thread
            signal.signal(number, lambda *_: self.stop.fill_(True))

    def note(self, trainer: Any, what: str) -> None:  # for `hpclaunch report`
        with suppress(KeyError, OSError), Path(os.environ["HPCLAUNCH_USAGE"]).open("a") as file:
            file.write(f"{int(time.time())} {what} rank {trainer.global_rank}\n")

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit":  # a Trainer of one device asks no environment
            _compare(None, trainer.num_devices, trainer.num_nodes)
            self.note(trainer, "rendezvous")
        if stage == "fit" and self.folder:
            self.listen()  # in a rank of ddp_spawn
            trainer._signal_connector._sigterm_notifier_fn = lambda *_: self.stop.fill_(True)  # until the training ends
            process = type(trainer.strategy).process_dataloader.__get__(trainer.strategy)  # not that of an earlier fit
            trainer.strategy.process_dataloader = lambda loader: self.resumable(process(loader), trainer.training)

    def resumable(self, loader: Any, training: bool) -> Any:
        """Return the loader, made to begin at the place of the save, or one that saves its own place as it is."""
        if not training or callable(getattr(loader, "load_state_dict", None)):
            self.first_vote = 2 if training else self.first_vote  # two batches may be fetched before the first end
            return loader
        self.loaders = [one for one in self.loaders if not one.start]  # the others are of an epoch before
        made = _Resumable(loader, self.saved, len(self.loaders))
        self.loaders.append(made)
        if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
            return made
        # What is left out need not be fetched. DataLoader lets nobody set a sampler; Lightning makes a new DataLoader.
        made.inner = getattr(loader, name := "sampler" if loader.batch_sampler is None else "batch_sampler")
        object.__setattr__(loader, name, made)
        return loader

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint |= self.to_save  # nothing in other callbacks' checkpoints, which may be made on one rank only

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if not (saved := checkpoint.get("hpclaunch")):
            return
        step, ranks, loop = saved["step"], saved["ranks"], checkpoint["loops"]["fit_loop"]
        if len(ranks) != trainer.world_size:  # go on at the same sample, rounded down to an optimizer step
            step = step * len(ranks) // trainer.world_size
            step -= step % trainer.accumulate_grad_batches
        self.saved = ranks[trainer.global_rank % len(ranks)] | {"step": step}
        # Lightning's counts have the batch of the next step fetched already, and are of the ranks that saved them.
        progress = loop["epoch_loop.batch_progress"]
        progress |= {"current": dict.fromkeys(progress["current"], step), "is_last_batch": False}
        loop["state_dict"]["combined_loader"] = self.saved["ends"][0].get("loaders", []) if step else []
        trainer.should_stop = saved["stopped"]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.note(trainer, "step")
        if self.saved and trainer.is_global_zero:
            print(f"resumed at epoch {trainer.current_epoch + 1}, step {trainer.global_step}", flush=True)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: object, batch_idx: int) -> None:
        if self.saved:
            _set_random(self.saved["now"])
            trainer.fit_loop.epoch_loop._batches_that_stepped = self.saved["logged"]  # Lightning counts one more
            self.ends, self.saved = self.saved["ends"], {}
        elif batch_idx == 0:
            self.ends = [{}]
        if not self.folder or batch_idx < self.first_vote or batch_idx % trainer.accumulate_grad_batches:
            return  # summed gradients are not saved
        # The ranks ask each other about once a second, in steps that they agree on: it costs as much as a small step.
        self.since_vote += 1
        due = self.every_steps and batch_idx and trainer.global_step % self.every_steps == 0
        if stop := self.since_vote >= self.per_vote or batch_idx == 0:
            now = time.monotonic()
            late, seconds = now - self.last_save > 60 * self.every_minutes, (now - self.last_vote) / self.since_vote
            votes = torch.tensor([self.stop, late, seconds], device=trainer.strategy.root_device)
            stop, late, slowest = trainer.strategy.reduce(votes, reduce_op="max").tolist()
            self.since_vote, self.per_vote, self.last_vote = 0, min(100, 1 + int(1 / slowest)), now
            due = due or late
        if stop or due:
            self.save(trainer, batch_idx)
        if stop:
            self.leave(trainer)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if self.since_vote + 2 >= self.per_vote or self.every_steps:
            states = {"random": _random(), "loaders": trainer.fit_loop._combined_loader._state_dicts()}
            self.ends = [*self.ends[-1:], states]

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self.ends and self.ends[-1]:  # of the batch before the validation
            self.ends[-1]["random"] = _random()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.folder:  # the attempt may end in what comes after the training
            self.save(trainer, 0)

    def save(self, trainer: Any, step: int) -> None:
        """Save together, at a step of this epoch. A save is a new file, or a folder if each rank saves its part."""
        ahead = trainer.fit_loop._data_fetcher.length is None  # Lightning fetches the next batch too, to know the last
        mine = {"ends": self.ends[-1 - ahead :], "starts": [one.start for one in self.loaders], "now": _random()}
        mine["logged"] = trainer.fit_loop.epoch_loop._batches_that_stepped
        if len(ranks := [mine] * trainer.world_size) > 1:
            torch.distributed.all_gather_object(ranks, mine)
        self.to_save = {"hpclaunch": {"step": step, "ranks": ranks, "stopped": trainer.should_stop}}
        others = _saves(self.folder, "*")  # with those that a kill has cut short
        name = f"resume-{1 + int(others[0].stem[7:]) if others else 1}.part"
        part: Path = trainer.strategy.broadcast(Path(self.folder or "", name))
        trainer.save_checkpoint(part, weights_only=False)  # ends with a barrier
        if trainer.is_global_zero:
            for file in filter(Path.is_file, (part, *part.rglob("*"))):
                with file.open("rb+") as written:
                    os.fsync(written.fileno())  # else a node that dies may leave the new name without the content
            part.replace(part.with_suffix(".ckpt"))
            for old in others:
                shutil.rmtree(old) if old.is_dir() else old.unlink()
        self.to_save, self.last_save = {}, time.monotonic()
        self.note(trainer, "save")

    def leave(self, trainer: Any) -> None:  # all ranks at once, with exit code 75, "try again": all is saved
        if trainer.is_global_zero:
            print(f"saved at epoch {trainer.current_epoch + 1}, step {trainer.global_step}: start again", flush=True)
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
        self.inner, self.saved, self.number, self.start = inner, saved, number, dict[str, Any]()  # start: random

    def __iter__(self) -> Any:
        saved, self.saved, now = self.saved, {}, {"random": _random()}
        _set_random(saved["starts"][self.number] if saved else {})
        self.start, items, step = _random(), iter(self.inner), saved.get("step", 0)
        with suppress(TypeError):  # a loader beside a longer one begins again
            step %= len(self.inner)
        if step:
            next(islice(items, step - 1, None), None)
            for end in saved["ends"] if self.number == 0 else [now]:
                _set_random(end.get("random", {}))
                yield from islice(items, 1)
        yield from items

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:  # set_epoch, batch_size …
        if name == "inner" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)


def _compare(
    _environment: Any, num_devices: int, num_nodes: int
) -> None:  # stop a Trainer of other ranks than there are
    if (places := trainer_places()) and places != {"devices": num_devices, "num_nodes": num_nodes}:
        started = f"{places['num_nodes']} nodes with {places['devices']} ranks each; use Trainer(**trainer_places())"
        sys.exit(f"Trainer(devices={num_devices}, num_nodes={num_nodes}), but the launcher has started {started}")


def _saves(folder: str | Path | None, kind: str = "ckpt") -> list[Path]:  # complete ones, the newest first
    return sorted(Path(folder).glob(f"resume-*.{kind}") if folder else (), key=lambda path: -int(path.stem[7:]))


def _random() -> dict[str, Any]:
    """Return the states of the random numbers that programs use, in what torch.load(weights_only=True) takes."""
    name, keys, *rest = sys.modules["numpy"].random.get_state()  # Lightning has imported it
    states = {"torch": torch.get_rng_state(), "random": random.getstate(), "numpy": (name, keys.tolist(), *rest)}
    return states | ({"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_initialized() else {})  # type: ignore[no-untyped-call]


def _set_random(states: dict[str, Any]) -> None:
    if states:
        torch.set_rng_state(states["torch"])
        random.setstate(states["random"])
        sys.modules["numpy"].random.set_state(states["numpy"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
