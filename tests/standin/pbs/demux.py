"""pbs_demux: copies what tasks print to the job's output, 0.3 MB a second of each, and forgets the rest at the end."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import BinaryIO

PRINTED = "printed"  # the folder in a job's room with the output and the errors of each task
OUTPUT, ERROR = ".out", ".err"
PIECE = 256  # bytes; pieces of busy tasks mix, so lines break
PIECES = 256  # of each file at a time, and after the end of the script; more was lost with 3 MB on a cluster


class Demux(threading.Thread):
    """Copies from the tasks to two open files, in the background, until `end` is called."""

    def __init__(self, room: Path, output: BinaryIO, error: BinaryIO) -> None:
        super().__init__(daemon=True)
        self.room = room
        self.targets = {OUTPUT: output, ERROR: error}
        self.printed: dict[Path, BinaryIO] = {}
        self.over = threading.Event()

    def run(self) -> None:
        """Copy some pieces now and then."""
        while not self.over.wait(0.2):
            self.copy()

    def copy(self) -> None:
        """Copy some pieces of what has been printed since the last call."""
        for path in (self.room / PRINTED).iterdir():
            if path not in self.printed:
                self.printed[path] = path.open("rb")
        for _ in range(PIECES):
            if not sum(self.targets[path.suffix].write(file.read(PIECE)) for path, file in self.printed.items()):
                break

    def end(self) -> None:
        """Copy the last pieces and stop."""
        self.over.set()
        self.join(timeout=5)
        self.copy()
        for file in self.printed.values():
            file.close()
