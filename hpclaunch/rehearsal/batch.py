"""The batch script of a rehearsed job: its hosts, its output, and the signals that end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from hpclaunch.errors import HpclaunchError


def hosts(count: int) -> list[str]:
    """Return addresses of this machine, one for each node."""
    return [f"127.0.{node // 250}.{node % 250 + 1}" for node in range(count)]


def catch_interrupts() -> list[int]:
    """Return a list to which SIGINT and SIGTERM are added from now on, instead of ending this process."""
    received: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: received.append(number))
    return received


class Output:
    """The files that a job prints to, appended to by the job and shown here as they grow."""

    def __init__(self, *paths: Path) -> None:
        for path in paths:
            if not path.parent.is_dir():
                raise HpclaunchError(f"no folder {path.parent} for the job's output, which the scheduler would lose")
        self.written = [path.open("ab", 0) for path in paths]
        self.shown = [path.open("rb") for path in paths]
        for file in self.shown:
            file.seek(0, os.SEEK_END)

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self.show()
        for file in (*self.written, *self.shown):
            file.close()

    def show(self) -> None:
        """Print what was added to the files since the last call."""
        for file in self.shown:
            sys.stdout.buffer.write(file.read())
        sys.stdout.buffer.flush()

    def follow(self, batch: subprocess.Popen[bytes], stop: Callable[[float], object]) -> bool:
        """Show the output until the batch script ends, or `stop(seconds)` is true; return whether it has ended."""
        began = time.monotonic()
        while batch.poll() is None:
            self.show()
            if stop(time.monotonic() - began):
                return False
            time.sleep(0.1)
        return True
