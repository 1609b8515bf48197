"""The registry of runs: what was submitted, from where, and where its folder is.

Each run is one small file in the person's state folder, written whole or not at all, so that submissions beside
each other lose nothing and a killed one leaves nothing half written. The run folder has a copy, run.json, which
still counts when the folder was moved.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import msgspec

from hpclaunch import paths
from hpclaunch.errors import HpclaunchError, SchedulerError

FOLDER = "hpclaunch-runs"

# One set of words for all schedulers. A run ends in one of the four last.
PENDING, RUNNING, REQUEUED, UNKNOWN = "PENDING", "RUNNING", "REQUEUED", "UNKNOWN"
COMPLETED, FAILED, CANCELLED, TIMEOUT = "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"
ENDED = {COMPLETED, FAILED, CANCELLED, TIMEOUT}


class State(msgspec.Struct, frozen=True):
    """What the scheduler says of a job: our word, its own reason, the exit code once there is one.

    `expected_start` is when the scheduler expects a waiting job to start, in seconds since 1970.
    """

    word: str
    reason: str = ""
    exit_code: int | None = None
    hosts: str = ""
    expected_start: float | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.word in ENDED

    @property
    def shell_code(self) -> int:
        """Return the shell's exit code for a job that ended so; PBS's own are 256 + signal, or below 0."""
        if self.word == COMPLETED:
            return 0
        code = self.exit_code or 1
        return 1 if code < 0 else code - 128 if code > 256 else code


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One submitted job. `folder` is absolute; `submitted` is seconds since 1970, `poll` between two questions."""

    id: str
    site: str
    scheduler: str
    job_name: str
    folder: str
    submitted: Annotated[float, msgspec.Meta(ge=0, le=1e11)]  # time.localtime takes no more
    partition: str = ""
    nodes: int = 1
    tasks_per_node: int = 1
    seconds: int = 0
    max_attempts: int = 1
    poll: int = 2

    @property
    def path(self) -> Path:
        """Return the run folder."""
        return Path(self.folder)

    @property
    def further_ids(self) -> list[str]:
        """Return the ids of the attempts after the first, where each is a job of its own."""
        return (self._read("attempts") or "").split()

    @property
    def exit_code(self) -> int | None:
        """Return the exit code that the job script left at its end; None until then, and where it was killed."""
        try:
            return int(self._read("exit") or "")
        except ValueError:
            return None

    @property
    def recorded_end(self) -> State | None:
        """Return the end that the run folder records, for when the scheduler cannot be asked; None if more may come.

        After another exit code than 0 a further attempt may follow, and after 143, SIGTERM's, the scheduler may start
        the job again: a job ends so when it must make room.
        """
        code = self.exit_code
        if code is None or (code and (code == 143 or self.max_attempts > 1 or self.further_ids)):
            return None
        return State(FAILED if code else COMPLETED, "", code)

    @property
    def exit_written(self) -> int | None:
        """Return when the exit code was written, in nanoseconds since 1970; None where there is none."""
        with suppress(OSError):
            os.listdir(self.folder)  # noqa: PTH208 - see _read
            return (self.path / "exit").stat().st_mtime_ns
        return None

    @property
    def cancelled(self) -> bool:
        """Whether somebody told the run to end."""
        return (self.path / "cancelled").exists()

    def _read(self, name: str) -> str | None:
        with suppress(OSError, UnicodeDecodeError):
            os.listdir(self.folder)  # noqa: PTH208 - NFS tells of new files only to those who look
            return (self.path / name).read_text()
        return None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that nobody ever reads half of it. Raises OSError, and then leaves nothing behind."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".new")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def register(run: Run) -> None:
    """Add `run` to the registry as the newest, whatever clock the others were dated by.

    Raises OSError if the state folder cannot be written.
    """
    folder = paths.user_state() / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    number = max([time.time_ns(), *(_number(path) + 1 for path in _files()[:1])])
    names = "-".join(quote(name, safe="", errors="surrogateescape") for name in (run.site, run.id))
    write_whole(folder / f"{number}-{names}.json", _encode(run))


