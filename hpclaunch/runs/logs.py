"""What the ranks of a run wrote: read, or followed while they write, lines that many wrote alike collapsed into one.

Files are opened by path, again and again, and read in small pieces: a network file system reports no changes, a handle
may go stale, and a log may be larger than the memory of a login node.
"""

import errno
import heapq
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hpclaunch.errors import HpclaunchError
from hpclaunch.runs.registry import Run
from hpclaunch.schedulers import run_folder, scheduler

POLL_SECONDS = 0.3
ASK_SECONDS = 2.0  # between two questions to the scheduler
_PIECE = 65536  # bytes read at once, or a line
NEAR = 100  # lines that ranks may be apart and still be collapsed
_FAR = re.compile(r"\b(epoch|step|iteration)\b\W{0,3}(\d+(?:/\d+)?)", re.IGNORECASE)
TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass
class _Log:
    """One growing file; one that was cut short or put in place of another starts anew."""

    path: Path
    offset: int = 0
    inode: int = 0

    def lines(self, last: bool) -> Iterator[str]:
        """Yield the lines that have come by now; with `last` also one that no newline ends."""
        while piece := self._piece():
            if not last and not piece[-1].endswith(b"\n"):
                piece.pop()
            if not piece:
                return
            self.offset += sum(map(len, piece))
            yield from map(_text, piece)

    def _piece(self) -> list[bytes]:
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self.inode or found.st_size < self.offset:
                    self.offset, self.inode = 0, found.st_ino
                file.seek(self.offset)
                return file.readlines(_PIECE)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise HpclaunchError(f"{self.path}: cannot be read: {error.strerror}") from None
            self.offset = 0
            return []


def _text(line: bytes) -> str:
    """Return a line as a terminal would show it in the end, after a progress bar has written over itself."""
    return line.rstrip(b"\r\n").rpartition(b"\r")[2].decode(errors="surrogateescape")


@dataclass
class _Line:
    text: str
    clock: int
    ranks: set[str]


@dataclass
class _Collapse:
    """Lines in the order of first sight, each with the ranks that wrote it, held back while more ranks may come.

    A rank's clock counts its lines. One that writes what another wrote takes that line's clock, so that ranks which
    write more than others, or less, meet again.
    """

    grep: re.Pattern[str] | None = None  # only lines in which it is found are shown
    expected: int = 0  # ranks
    clock: int = 0  # the highest of any line
    held: deque[_Line] = field(default_factory=deque)
    alike: dict[str, deque[_Line]] = field(default_factory=dict)  # those that are held, by text

    def add(self, rank: str, text: str, clock: int) -> int:
        """Take a line of a rank at `clock`; return the rank's new clock."""
        alike = self.alike.setdefault(text, deque())
        for line in alike:
            if rank not in line.ranks and abs(clock - line.clock) <= NEAR:
                line.ranks.add(rank)
                return line.clock
        line = _Line(text, clock + 1, {rank})
        alike.append(line)
        self.held.append(line)
        self.clock = max(self.clock, line.clock)
        return line.clock

    def release(self, before: float = float("inf")) -> Iterator[str]:
        """Yield the lines, from the first on, that `expected` ranks wrote or whose clock is below `before`."""
        while self.held and (len(self.held[0].ranks) >= self.expected or self.held[0].clock < before):
            line = self.held.popleft()
            self.alike[line.text].popleft()
            if not self.alike[line.text]:
                del self.alike[line.text]
            if self.grep and not self.grep.search(line.text):
                continue
            label = f"{TIMES}{len(line.ranks)}" if len(line.ranks) > 1 else next(iter(line.ranks))
            yield f"[{label}] {line.text}" if label else line.text

    def merge(self, sources: Mapping[str, Iterator[str]]) -> Iterator[str]:
        """Read the lines of all ranks, always of the one that is furthest behind, and yield what is complete."""
        names = list(sources)
        turns = [(self.clock, place) for place in range(len(names))]
        while turns:
            clock, place = turns[0]
            line = next(sources[names[place]], None)
            if line is None:
                heapq.heappop(turns)
            else:
                heapq.heapreplace(turns, (self.add(names[place], line, clock), place))
            if turns:
                yield from self.release(before=turns[0][0] - NEAR)


