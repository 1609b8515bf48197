"""Sessions of processes, in which PBS thinks: each task is one."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path


def _table() -> Iterator[tuple[int, int]]:
    """Yield process and session of all that live, without zombies (proc(5), stat)."""
    for entry in os.listdir("/proc"):  # noqa: PTH208 (thousands of entries)
        if entry.isdigit():
            with contextlib.suppress(OSError):
                rest = Path("/proc", entry, "stat").read_bytes().rpartition(b")")[2].split()
                if rest[0] not in {b"Z", b"X"}:
                    yield int(entry), int(rest[3])


def members(sessions: Collection[int]) -> list[int]:
    """Return the processes of these sessions."""
    return [process for process, session in _table() if session in sessions] if sessions else []


def send(number: int, sessions: Collection[int]) -> None:
    """Send a signal to every process of these sessions."""
    for process in members(sessions):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def kill(sessions: Collection[int], seconds: float = 5) -> None:
    """Kill these sessions until nothing is left of them, not even what they start meanwhile."""
    end = time.monotonic() + seconds
    while members(sessions) and time.monotonic() < end:
        send(signal.SIGKILL, sessions)
        time.sleep(0.02)


def listen() -> None:
    """Hear every signal again: a background job of a shell is deaf to some, and so are its children."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def tasks(room: Path, node: int | None = None) -> list[int]:
    """Return the sessions of a job's tasks, on one node or on all; `room` is the job's own folder."""
    found = []
    for path in (room / "tasks").glob("*" if node is None else f"{node}-*"):
        with contextlib.suppress(ValueError, OSError):
            found.append(int(path.read_text()))
    return found


def alive(process: int, word: str) -> bool:
    """Tell whether a process lives and has the word in its command line."""
    try:
        return word.encode() in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
