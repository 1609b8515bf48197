"""Signals to whole sessions, in which PBS thinks: the script is one, and so is each task."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path

from hpclaunch.rehearsal import processes


def send(number: int, sessions: Collection[int]) -> None:
    """Send a signal to every process of these sessions."""
    processes.send(number, processes.in_sessions(sessions))


def kill(sessions: Collection[int], seconds: float = 5) -> None:
    """Kill these sessions until nothing is left of them."""
    processes.kill(partial(processes.in_sessions, sessions), seconds)


def alive(process: int, word: str) -> bool:
    """Tell whether a process lives and has the word in its command line."""
    try:
        return word.encode() in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
