"""Submit a plan's job script, and name the option to look at if the scheduler refuses."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hpclaunch.errors import SchedulerError
from hpclaunch.paths import write_whole
from hpclaunch.runs import registry, snapshot
from hpclaunch.runs.registry import Run
from hpclaunch.schedulers.job import note_attempts
from hpclaunch.schedulers.run_folder import PLAN, RUN, RUNS, SCRIPT

if TYPE_CHECKING:  # submitit imports this module in every job of its own
    from hpclaunch.job.plan import Plan


def hand_over(plan: Plan, script: str, after: Sequence[str] = (), name: str = "") -> list[str]:
    """Submit a script from the current folder; return the id, and its further attempts' if these are submitted with it.

    `name` is the job's if the script has none. Raises SchedulerError, with the option to look at, and RequestError
    for a variable to pass on that is not set here.
    """
    plan.request.check_passed(os.environ)
    if plan.snapshot:
        snapshot.write(plan.snapshot)
    try:
        return plan.scheduler.submit_all(script, at_once(plan), Path(RUNS).absolute(), after, name)
    except SchedulerError as error:
        raise SchedulerError(*str(error).splitlines(), *blame(plan, str(error))) from None


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until a job that is handed over in this context is noted; the scheduler's command dies of it.

    Raises KeyboardInterrupt then, with a message if it is not known whether the scheduler has the job.
    """
    before, held = signal.getsignal(signal.SIGINT), list[int]()
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield
    except SchedulerError:
        if held:
            text = "interrupted, but the scheduler may have the job: look with squeue --me or qstat -u $USER"
            raise KeyboardInterrupt(text) from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        raise KeyboardInterrupt


def at_once(plan: Plan) -> int:
    """Return how many attempts are submitted together: all where a job cannot submit the next."""
    return plan.max_attempts if plan.scheduler.resubmits and not plan.site.resubmit else 1


def note(
    about: Mapping[str, Any], plan: object, script: str | Path, ids: Sequence[str], runs: Path = Path(RUNS)
) -> Run:
    """Fill the run folder of a job that was just submitted and register it; warn of what cannot be written.

    `about` is the plan's. A script that is a path may be large: it is linked.
    """
    folder = runs.absolute() / ids[0]
    run = msgspec.convert({**about, "id": ids[0], "folder": str(folder), "submitted": time.time()}, Run)

    def fill() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / RUN, registry.encode(run))
        write_whole(folder / PLAN, registry.encode(plan, indent=2))
        if isinstance(script, Path):
            os.link(script, folder / SCRIPT)
        else:
            write_whole(folder / SCRIPT, script.encode(errors="surrogateescape"))

    for write in (fill, lambda: note_attempts(folder, ids[1:]), lambda: registry.register(run)):
        try:
            write()
        except OSError as error:
            where = error.filename or folder
            warnings.warn(f"job {run.id} is submitted, but {where} cannot be written: {error.strerror}", stacklevel=2)
        except SchedulerError as error:
            warnings.warn(str(error), stacklevel=2)
    return run


def blame(plan: Plan, answer: str) -> list[str]:
    """Name the option and the profile's key that led to the scheduler's refusal, if it is a known one."""
    from hpclaunch.runs import messages

    known = messages.combined(plan.site.scheduler, plan.site.messages)
    if (found := messages.first(known.refusals, answer.lower())) is None:
        return []
    key = found.key.replace("{partition}", plan.partition_name)
    return [f"look at {found.option}, or at {key} in the profile of {plan.name}"]
