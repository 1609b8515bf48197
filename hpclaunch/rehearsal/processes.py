"""The processes of a rehearsal, found by a mark in their environment, and their end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

MARK = "HPCLAUNCH_REHEARSAL"  # the rehearsal's folder, in the environment of every process of it


def marked(folder: Path | str, *variables: str) -> list[int]:
    """Return the processes of the rehearsal in `folder` that have the `variables` NAME=VALUE, without this one."""
    wanted = {word.encode() for word in (f"{MARK}={folder}", *variables)}
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted <= {*(process / "environ").read_bytes().split(b"\0")}:
                found.append(int(process.name))
    return [process for process in found if process != os.getpid()]


def send(number: int, processes: Collection[int]) -> None:
    """Send a signal to processes, some of which may be gone."""
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def kill(find: Callable[[], Collection[int]], seconds: float = 5) -> None:
    """Kill the processes that `find` returns until there are none, not even what they started meanwhile."""
    deadline = time.monotonic() + seconds
    while (left := find()) and time.monotonic() < deadline:
        send(signal.SIGKILL, left)
        time.sleep(0.02)


def end(find: Callable[[], Collection[int]], seconds: float) -> None:
    """Send TERM to the processes that `find` returns, and KILL to those that are left after `seconds`."""
    deadline = time.monotonic() + seconds
    send(signal.SIGTERM, find())
    while find() and time.monotonic() < deadline:
        time.sleep(0.1)
    kill(find)


def restore_signals() -> None:
    """Receive every signal again: a background job of a shell ignores some, and so do its children."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
