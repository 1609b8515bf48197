"""Find out when runs have ended, with few questions to the scheduler.

Signs of an end are the exit code in the run folder, and the job's output, which PBS delivers at its end.
"""

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from hpclaunch import schedulers
from hpclaunch.errors import HpclaunchError, SchedulerError
from hpclaunch.runs.registry import Run
from hpclaunch.schedulers import Group, Key, mirror, run_folder
from hpclaunch.schedulers.job import UNKNOWN, State

# When to ask after a script has left its exit code, in seconds: the scheduler knows of the end a moment later, and only
# one attempt of several may have ended.
ASK_AFTER_END = (1.5, 15, 60)
SOON_SECONDS = 10  # between two questions if a run was cancelled, which leaves no exit code, or is not known
LOOK_SECONDS = 0.5  # between two looks into the run folders
REFRESH_SECONDS = 4  # between two refreshes of the copies of run folders on other hosts
MISSES = 5  # questions in a row without an answer; a scheduler that restarts ends no wait
NOT_KNOWN = 2  # answers in a row that do not know a run


class Watch:
    """Runs that are watched until they have ended; the scheduler is asked at their `poll`.

    A run that its scheduler does not know is over as well; its state stays UNKNOWN.
    """

    def __init__(self, watched: Iterable[Run] = ()) -> None:
        self.states: dict[Key, State] = {}
        self._open: dict[Key, Run] = {}
        self._new: set[Key] = set()  # not yet asked for
        self._asked: dict[Group, float] = {}  # when, by group of runs that are asked for together
        self._misses: Counter[Group] = Counter()
        self._not_known: Counter[Key] = Counter()
        self._looked = 0.0
        for run in watched:
            self.add(run)

    def add(self, run: Run) -> None:
        """Watch `run` too."""
        key = (run.site, run.id)
        if key not in self._open and key not in self.states:
            self._open[key] = run
            self._new.add(key)

    def over(self, run: Run) -> bool:
        """Whether `run` is not watched any more."""
        key = (run.site, run.id)
        return key in self.states and key not in self._open

    def look(self, force: bool = False) -> bool:
        """Look into the run folders, ask the schedulers if it is time to; return whether all runs are over.

        Raises SchedulerError if a scheduler does not answer, at first or several times in a row.
        """
        now = time.time()
        if force or self._new or now - self._looked >= LOOK_SECONDS:
            self._looked = now
            with suppress(SchedulerError):  # reported when the scheduler is asked
                mirror.refresh(self._open.values(), REFRESH_SECONDS)
            errors = [
                error
                for group, mine in schedulers.groups(self._open.values()).items()
                if force or self._due(group, mine, now)
                for error in self._ask(group, mine, now)
            ]
            if errors:
                raise errors[0]
        return not self._open

    def _due(self, group: Group, runs: list[Run], now: float) -> bool:
        """Tell whether to ask for `runs`."""
        keys = {(run.site, run.id) for run in runs}
        asked = self._asked.get(group, 0.0)
        poll = max(run.poll for run in runs)
        if any(run.cancelled for run in runs) or any(self._not_known[key] for key in keys):
            poll = min(poll, SOON_SECONDS)
        times = [end + seconds for run in runs if (end := _end_seen(run)) for seconds in ASK_AFTER_END]
        return bool(self._new & keys) or now - asked >= poll or any(asked < at <= now for at in times)

    def _ask(self, group: Group, runs: list[Run], now: float) -> list[HpclaunchError]:
        """Ask for `runs`; return the error that ends the waiting."""
        self._asked[group] = now
        answers, errors = schedulers.states(runs)
        self.states |= answers
        for key, state in answers.items():
            self._not_known[key] = self._not_known[key] + 1 if state == State(UNKNOWN) else 0
            if state.ended or self._not_known[key] >= NOT_KNOWN:
                del self._open[key]
        self._misses[group] = self._misses[group] + 1 if errors else 0
        self._new &= self._open.keys() if errors else self._open.keys() - answers.keys()
        left = self._open.keys() & answers.keys()
        return errors if left & self._new or (left and self._misses[group] >= MISSES) else []


def _end_seen(run: Run) -> float:
    """Return when the run folder got an exit code or the scheduler delivered the job's output; 0 until then."""
    with suppress(OSError):
        return run_folder.listed(run.path, run_folder.EXIT).stat().st_ctime  # of a copy, when it came
    with suppress(OSError):
        kind = schedulers.scheduler(run.scheduler)
        if kind.output_at_end and (output := kind.output(run)):
            return output.stat().st_ctime
    return 0.0