class _Stream:
    """What the ranks of a run wrote to stdout, or to stderr."""

    def __init__(self, run: Run, rank: int | None, rank_log: str, node_log: str, grep: re.Pattern[str] | None) -> None:
        self.run, self.rank = run, rank
        self.names = {rank_log: "", node_log: "node "}
        self.logs: dict[str, _Log] = {}  # by label
        self._collapse = _Collapse(grep)
        self._old = 0  # the clock at the last call

    def lines(self, over: bool, last: bool = False) -> Iterator[str]:
        """Yield the new lines; those that not all ranks have written yet wait for the next call, or for the `last`."""
        self.logs = {label: self.logs.get(label) or _Log(path) for label, path in self._paths(over).items()}
        self._collapse.expected = max(len(self.logs), self.run.nodes * self.run.tasks_per_node)
        yield from self._collapse.merge({label: log.lines(last) for label, log in self.logs.items()})
        yield from self._collapse.release(before=float("inf") if last else self._old + 1)
        self._old = self._collapse.clock

    def _paths(self, over: bool) -> dict[str, Path]:
        """Return the files to read by label: of the ranks, else of the nodes, else the job's own output.

        The job's output repeats what rank 0 writes, so it counts only if there will be no other: at the end, or with a
        script of the user's own.
        """
        for name, label in self.names.items():
            found = run_folder.logs(self.run.path, name, self.rank)
            if found or self.rank is not None:
                return {"" if self.rank is not None else f"{label}{number}": path for number, path in found.items()}
        if run_folder.RANK_LOG not in self.names or not (over or _foreign(self.run)):
            return {}
        output = scheduler(self.run.scheduler).output(self.run)
        return {"job": output} if output else {}


def read(
    run: Run,
    rank: int | None,
    ended: Callable[[], bool] | None = None,
    err: bool = False,
    grep: re.Pattern[str] | None = None,
    last: int | None = None,
) -> Iterator[str]:
    """Yield the lines that are there: those written to stdout, then those to stderr; with `err` only the latter.

    With `ended` also those that come, until `ended()` and a poll that brings no more. With `grep` only lines in which
    it is found, with `last` only so many of each that are there already. Raises HpclaunchError if the
    one rank asked for never had a log, and whatever `ended` raises.
    """
    kinds = [(run_folder.RANK_LOG, run_folder.NODE_LOG), (run_folder.RANK_ERR, run_folder.NODE_ERR)]
    streams = [_Stream(run, rank, *names, grep) for names in kinds[err:]]
    over, asked = False, float("-inf")
    before: list[int] | None = None

    def chosen(lines: Iterator[str]) -> Iterable[str]:
        return lines if last is None else deque(lines, last)

    while ended:
        if not over and time.monotonic() - asked >= ASK_SECONDS:
            over, asked, before = ended(), time.monotonic(), None
        for stream in streams:
            yield from chosen(stream.lines(over))
        last = None
        offsets = [log.offset for stream in streams for log in stream.logs.values()]
        if over and offsets == before:
            break
        before = offsets
        time.sleep(POLL_SECONDS)
    for stream in streams:
        yield from chosen(stream.lines(over=True, last=True))
    if rank is not None and not any(stream.logs for stream in streams):
        found = [path.name for path in run_folder.logs(run.path, run_folder.RANK_LOG).values()]
        there = ", ".join(found[:8]) + (" ..." if found[8:] else "") or "no logs yet"
        raise HpclaunchError(f"{run.folder}: rank {rank} wrote nothing there (found: {there})")


def _foreign(run: Run) -> bool:
    """Tell whether the job script is not one of ours, which write a log for each rank."""
    return "HPCLAUNCH_RUN_DIR" not in (run_folder.read(run.path, run_folder.SCRIPT) or "HPCLAUNCH_RUN_DIR")


def how_far(run: Run) -> str:
    """Return the epoch and step that rank 0 or node 0 wrote last, as `epoch 3, step 120`, or "" if it wrote none."""
    kinds = (run_folder.RANK_LOG, run_folder.RANK_ERR, run_folder.NODE_LOG, run_folder.NODE_ERR)
    found = [path for kind in kinds for path in run_folder.logs(run.path, kind, 0).values()]
    with suppress(OSError):
        found.sort(key=lambda path: path.stat().st_mtime)
    lines = (line for path in reversed(found) for line in reversed(tail(path, 20)))
    said = next(filter(None, map(_FAR.findall, lines)), [])
    return ", ".join(f"{word.lower()} {number}" for word, number in said)


def tail(path: Path, count: int) -> list[str]:
    """Return the last `count` lines that are not blank, [] if the file cannot be read."""
    try:
        with path.open("rb") as file:
            cut = file.seek(0, os.SEEK_END) > _PIECE
            file.seek(-_PIECE if cut else 0, os.SEEK_END if cut else os.SEEK_SET)
            found = file.readlines()  # the first is cut off; as the only one it is a progress bar's
            lines = [_text(line) for line in found[cut and len(found) > 1 :]]
    except OSError:
        return []
    return [line for line in lines if line.strip()][-count:]
