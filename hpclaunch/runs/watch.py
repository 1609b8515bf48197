"""Find out when runs have ended, with few questions to the scheduler.

Signs of an end are the exit code in the run folder, and the job's output, which PBS delivers at its end.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from hpclaunch import schedulers
from hpclaunch.errors import HpclaunchError
from hpclaunch.runs.logs import delivered
from hpclaunch.runs.registry import UNKNOWN, Run, State
from hpclaunch.schedulers import Key

# When to ask after a script has left its exit code, in seconds: the scheduler knows of the end a moment later, and only
# one attempt of several may have ended.
ASK_AFTER_END = (1.5, 15, 60)
SOON_SECONDS = 10  # between two questions if a run was cancelled, which leaves no exit code, or is not known
LOOK_SECONDS = 0.5  # between two looks into the run folders
MISSES = 5  # questions in a row without an answer; a scheduler that restarts ends no wait
NOT_KNOWN = 2  # answers in a row that do not know a run


@dataclass
class _End:
    """A sign of a run's end: which one, when it was seen, and how often the scheduler was asked since."""

    written: int
    seen: float
    questions: int = 0

    def due(self, now: float) -> bool:
        """Tell whether to ask again."""
        return self.questions < len(ASK_AFTER_END) and now - self.seen >= ASK_AFTER_END[self.questions]


class Watch:
    """Runs that are watched until they have ended; the scheduler is asked at their `poll`.

    A run that its scheduler does not know is over as well; its state stays UNKNOWN.
    """

    def __init__(self, watched: Iterable[Run] = ()) -> None:
        self.states: dict[Key, State] = {}
        self.questions = 0
        self._open: dict[Key, Run] = {}
        self._new: set[Key] = set()  # not yet asked for
        self._ends: dict[Key, _End] = {}
        self._asked: dict[tuple[str, str], float] = {}  # by group of runs that are asked for together
        self._misses: Counter[tuple[str, str]] = Counter()
        self._not_known: Counter[Key] = Counter()
        self._looked = float("-inf")
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
        now = time.monotonic()
        if not force and not self._new and now - self._looked < LOOK_SECONDS:
            return not self._open
        self._looked = now
        for key, run in self._open.items():
            written = run.exit_written or delivered(run)
            if written is None:
                self._ends.pop(key, None)
            elif key not in self._ends or self._ends[key].written != written:
                self._ends[key] = _End(written, now)
        errors = []
        for group, mine in schedulers.groups(self._open.values()).items():
            keys = {(run.site, run.id) for run in mine}
            settled = [end for key in keys if (end := self._ends.get(key)) and end.due(now)]
            rest = now - self._asked.get(group, float("-inf"))
            poll = max(run.poll for run in mine)
            if any(run.cancelled or self._not_known[run.site, run.id] for run in mine):
                poll = min(poll, SOON_SECONDS)
            if force or settled or self._new & keys or rest >= poll:
                self._asked[group] = now
                for end in settled:
                    end.questions += 1
                errors += self._ask(group, mine)
        if errors:
            raise errors[0]
        return not self._open

    def _ask(self, group: tuple[str, str], runs: list[Run]) -> list[HpclaunchError]:
        """Ask for `runs`; return the error that ends the waiting."""
        self.questions += 1
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
