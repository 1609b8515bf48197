"""pbs_demux: copies what tasks print to the job's output, mixed, and forgets the rest when the job ends."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

OUTPUT, ERROR = "stdout", "stderr"  # pipes in the job's folder, into which all of its tasks write
CAPACITY = 256 * 1024  # bytes in a pipe; a user's pipes have a limit in all, so it may be less
PIECE = 64 * 1024  # bytes that are copied at a time, the last time too: 3 MB lost their end on a cluster


class Demux:
    """The pipes of a job, and the open files that they lead to."""

    def __init__(self, room: Path, output: int, error: int) -> None:
        self.targets: dict[int, int] = {}
        for name, target in ((OUTPUT, output), (ERROR, error)):
            os.mkfifo(room / name)
            pipe = os.open(room / name, os.O_RDWR | os.O_NONBLOCK)
            with suppress(OSError):
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, CAPACITY)
            self.targets[pipe] = target

    def copy(self) -> None:
        """Copy a piece of what has been printed; busy tasks are faster, and wait."""
        for pipe, target in self.targets.items():
            with suppress(BlockingIOError):
                os.write(target, os.read(pipe, PIECE))

    def close(self) -> None:
        """Copy the last pieces."""
        self.copy()
        for pipe in self.targets:
            os.close(pipe)
