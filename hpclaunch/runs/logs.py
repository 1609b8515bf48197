"""What the ranks of a run wrote: read, or followed while they write, lines that many wrote alike collapsed into one.

Files are opened by path, again and again, and read in small pieces: a network file system reports no changes, a handle
may go stale, and a log may be larger than the memory of a login node.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpclaunch import schedulers
from hpclaunch.errors import HpclaunchError
from hpclaunch.runs.collapse import Collapse
from hpclaunch.runs.registry import Run
from hpclaunch.schedulers import run_folder

POLL_SECONDS = 0.3
ASK_SECONDS = 2.0  # between two questions to the scheduler
_PIECE = 65536  # bytes read at once
_LONGEST = 16384  # bytes; what is longer is cut, since it is seldom text


@dataclass
class _Log:
    """One growing file."""

    path: Path
    offset: int = 0
    identity: tuple[int, int] | None = None
    rest: bytes = b""

    def lines(self) -> Iterator[str]:
        """Yield the whole lines that have come by now; a file cut short or put in place of another starts anew."""
        try:
            end = self._look(self.path.stat())
            while self.offset < end:
                with self.path.open("rb") as file:
                    self._look(os.fstat(file.fileno()))
                    file.seek(self.offset)
                    piece = file.read(_PIECE)
                if self.offset == 0 or len(self.rest) > _LONGEST:
                    yield from self.last()
                if not piece:
                    return
                self.offset += len(piece)
                *whole, rest = (self.rest + piece).split(b"\n")
                self.rest = rest[rest.rfind(b"\r", 0, max(len(rest) - 1, 0)) + 1 :]
                yield from map(_text, whole)
        except FileNotFoundError:
            self.offset, self.identity = 0, None
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise HpclaunchError(f"{self.path}: cannot be read: {error.strerror}") from None

    def last(self) -> Iterator[str]:
        """Yield the last line if no newline ends it."""
        if self.rest:
            rest, self.rest = self.rest, b""
            yield _text(rest)

    def _look(self, found: os.stat_result) -> int:
        identity = (found.st_dev, found.st_ino)
        if self.identity not in (None, identity) or found.st_size < self.offset:
            self.offset = 0
        self.identity = identity
        return found.st_size


def _text(line: bytes) -> str:
    """Return a line as a terminal would show it in the end, after a progress bar has written over itself."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="surrogateescape")


class _Stream:
    """What the ranks of a run wrote to stdout, or to stderr."""

    def __init__(self, run: Run, rank: int | None, rank_log: str, node_log: str) -> None:
        self.run, self.rank = run, rank
        self.names = {rank_log: "", node_log: "node "}
        self.logs: dict[str, _Log] = {}  # by label
        self._collapse = Collapse()
        self._old = 0  # the clock at the last call

    def lines(self, over: bool) -> Iterator[str]:
        """Yield the new lines; those that not all ranks have written yet wait for the next call."""
        self.logs = {label: self.logs.get(label) or _Log(path) for label, path in self._paths(over).items()}
        self._collapse.expected = max(len(self.logs), self.run.nodes * self.run.tasks_per_node)
        yield from self._collapse.merge({label: log.lines() for label, log in self.logs.items()})
        yield from self._collapse.release(before=self._old + 1)
        self._old = self._collapse.clock

    def last(self) -> Iterator[str]:
        """Yield the rest, including lines without an end."""
        for label, log in self.logs.items():
            for line in log.last():
                self._collapse.add(label, line, self._collapse.clock)
        yield from self._collapse.release()

    def place(self) -> list[object]:
        """Return how far was read."""
        return [(log.identity, log.offset) for log in self.logs.values()]

    def _paths(self, over: bool) -> dict[str, Path]:
        """Return the files to read by label: of the ranks, else of the nodes, else the job's own output.

        The job's output repeats what rank 0 writes, so it counts only if there will be no other: at the end, or with a
        script of the user's own.
        """
        for name, label in self.names.items():
            found = run_folder.logs(self.run.path, name, self.rank)
            if found or self.rank is not None:
                return {"" if self.rank is not None else f"{label}{number}": path for number, path in found.items()}
        output = own_output(self.run) if run_folder.RANK_LOG in self.names and (over or _foreign(self.run)) else None
        return {"job": output} if output else {}


def read(run: Run, rank: int | None, err: bool = False) -> Iterator[str]:
    """Yield the lines that are there: those written to stdout, then those to stderr; with `err` only the latter.

    Raises HpclaunchError if the one rank asked for has no log.
    """
    streams = _streams(run, rank, err)
    for stream in streams:
        yield from stream.lines(over=True)
        yield from stream.last()
    _check(run, rank, streams)


def follow(run: Run, rank: int | None, ended: Callable[[], bool], err: bool = False) -> Iterator[str]:
    """Yield the lines that are there, then those that come, until `ended()` and a poll that brings no more.

    Raises HpclaunchError if the one rank asked for never had a log, and whatever `ended` raises.
    """
    streams = _streams(run, rank, err)
    over, was_over, quiet, asked = False, False, False, float("-inf")
    while not (was_over and quiet):
        was_over = over
        if not over and time.monotonic() - asked >= ASK_SECONDS:
            over, asked = ended(), time.monotonic()
        before = [stream.place() for stream in streams]
        for stream in streams:
            yield from stream.lines(over)
        quiet = before == [stream.place() for stream in streams]
        time.sleep(POLL_SECONDS)
    for stream in streams:
        yield from stream.last()
    _check(run, rank, streams)


def _streams(run: Run, rank: int | None, err: bool) -> list[_Stream]:
    kinds = [(run_folder.RANK_LOG, run_folder.NODE_LOG), (run_folder.RANK_ERR, run_folder.NODE_ERR)]
    return [_Stream(run, rank, *names) for names in kinds[err:]]


def _check(run: Run, rank: int | None, streams: list[_Stream]) -> None:
    if rank is not None and not any(stream.logs for stream in streams):
        kinds = (run_folder.RANK_LOG, run_folder.RANK_ERR, run_folder.NODE_LOG, run_folder.NODE_ERR)
        found = [path.name for name in kinds for path in run_folder.logs(run.path, name).values()]
        there = ", ".join(found[:8]) + (" ..." if found[8:] else "") or "no logs yet"
        raise HpclaunchError(f"{run.folder}: rank {rank} wrote nothing there (found: {there})")


def _foreign(run: Run) -> bool:
    """Tell whether the job script is not one of ours, which write a log for each rank."""
    try:
        return b"HPCLAUNCH_RUN_DIR" not in (run.path / run_folder.SCRIPT).read_bytes()
    except OSError:
        return False


def own_output(run: Run) -> Path | None:
    """Return the file of what the job script itself printed, or None if it is not there."""
    return schedulers.scheduler(run.scheduler).output(run)


def delivered(run: Run) -> int | None:
    """Return a number for the output of a scheduler that delivers it at the end of a job; None until then."""
    with suppress(OSError):
        if schedulers.scheduler(run.scheduler).output_at_end and (output := own_output(run)):
            return output.stat().st_ino
    return None


def tail(path: Path, count: int) -> list[str]:
    """Return the last `count` lines that are not blank, [] if the file cannot be read."""
    try:
        with path.open("rb") as file:
            cut = file.seek(0, os.SEEK_END) > _PIECE
            file.seek(-_PIECE if cut else 0, os.SEEK_END if cut else os.SEEK_SET)
            lines = [_text(line) for line in file.read().split(b"\n")[cut:]]
    except OSError:
        return []
    return [line for line in lines if line.strip()][-count:]