def record(run: Run, script: str, plan: object, further: Sequence[str] = ()) -> None:
    """Fill the run folder and register a run that is submitted; a file that cannot be written is a warning."""
    steps: tuple[Callable[[], None], ...] = (
        lambda: _fill(run, script, plan),
        lambda: note_attempts(run.path, further),
        lambda: register(run),
    )
    for write in steps:
        try:
            write()
        except OSError as error:
            where = error.filename or run.folder
            warnings.warn(f"job {run.id} is submitted, but {where} cannot be written: {error.strerror}", stacklevel=2)
        except SchedulerError as error:
            warnings.warn(str(error), stacklevel=2)


def _fill(run: Run, script: str, plan: object) -> None:
    run.path.mkdir(parents=True, exist_ok=True)
    write_whole(run.path / "job.sh", script.encode(errors="surrogateescape"))
    write_whole(run.path / "run.json", _encode(run))
    write_whole(run.path / "plan.json", _encode(plan, indent=2))


def _encode(value: object, indent: int | None = None) -> bytes:
    """Return JSON that keeps paths and words which are not UTF-8: Python's surrogates are escaped in it."""
    text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=indent)
    return text.encode(errors="backslashreplace")


def note_attempts(folder: Path, ids: Sequence[str]) -> None:
    """Note further attempts in the run folder, for who asks for the run's state. Raises SchedulerError."""
    if not ids:
        return
    try:
        with (folder / "attempts").open("a") as file:
            file.writelines(f"{job_id}\n" for job_id in ids)
    except OSError as error:
        raise SchedulerError(f"job {' '.join(ids)} is submitted, but {error.filename}: {error.strerror}") from None


def newest_first() -> list[Run]:
    """Return the registered runs, the newest first; what is no run's file is named on stderr and left aside."""
    found = {path: read(path) for path in _files()}
    for path in (path for path, run in found.items() if run is None):
        sys.stderr.write(f"hpclaunch: {quote(str(path))}: no run's file, left aside\n")
    return list(filter(None, found.values()))


def _files() -> list[Path]:
    return sorted((paths.user_state() / "runs").glob("[0-9]*.json"), key=_number, reverse=True)


def _number(path: Path) -> int:
    digits = path.name.split("-")[0]
    return int(digits[:32]) if digits.isdecimal() else 0


def find(names: Iterable[str]) -> list[Run]:
    """Return the runs of these ids or run folders, the newest run where none is named.

    An id may be shortened to what stands before its first dot. Raises HpclaunchError for one that is not known.
    """
    known = newest_first()
    names = list(names)
    if not names:
        if not known:
            raise HpclaunchError("no runs yet: hpclaunch submit makes one")
        return known[:1]
    found = []
    for name in names:
        run = next((run for run in known if name in (run.id, run.id.split(".")[0]) and run.path.is_dir()), None)
        run = run or _moved(name) or next((run for run in known if name in (run.id, run.id.split(".")[0])), None)
        if run is None:
            raise HpclaunchError(f"no run {name!r}: `hpclaunch jobs` lists them, and a run folder's path will do too")
        found.append(run)
    return found


def _moved(name: str) -> Run | None:
    """Return the run whose folder is at `name` now, or below ./hpclaunch-runs."""
    for folder in (Path(name), Path(FOLDER, name)):
        if (run := read(folder / "run.json") or _by_hand(folder)) is not None:
            return msgspec.structs.replace(run, folder=str(folder.absolute()))
    return None


def _by_hand(folder: Path) -> Run | None:
    """Return the run of a job script that was submitted without hpclaunch, from the about.json that it writes."""
    try:
        about = json.loads((folder / "about.json").read_bytes())
        known = {"id": folder.absolute().name, "submitted": folder.stat().st_ctime, "folder": ""}
        return msgspec.convert(about | known, Run)
    except (OSError, ValueError, TypeError, RecursionError, msgspec.ValidationError):
        return None


def read(path: Path) -> Run | None:
    """Return the run of a registry's file or a run.json, None where it is none."""
    try:
        run = msgspec.convert(json.loads(path.read_bytes()), Run) if path.is_file() else None
        text = "".join(map(str, msgspec.structs.astuple(run) if run else ()))
        text.encode(errors="surrogateescape")  # else, and with a null byte, no name of a file
        return None if "\0" in text else run
    except (OSError, ValueError, RecursionError, msgspec.ValidationError):
        return None
