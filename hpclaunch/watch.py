"""When runs have ended, with few questions to the scheduler.

The job script leaves its exit code in the run folder, and PBS delivers a job's output at its end.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from hpclaunch import schedulers
from hpclaunch.errors import SchedulerError
from hpclaunch.logs import delivered
from hpclaunch.runs import Run, State

# When to ask after a script has left its exit code, in seconds: the scheduler knows of the end a moment later, and what
# ended may be one attempt of several.
ASK_AFTER_END = (1.5, 15, 60)
CANCEL_SECONDS = 10  # between two questions once a run was told to end, which leaves no exit code
LOOK_SECONDS = 0.5  # between two looks into the run folders
MISSES = 5  # questions in a row without an answer; a scheduler that restarts ends no wait

Key = tuple[str, str]  # a run's site and id


@dataclass
class _End:
    """A sign of a run's end: which one, when it was seen, and how often one asked since."""

    written: int
    seen: float
    questions: int = 0

    def due(self, now: float) -> bool:
        """Whether to ask again."""
        return self.questions < len(ASK_AFTER_END) and now - self.seen >= ASK_AFTER_END[self.questions]


class Watch:
    """Runs of which one asks again and again whether they have ended; the scheduler is asked at their `poll`."""

    def __init__(self, watched: Iterable[Run] = ()) -> None:
        self.states: dict[Key, State] = {}
        self.questions = 0
        self._open: dict[Key, Run] = {}
        self._new: set[Key] = set()  # never asked for
        self._ends: dict[Key, _End] = {}
        self._asked: dict[str, float] = {}  # by scheduler
        self._misses = 0
        self._looked = float("-inf")
        for run in watched:
            self.add(run)

    def add(self, run: Run) -> None:
        """Watch `run` too."""
        key = (run.site, run.id)
        if key not in self._open and key not in self.states:
            self._open[key] = run
            self._new.add(key)

    def look(self, force: bool = False) -> bool:
        """Look into the run folders, ask the schedulers that it is time to ask; return whether all have ended.

        Raises SchedulerError where a scheduler does not answer, at first or several times in a row.
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
        for scheduler in {run.scheduler for run in self._open.values()}:
            mine = {key: run for key, run in self._open.items() if run.scheduler == scheduler}
            settled = [end for key in mine if (end := self._ends.get(key)) and end.due(now)]
            rest = now - self._asked.get(scheduler, float("-inf"))
            poll = max(run.poll for run in mine.values())
            if any(run.cancelled for run in mine.values()):
                poll = min(poll, CANCEL_SECONDS)
            if force or settled or self._new & mine.keys() or rest >= poll:
                self._asked[scheduler] = now
                for end in settled:
                    end.questions += 1
                self._ask(mine)
        return not self._open

    def _ask(self, asked: dict[Key, Run]) -> None:
        self.questions += 1
        try:
            answers = schedulers.states(list(asked.values()))
        except SchedulerError:
            self._misses += 1
            if self._new & asked.keys() or self._misses >= MISSES:
                raise
            return
        self._misses = 0
        self._new -= asked.keys()
        self.states |= answers
        for key in asked:
            if answers[key].ended:
                del self._open[key]
