"""What a user sees while a command waits for jobs: one line on the terminal, rewritten in place, and none in a pipe."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence

import click

from hpclaunch.cli.echo import talk
from hpclaunch.errors import counted, printable
from hpclaunch.runs import logs
from hpclaunch.runs.registry import Run
from hpclaunch.runs.watch import Watch
from hpclaunch.schedulers import scheduler
from hpclaunch.schedulers.job import PENDING, RUNNING, UNKNOWN, State
from hpclaunch.schedulers.walltime import clock


class Progress:
    """Runs that are watched, and their line on stderr. On Ctrl-C it says that they go on."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs, self.watch = runs, Watch(runs)
        self.visible = bool(sys.stderr) and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.clear()
        if kind is KeyboardInterrupt:
            for run in self._left():
                back = f"hpclaunch wait {run.id}, hpclaunch logs -f {run.id}"
                talk(f"job {run.id} goes on; to come back: {back}; to end it: hpclaunch cancel {run.id}")

    def look(self) -> bool:
        """Look at the runs, show how they are, and return whether all are over. Raises as Watch.look does."""
        over = self.watch.look()
        if self.visible and not over:
            first, *more = self._left()
            line = describe(first, self.watch.states.get((first.site, first.id), State(UNKNOWN)))
            line = printable(f"{line} (and {counted(len(more), 'job')} more)" if more else line, kept="")
            click.echo(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}", nl=False, err=True)
        return over

    def clear(self) -> None:
        """Take the line away."""
        if self.visible:
            click.echo("\r\x1b[K", nl=False, err=True)

    def _left(self) -> list[Run]:
        return [run for run in self.runs if not self.watch.over(run)]


def describe(run: Run, state: State) -> str:
    """Return how a run is in one line: since when, its walltime or its expected start, how far its log says it is."""
    now, began, name = time.time(), run.began, f"{run.id} {run.job_name}"
    # The scheduler is asked now and then only; the run folder knows of the start at once.
    if began and (state.word == RUNNING or (state.word in (PENDING, UNKNOWN) and began >= run.submitted)):
        of = "" if scheduler(run.scheduler).here or not run.seconds else f" of {clock(run.seconds)}"
        return ", ".join(filter(None, [f"{name} RUNNING for {clock(int(now - began))}{of}", logs.how_far(run)]))
    parts = [f"{name} {state.word}"]
    if state.word != RUNNING:
        parts = [f"{name} {state.word} for {clock(int(now - run.submitted))}", state.reason]
    if state.expected_start:
        parts.append(time.strftime("expected to start at %Y-%m-%d %H:%M", time.localtime(state.expected_start)))
    return ", ".join(filter(None, parts))
