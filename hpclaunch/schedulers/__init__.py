"""What differs between schedulers: submitting a script, asking for states, cancelling."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from hpclaunch.errors import HpclaunchError
from hpclaunch.runs import UNKNOWN, Run, State

SCHEDULERS = {
    "pbs": "hpclaunch.schedulers.pbs",
    "slurm": "hpclaunch.schedulers.slurm",
    "local": "hpclaunch.schedulers.local",
}


class Scheduler(Protocol):
    """The commands of one scheduler; a module with these three functions."""

    def submit(self, script: str, after: Sequence[str], name: str = "") -> str:
        """Submit the text of a job script from the current folder, to start after `after`; return its id.

        `name` is the job's where the script has none. Raises SchedulerError with the scheduler's own words.
        """

    def states(self, runs: Sequence[Run]) -> dict[str, State]:
        """Ask for all `runs` at once; an id that the scheduler does not know is absent. Raises SchedulerError."""

    def cancel(self, runs: Sequence[Run]) -> None:
        """Cancel `runs`; what has ended already is left alone. Raises SchedulerError."""


def scheduler(name: str) -> Scheduler:
    """Return the commands of the scheduler `name`. Raises HpclaunchError where they are not known."""
    if name not in SCHEDULERS:
        raise HpclaunchError(
            f"jobs of scheduler {name} cannot be submitted from here yet: use render, then its own command"
        )
    return cast("Scheduler", import_module(SCHEDULERS[name]))


def states(runs: Sequence[Run]) -> dict[tuple[str, str], State]:
    """Return the state of each run by (site, id), each scheduler asked once."""
    found = {(run.site, run.id): State(UNKNOWN) for run in runs}
    for name in {run.scheduler for run in runs}:
        mine = [run for run in runs if run.scheduler == name]
        answers = scheduler(name).states(mine)
        found |= {(run.site, run.id): answers[run.id] for run in mine if run.id in answers}
    return found
