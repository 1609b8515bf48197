"""The machine at hand in place of a scheduler: a process for each run, its exit code in a file."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hpclaunch.errors import SchedulerError
from hpclaunch.paths import shipped, write_whole
from hpclaunch.schedulers import Scheduler, run_folder
from hpclaunch.schedulers.job import CANCELLED, COMPLETED, FAILED, PENDING, RUNNING, UNKNOWN, Job, State


class Local(Scheduler):
    """No scheduler: this machine."""

    prefix = "LOCAL"
    here = True

    def submit(self, script: str, after: Sequence[str] = (), name: str = "") -> str:
        """Start the script in the background, in a new run folder below the current one."""
        while (folder := Path(run_folder.RUNS, run_folder.new_name("local")).absolute()).exists():
            pass
        job_id = folder.name
        try:
            folder.mkdir(parents=True)
            write_whole(folder / run_folder.SCRIPT, script.encode(errors="surrogateescape"))
        except OSError as error:
            raise SchedulerError(f"{folder}: cannot be written: {error.strerror}") from None
        pairs = (before.split(":", 1) for before in after)
        earlier = [f"{kind}:{Path(run_folder.RUNS, one).absolute()}" for kind, one in pairs]
        keeper = subprocess.Popen(
            ["bash", "-c", (shipped("templates") / "keeper.sh").read_text(), "keeper", str(folder), *earlier],
            env={**os.environ, "HPCLAUNCH_JOB_ID": job_id},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while not Path(f"/proc/{keeper.pid}/cmdline").read_bytes() and keeper.poll() is None:
            time.sleep(0.001)  # a program that has just started has no name yet, and would pass for another one
        (folder / run_folder.PID).write_text(str(keeper.pid))
        (folder / run_folder.HOST).write_text(os.uname().nodename)
        return job_id

    def states(self, jobs: Sequence[Job]) -> dict[str, State]:
        """Read the run folders; without its keeper and an exit code it was killed."""
        return {job.id: _state(job) for job in jobs if job.path.is_dir()}

    def cancel(self, jobs: Sequence[Job]) -> None:
        """End the jobs as Ctrl-C does, with time to save."""
        for job in jobs:
            if not job.path.is_dir():
                raise SchedulerError(f"{job.path} is gone, and with it the number of its process; look with ps")
            if (state := _state(job)).word == UNKNOWN:
                raise SchedulerError(f"{job.id}: {state.reason}; cancel it there")
            if not state.ended:
                (job.path / run_folder.CANCELLED).touch()
                with suppress(ProcessLookupError):
                    os.kill(int((job.path / run_folder.PID).read_text()), signal.SIGTERM)

    def interactive(self, script: Path) -> list[str]:
        """Return a bash on this machine."""
        return ["bash", "--rcfile", str(script), "-i"]


def _state(job: Job) -> State:
    if end := _end(job):
        return end
    host = run_folder.read(job.path, run_folder.HOST)
    if host not in (None, os.uname().nodename):  # machines may share a home folder
        return State(UNKNOWN, f"it runs on {host}")
    with suppress(OSError, ValueError):
        pid = int((job.path / run_folder.PID).read_text())
        if os.fsencode(job.id) in Path(f"/proc/{pid}/cmdline").read_bytes():
            return State(RUNNING) if (job.path / run_folder.STARTED).exists() else State(PENDING, "Dependency")
    # The exit code is looked for once more after the process is found gone: it may have come in between.
    return _end(job) or State(CANCELLED if job.cancelled else FAILED, "its process is gone")


def _end(job: Job) -> State | None:
    if (code := job.exit_code) is not None:
        return State(CANCELLED if job.cancelled else FAILED if code else COMPLETED, "", code)
    never = run_folder.read(job.path, run_folder.EXIT) == "-\n"
    return State(CANCELLED, "DependencyNeverSatisfied") if never else None
