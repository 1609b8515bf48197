"""Run folders of jobs on other hosts: copies here of what the run folder's protocol names, refreshed at each look.

A copy lies in a folder like that of submission there, of the same name, so that all that reads run folders reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import msgspec

from hpclaunch.schedulers import run_folder
from hpclaunch.schedulers.command import there
from hpclaunch.schedulers.job import FAILED, Job, State

_END = "end.json"  # the state in which a job ended, once the copy is complete
_NOT_COPIED = (run_folder.RUNS, run_folder.NODE_SCRIPT, run_folder.RANK_SCRIPT)  # these hold the job's environment
_NAMES = [
    name.replace("{}", "*")
    for key, name in vars(run_folder).items()
    if key.isupper() and isinstance(name, str) and name not in _NOT_COPIED
]
_OUTPUTS = ("*.out", "*.o[0-9]*", "*.OU")  # of the schedulers' naming, in the folder of submission


def refresh(jobs: Sequence[Job]) -> None:
    """Bring the copies up to date; one rsync serves the jobs of a host. Raises SchedulerError."""
    from hpclaunch.schedulers import ssh

    places: dict[tuple[str, str, Path], list[str]] = {}
    for job in jobs:
        if job.host and not (job.path / _END).exists():
            folder = PurePosixPath(job.remote).parent.parent
            places.setdefault((job.host, str(folder.parent), job.submitted_from.parent), []).extend(
                _filter(job, folder)
            )
    for (host, remote, here), rules in places.items():
        here.mkdir(mode=0o700, parents=True, exist_ok=True)
        # In place: who follows a log sees it grow.
        ssh.rsync(
            host, "-rt", "--inplace", "--filter=. -", f"{host}:{remote}/", f"{here}/", stdin="".join([*rules, "- *\n"])
        )


def _filter(job: Job, folder: PurePosixPath) -> list[str]:
    """Return rsync's rules for the files of one job."""
    top, below = (re.sub(r"[*?\[\\]", r"\\\g<0>", name) for name in (folder.name, f"{run_folder.RUNS}/{job.id}"))
    wanted = [f"/{top}/", f"/{top}/{run_folder.RUNS}/", f"/{top}/{below}/"]
    wanted += [f"/{top}/{below}/{name}{end}" for name in _NAMES for end in ("", "/*")]
    wanted += [f"/{top}/{name}" for name in _OUTPUTS]
    return [f"+ {rule}\n" for rule in wanted] + [f"- /{top}/**\n"]


@contextmanager
def reached(jobs: Sequence[Job]) -> Iterator[None]:
    """Run the scheduler's commands where `jobs`, of one host, were submitted. Raises SchedulerError."""
    refresh(jobs)
    with there(jobs[0].host):
        yield


def states(ask: Callable[[Sequence[Job]], dict[str, State]], jobs: Sequence[Job]) -> dict[str, State]:
    """Return the states of jobs of one host by the scheduler's `ask`, which is spared those known to have ended."""
    found = {job.id: end for job in jobs if (end := _end(job))}
    left = [job for job in jobs if job.id not in found]
    if not left:
        return found
    with reached(left):
        answers = ask(left)
        if ended := [job for job in left if job.id in answers and answers[job.id].ended]:
            refresh(ended)
            answers |= ask(ended)  # what they wrote at their end counts: a further attempt, the exit code
    for job in ended:
        state = answers[job.id]
        # One that failed by no exit code of its own may be requeued yet: a node died, or it was preempted.
        if state.ended and job.path.is_dir() and (state.word != FAILED or job.recorded_end):
            (job.path / _END).write_bytes(msgspec.json.encode(state))
    return found | answers


def _end(job: Job) -> State | None:
    try:
        return msgspec.json.decode((job.path / _END).read_bytes(), type=State)
    except (OSError, msgspec.MsgspecError):
        return None
