"""Signals to whole sessions, in which PBS thinks: the script is one, and so is each task."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from pathlib import Path

from hpclaunch.rehearsal import processes

TASKS = "tasks"  # in a job's room, a file with the session of each task


def send(number: int, sessions: Collection[int]) -> None:
    """Send a signal to every process of these sessions."""
    processes.send(number, in_sessions(sessions))


def kill(sessions: Collection[int], seconds: float = 5) -> None:
    """Kill these sessions until nothing is left of them."""
    processes.kill(partial(in_sessions, sessions), seconds)


def alive(process: int, word: str) -> bool:
    """Tell whether a process lives and has the word in its command line."""
    try:
        return word.encode() in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def in_sessions(leaders: Collection[int]) -> list[int]:
    """Return the processes in the sessions of `leaders`, without zombies (proc(5), stat)."""
    found = []
    for entry in os.listdir("/proc") if leaders else ():  # noqa: PTH208 (thousands of entries)
        if entry.isdigit():
            with suppress(OSError):
                state, _, _, session, *_ = Path("/proc", entry, "stat").read_bytes().rpartition(b")")[2].split()
                if state not in {b"Z", b"X"} and int(session) in leaders:
                    found.append(int(entry))
    return found


def usage(leaders: Collection[int]) -> tuple[float, int]:
    """Return the seconds of cores, those of ended children included, and the resident kB of these sessions."""
    seconds, pages = 0.0, 0
    for process in in_sessions(leaders):
        with suppress(OSError, IndexError):
            fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
            seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
            pages += int(fields[21])
    return seconds, pages * os.sysconf("SC_PAGE_SIZE") // 1024


def of_tasks(room: Path, node: int | None = None) -> list[int]:
    """Return the sessions of the tasks that pbsdsh started, on one node or on all."""
    found = []
    for path in (room / TASKS).glob("*" if node is None else f"{node}-*"):
        with suppress(ValueError, OSError):
            found.append(int(path.read_text()))
    return found
