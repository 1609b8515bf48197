"""pbs_demux: copies what tasks print to the job's output, mixed, and forgets the rest when the job ends."""

from __future__ import annotations

import fcntl
import os
import select
import threading
import time
from contextlib import suppress
from pathlib import Path

OUTPUT, ERROR = "stdout", "stderr"  # pipes in the job's folder, into which all of its tasks write
PIECE = 4096  # bytes
SPEED = 1e6  # bytes a second: busy tasks are faster, and are not waited for
LAST = 64 * 1024  # bytes that are still copied after the end of the script; more is lost, as was seen with 3 MB
CAPACITY = 256 * 1024  # bytes that a pipe holds


class Demux(threading.Thread):
    """Copies in the background from the tasks to two open files."""

    def __init__(self, room: Path, output: int, error: int) -> None:
        super().__init__(daemon=True)
        self.targets: dict[int, int] = {}
        self.over = threading.Event()
        for name, target in ((OUTPUT, output), (ERROR, error)):
            os.mkfifo(room / name)
            pipe = os.open(room / name, os.O_RDWR)
            with suppress(OSError):  # a user's pipes have a limit in all
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, CAPACITY)
            self.targets[pipe] = target

    def run(self) -> None:
        """Copy until `end` is called."""
        left = LAST
        while left > 0:
            ready = select.select(self.targets, [], [], 0.05)[0]
            if not ready and self.over.is_set():
                break
            for pipe in ready:
                piece = os.read(pipe, PIECE)
                os.write(self.targets[pipe], piece)
                left -= len(piece) if self.over.is_set() else 0
                time.sleep(len(piece) / SPEED)

    def end(self) -> None:
        """Copy the last pieces and stop."""
        self.over.set()
        self.join(timeout=5)
        for pipe in self.targets:
            os.close(pipe)
