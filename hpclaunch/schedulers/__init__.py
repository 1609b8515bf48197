"""What differs between schedulers: submitting a script, asking for states, cancelling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Protocol, cast

from hpclaunch.errors import HpclaunchError
from hpclaunch.runs.registry import UNKNOWN, Run, State

Key = tuple[str, str]  # a run's site and id

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


def groups(runs: Iterable[Run]) -> dict[tuple[str, str], list[Run]]:
    """Group runs by whom to ask for them: the scheduler, and the server that the ids of PBS jobs end in."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        found.setdefault((run.scheduler, run.id.partition(".")[2]), []).append(run)
    return found


def states(runs: Sequence[Run]) -> tuple[dict[Key, State], list[HpclaunchError]]:
    """Return the state of each run by (site, id), and the errors of schedulers that left a state unknown.

    Each scheduler is asked once. If it says nothing of a run, the run folder's record counts; else the run is UNKNOWN,
    without a reason if the scheduler did answer.
    """
    found: dict[Key, State] = {}
    errors: list[HpclaunchError] = []
    for (name, _), mine in groups(runs).items():
        answers: dict[str, State] = {}
        unknown, failure = State(UNKNOWN), None
        try:
            answers = scheduler(name).states(mine)
        except HpclaunchError as error:
            unknown, failure = State(UNKNOWN, f"no answer from {name}"), error
        known = {(run.site, run.id): answers.get(run.id) or run.recorded_end or unknown for run in mine}
        if failure and unknown in known.values():
            errors.append(failure)
        found |= known
    return found, errors
