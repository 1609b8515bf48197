"""pbs_demux in the background: copies what tasks print, 0.3 MB a second of each."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import BinaryIO

from hpclaunch.rehearsal.pbs import demux


class Demux(threading.Thread):
    """Copies from the tasks to two open files until `end` is called."""

    def __init__(self, room: Path, output: BinaryIO, error: BinaryIO) -> None:
        super().__init__(daemon=True)
        self.demux = demux.Demux(room, output, error)
        self.over = threading.Event()

    def run(self) -> None:
        """Copy some pieces now and then."""
        while not self.over.wait(0.2):
            self.demux.copy()

    def end(self) -> None:
        """Copy the last pieces and stop."""
        self.over.set()
        self.join(timeout=5)
        self.demux.close()
