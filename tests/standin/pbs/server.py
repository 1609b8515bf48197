"""The server's memory: one JSON file a job, replaced as a whole, and a lock around every change."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from standin.pbs import settings
from standin.pbs.resources import Chunk


@dataclass(frozen=True)
class Job:
    """A job: what qstat shows of it, and what only server and MoM need."""

    id: str
    shown: dict[str, Any]
    chunks: list[Chunk]
    scatter: bool = False
    limit: int | None = None  # walltime, seconds
    program: list[str] = field(default_factory=list)  # of `qsub -- PROGRAM`
    depend: list[list[str]] = field(default_factory=list)  # [type, id, id ...]
    doomed: bool = False  # an unknown resource: no queue takes it
    direct: bool = False  # -koed
    umask: int = 0o077
    hosts: list[str] = field(default_factory=list)  # one for each chunk
    mom: int = 0
    session: int = 0
    begun: float = 0.0
    ending: str = ""  # deleted, forced, walltime
    warned: float = 0.0  # when SIGTERM was sent
    array: str = ""  # a subjob's parent
    index: int = 0
    most: int = 0  # subjobs at a time; 0 is no limit

    @property
    def state(self) -> str:
        """The letter qstat shows."""
        return str(self.shown["job_state"])

    @property
    def nodes(self) -> list[str]:
        """The distinct hosts in order; the first is where the script runs."""
        return list(dict.fromkeys(self.hosts))

    @property
    def is_array(self) -> bool:
        """Whether this is the parent of subjobs."""
        return "[]" in self.id

    def show(self, **shown: Any) -> Job:
        """Return the job with some of what qstat shows changed; None takes an attribute away."""
        merged = {**self.shown, "mtime": stamp(), **shown}
        return replace(self, shown={name: value for name, value in merged.items() if value is not None})


def stamp(seconds: float | None = None) -> str:
    """Return a time as PBS writes it."""
    return time.ctime(seconds)


def order(job_id: str) -> tuple[int, int]:
    """Return what sorts ids by number, then by index in the array, the parent first."""
    found = re.match(r"(\d+)(?:\[(\d*)\])?", job_id)
    return (int(found[1]), int(found[2] or -1)) if found else (0, 0)


@dataclass(frozen=True)
class Server:
    """The folder of a stand-in."""

    folder: Path

    @cached_property
    def settings(self) -> settings.Settings:
        """What the stand-in was set up with."""
        return settings.read(self.folder / "server.json")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the jobs against changes by other programs."""
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def next_number(self) -> int:
        """Return the number of the next job; call it locked."""
        path = self.folder / "next"
        number = int(path.read_text())
        path.write_text(str(number + 1))
        return number

    def live(self) -> list[Job]:
        """Return the jobs that have not finished, by number."""
        return self._all("jobs")

    def finished(self) -> list[Job]:
        """Return the jobs in the history, if there is one."""
        return self._all("history") if self.settings.history else []

    def find(self, job_id: str) -> Job | None:
        """Return a job, finished ones only if there is a history."""
        for folder in ("jobs", "history")[: 1 + self.settings.history]:
            if job := self._read(self._path(folder, job_id)):
                return job
        return None

    def outcome(self, job_id: str) -> Job | None:
        """Return a finished job, with or without a history."""
        return self._read(self._path("history", job_id))

    def save(self, job: Job) -> Job:
        """Save the job; a finished one goes to the history."""
        final = job.state == "F"
        path = self._path("history" if final else "jobs", job.id)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(json.dumps(asdict(job), indent=1, ensure_ascii=True))
        draft.replace(path)
        if final:
            self._path("jobs", job.id).unlink(missing_ok=True)
        return job

    def forget(self, job: Job) -> None:
        """Delete the files of the job."""
        for folder in ("jobs", "history"):
            self._path(folder, job.id).unlink(missing_ok=True)

    def subjobs(self, array: str) -> list[Job]:
        """Return an array's subjobs, whether it has finished or not."""
        return [job for folder in ("jobs", "history") for job in self._all(folder) if job.array == array]

    def script(self, job: Job) -> Path:
        """Return where the MoM's copy of the job's script lies."""
        return self.folder / "mom_priv" / "jobs" / f"{job.array or job.id}.SC"

    def room(self, job: Job) -> Path:
        """Return the folder of what exists only while the job runs."""
        return self.folder / "run" / job.id

    def _path(self, folder: str, job_id: str) -> Path:
        return self.folder / folder / f"{job_id}.json"

    def _all(self, folder: str) -> list[Job]:
        names = [name for name in os.listdir(self.folder / folder) if not name.startswith(".")]  # noqa: PTH208 (faster)
        found = [self._read(self.folder / folder / name) for name in sorted(names, key=order)]
        return [job for job in found if job]

    def _read(self, path: Path) -> Job | None:
        try:
            values = json.loads(path.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        values["chunks"] = [Chunk(**chunk) for chunk in values["chunks"]]
        return Job(**values)
