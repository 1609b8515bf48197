"""What the ranks of a run wrote: read, or followed while they write, lines that many wrote alike folded into one.

Files are asked by path, again and again, in small pieces: on a network file system nothing tells of a change, a
handle may go stale, and a log may be larger than the memory of a login node.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path

from hpclaunch.errors import HpclaunchError
from hpclaunch.runs.collapse import Folder
from hpclaunch.runs.registry import Run

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
        """Yield the last line where no newline ends it."""
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


@dataclass
class _Stream:
    """What the ranks of a run wrote to stdout, or to stderr."""

    run: Run
    rank: int | None
    suffix: str
    logs: dict[str, _Log] = field(default_factory=dict)
    folder: Folder = field(default_factory=Folder)
    old: int = 0  # the folder's clock at the last look

    def lines(self, over: bool) -> Iterator[str]:
        """Yield what has come since the last look; lines that not all ranks have written yet wait for the next one."""
        paths = _paths(self.run, self.rank, self.suffix, over)
        self.logs = {label: self.logs.get(label) or _Log(path) for label, path in paths.items()}
        self.folder.expected = max(len(self.logs), self.run.nodes * self.run.tasks_per_node)
        yield from map(_printable, self.folder.take({label: log.lines() for label, log in self.logs.items()}))
        yield from map(_printable, self.folder.ready(before=self.old + 1))
        self.old = self.folder.top

    def last(self) -> Iterator[str]:
        """Yield the rest, lines without an end too."""
        for label, log in self.logs.items():
            for line in log.last():
                self.folder.add(label, line, self.folder.top)
        yield from map(_printable, self.folder.ready())

    def place(self) -> list[object]:
        """Return how far was read."""
        return [(log.identity, log.offset) for log in self.logs.values()]


def read(run: Run, rank: int | None, err: bool = False) -> Iterator[str]:
    """Yield the lines that are there: those written to stdout, then those to stderr; with `err` the latter alone.

    Raises HpclaunchError where the one rank asked for has no log.
    """
    streams = _streams(run, rank, err)
    for stream in streams:
        yield from stream.lines(over=True)
        yield from stream.last()
    _check(run, rank, streams)


def follow(run: Run, rank: int | None, ended: Callable[[], bool], err: bool = False) -> Iterator[str]:
    """Yield the lines that are there, then those that come, until `ended()` and a poll that brings no more.

    Raises HpclaunchError where the one rank asked for never had a log, and whatever `ended` raises.
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
    return [_Stream(run, rank, suffix) for suffix in ((".err",) if err else (".log", ".err"))]


def _printable(line: tuple[str, str]) -> str:
    return f"[{line[0]}] {line[1]}" if line[0] else line[1]


def _check(run: Run, rank: int | None, streams: list[_Stream]) -> None:
    if rank is not None and not any(stream.logs for stream in streams):
        there = ", ".join(sorted(path.name for path in run.path.glob("*-*.[el]*"))) or "no logs yet"
        raise HpclaunchError(f"{run.folder}: rank {rank} wrote nothing there (found: {there})")


def _paths(run: Run, rank: int | None, suffix: str, over: bool) -> dict[str, Path]:
    """Return the files to read by label: of the ranks, else of the nodes, else the job's own output.

    The job's output repeats what rank 0 writes, so it counts only where there will be no other: at the end, or with a
    script of a person's own.
    """
    if rank is not None:
        return {"": path} if (path := next(_named(run, f"rank-{rank}{suffix}"), None)) else {}
    for kind, label in (("rank-", ""), ("node-", "node ")):
        found = {path.stem.removeprefix(kind): path for path in _named(run, f"{kind}*{suffix}")}
        if numbers := sorted((number for number in found if number.isdecimal()), key=int):
            return {label + number: found[number] for number in numbers}
    output = own_output(run) if suffix == ".log" and (over or _foreign(run)) else None
    return {"job": output} if output else {}


def _named(run: Run, pattern: str) -> Iterator[Path]:
    """Yield the logs of a name: those of many ranks lie in a folder for each node."""
    yield from run.path.glob(pattern)
    yield from run.path.glob(f"node-*/{pattern}")


def _foreign(run: Run) -> bool:
    """Tell whether the job script is not one of ours, which write a log for each rank."""
    try:
        return b"HPCLAUNCH_RUN_DIR" not in (run.path / "job.sh").read_bytes()
    except OSError:
        return False


def own_output(run: Run) -> Path | None:
    """Return the file that the scheduler wrote for the job itself, where it is there.

    Slurm: NAME_ID.out or slurm-ID.out; PBS: NAME.oNUMBER, after the end, NAME.oNUMBER.INDEX in an array, the last
    attempt's; both in the folder of submission. A script of the user's own may name another file.
    """
    if _foreign(run) and (named := _named_output(run)) is not None:
        return named
    if run.scheduler == "local":
        found = run.path.glob("job.out")
    elif run.scheduler == "pbs":
        attempts = [run.id, *run.further_ids]
        numbers = [re.sub(r"\[(\d+)\]", r".\1", job_id.split(".")[0]) for job_id in attempts]
        found = (path for number in reversed(numbers) for path in run.path.parent.parent.glob(f"*.o{escape(number)}"))
        return next(found, None)
    else:
        found = run.path.parent.parent.glob(f"*[_-]{escape(run.id)}.out")
    return next(iter(sorted(found)), None)


def _named_output(run: Run) -> Path | None:
    """Return the file that the script names with --output or -o, if it is there."""
    from hpclaunch.scripts import directives

    if run.scheduler not in directives.PREFIX or not (run.path / "job.sh").is_file():
        return None
    lines = (run.path / "job.sh").read_text(errors="surrogateescape").split("\n")
    option = directives.read(lines, run.scheduler, set()).last("output", "o")
    if option is None:
        return None
    if run.scheduler == "pbs":
        path = run.path.parent.parent / option.value.rpartition(":")[2]  # HOST:PATH
        path = path / f"{run.id}.OU" if path.is_dir() else path
    else:
        array, _, index = run.id.partition("_")
        known = {"j": run.id, "A": array, "a": index, "x": run.job_name, "%": "%"}
        name = re.sub(r"%(\d*)([jAax%])", lambda part: known[part[2]].zfill(int(part[1] or 0)), option.value)
        path = run.path.parent.parent / name
    return path if path.is_file() else None


def delivered(run: Run) -> int | None:
    """Return a number for the output that PBS delivered, which it does at the end of a job; None until then."""
    output = own_output(run) if run.scheduler == "pbs" else None
    with suppress(OSError):
        return output.stat().st_ino if output else None
    return None


def tail(path: Path, count: int) -> list[str]:
    """Return the last `count` lines that are not blank; none where the file cannot be read."""
    try:
        with path.open("rb") as file:
            cut = file.seek(0, os.SEEK_END) > _PIECE
            file.seek(-_PIECE if cut else 0, os.SEEK_END if cut else os.SEEK_SET)
            lines = [_text(line) for line in file.read().split(b"\n")[cut:]]
    except OSError:
        return []
    return [line for line in lines if line.strip()][-count:]
