"""pbs_demux: carries what tasks print to the job's output, in pieces, and forgets the rest when the job ends."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from pathlib import Path

PIECE = 256  # bytes; pieces of busy tasks mix, lines break (OpenPBS 23.06, seen)
LAST_PIECES = 256  # what is still taken after the end of the script; more is lost, as seen with 3 MB
BREATH = 40  # pieces, then 0.01 s: 1 MB/s keep behind busy tasks, as the real one does
OUTPUT, ERROR, END = b"o", b"e", b"x"


def connect(room: Path, kind: bytes) -> socket.socket:
    """Return a way into the job's output (`OUTPUT`) or errors (`ERROR`)."""
    folder = os.open(room, os.O_PATH)
    try:
        pipe = socket.socket(socket.AF_UNIX)
        pipe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200_000)  # most kernels allow that
        pipe.connect(f"/proc/self/fd/{folder}/demux")  # the path itself may be too long for a socket
        pipe.sendall(kind)
    finally:
        os.close(folder)
    return pipe


class Demux(threading.Thread):
    """Copies in the background from the tasks to two open files."""

    def __init__(self, room: Path, output: int, error: int) -> None:
        super().__init__(daemon=True)
        self.room = room
        self.targets = {OUTPUT: output, ERROR: error}
        self.door = socket.socket(socket.AF_UNIX)
        folder = os.open(room, os.O_PATH)
        self.door.bind(f"/proc/self/fd/{folder}/demux")
        os.close(folder)
        self.door.listen(128)

    def run(self) -> None:
        """Copy until `end` is called."""
        ready = selectors.DefaultSelector()
        ready.register(self.door, selectors.EVENT_READ)
        left: int | None = None
        carried = 0
        while left is None or left > 0:
            events = ready.select(None if left is None else 0)
            if not events:
                return
            for key, _ in events:
                pipe = key.fileobj
                if pipe is self.door:
                    visitor, _ = self.door.accept()
                    kind = visitor.recv(1)
                    if kind in self.targets:
                        ready.register(visitor, selectors.EVENT_READ, self.targets[kind])
                    elif kind == END:
                        left = LAST_PIECES
                    continue
                assert isinstance(pipe, socket.socket)  # noqa: S101 (only sockets were registered)
                piece = b""
                with contextlib.suppress(ConnectionError):
                    piece = pipe.recv(PIECE)
                if piece:
                    os.write(key.data, piece)
                    carried += 1
                    if carried % BREATH == 0:
                        time.sleep(0.01)
                    left = left and left - 1
                else:
                    ready.unregister(pipe)
                    pipe.close()

    def end(self) -> None:
        """Take the last pieces and stop."""
        connect(self.room, END).close()
        self.join(timeout=5)
        self.door.close()
