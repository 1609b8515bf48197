"""A submitted job as schedulers know it: its id, its run folder, the words for its states."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from hpclaunch.errors import SchedulerError
from hpclaunch.schedulers import run_folder

# One set of words for all schedulers. A job ends in one of the four last.
PENDING, RUNNING, REQUEUED, UNKNOWN = "PENDING", "RUNNING", "REQUEUED", "UNKNOWN"
COMPLETED, FAILED, CANCELLED, TIMEOUT = "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"
ENDED = {COMPLETED, FAILED, CANCELLED, TIMEOUT}

NEVER_RAN = "deleted before it ran"  # the reason of a job that waited until it was deleted


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


class Usage(msgspec.Struct, frozen=True):
    """What a job used in all of its attempts, `mem_gb` of all nodes together; None is not known."""

    seconds: float | None = None
    cpu_seconds: float | None = None
    mem_gb: float | None = None
    joules: float | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A submitted job: its id, where it was submitted, and its run folder, an absolute path.

    That of a job submitted on another `host` is a copy of `remote`, the run folder there (mirror.py).
    """

    id: str
    site: str
    scheduler: str
    job_name: str
    folder: str
    max_attempts: int = 1
    host: str = ""
    remote: str = ""

    @property
    def path(self) -> Path:
        """Return the run folder."""
        return Path(self.folder)

    @property
    def submitted_from(self) -> Path:
        """Return the folder of submission."""
        return self.path.parent.parent

    @property
    def further_ids(self) -> list[str]:
        """Return the ids of the attempts after the first, where each is a job of its own."""
        return (run_folder.read(self.path, run_folder.ATTEMPTS) or "").split()

    @property
    def exit_code(self) -> int | None:
        """Return the exit code that the job script left at its end, or None if it has left none."""
        try:
            return int(run_folder.read(self.path, run_folder.EXIT) or "")
        except ValueError:
            return None

    @property
    def began(self) -> float | None:
        """Return when its last attempt began, in seconds since 1970, or None if the run folder does not say."""
        for name in (run_folder.STARTED, run_folder.ABOUT):
            with suppress(OSError):
                return run_folder.listed(self.path, name).stat().st_mtime
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
    def cancelled(self) -> bool:
        """Whether a user cancelled the job."""
        return (self.path / run_folder.CANCELLED).exists()


class Allocation(msgspec.Struct, frozen=True):
    """Nodes of a running job; cpus and GPUs are per node, `tasks` are those that the user asked the scheduler for."""

    scheduler: str
    job_id: str
    nodes: int
    cpus: int
    gpus: int
    tasks: int | None = None


def note_attempts(folder: Path, ids: Sequence[str]) -> None:
    """Note the ids of further attempts in the run folder, for later questions about the run. Raises SchedulerError."""
    if not ids:
        return
    try:
        with (folder / run_folder.ATTEMPTS).open("a") as file:
            file.writelines(f"{job_id}\n" for job_id in ids)
    except OSError as error:
        raise SchedulerError(f"job {' '.join(ids)} is submitted, but {error.filename}: {error.strerror}") from None


def directive(job: Job, option: str) -> str:
    """Return the value of the last directive of the job's script that fits the pattern `option`, or ""."""
    try:
        text = (job.path / run_folder.SCRIPT).read_text(errors="surrogateescape")
    except OSError:
        return ""
    values = re.findall(rf"^#{option}(\S+)", text, re.MULTILINE)
    return str(values[-1]).strip("\"'") if values else ""


def leading_number(text: str | None) -> int:
    """Return the number that the text begins with, or 0 if it begins with none."""
    found = re.match(r"\d+", text or "")
    return int(found.group()) if found else 0
