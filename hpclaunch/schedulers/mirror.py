"""Run folders of jobs on other hosts: copies here of what the run folder's protocol names, refreshed at each look.

A copy lies in a folder like that of submission there, of the same name, so that all that reads run folders reads it.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import msgspec

from hpclaunch.schedulers import run_folder, ssh
from hpclaunch.schedulers.job import FAILED, Job, State

_END = "end.json"  # the state in which a job ended, once the copy is complete
_NOT_COPIED = (run_folder.RUNS, run_folder.NODE_SCRIPT, run_folder.RANK_SCRIPT)  # these hold the job's environment
_OUTPUTS = ("*.out", "*.o[0-9]*", "*.OU")  # of the schedulers' naming, in the folder of submission
_refreshed: dict[tuple[str, Path], float] = {}  # when, by host and folder


def refresh(jobs: Iterable[Job], every: float = 0) -> None:
    """Bring the copies up to date, unless that is less than `every` seconds ago; one rsync serves the jobs of a host.

    Raises SchedulerError.
    """
    rules: dict[tuple[str, Path], list[str]] = {}
    for job in jobs:
        if job.host and not (job.path / _END).exists():
            there = PurePosixPath(job.remote).parents[2]
            rules.setdefault((f"{job.host}:{there}/", job.submitted_from.parent), []).extend(_rules(job))
    for (source, folder), lines in rules.items():
        if time.monotonic() - _refreshed.get((source, folder), float("-inf")) >= every:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # In place: who follows a log sees it grow.
            words = ("-rt", "--inplace", "--filter=. -", source, f"{folder}/")
            ssh.rsync(source.partition(":")[0], *words, stdin="".join([*lines, "- *\n"]))
            _refreshed[source, folder] = time.monotonic()


def _rules(job: Job) -> list[str]:
    """Return rsync's rules for the files of one job."""
    protocol = [name for key, name in vars(run_folder).items() if key.isupper() and name not in _NOT_COPIED]
    top, runs, own = (re.sub(r"[*?\[\\]", r"\\\g<0>", part) for part in job.path.parts[-3:])
    files = [f"{runs}/", f"{runs}/{own}/", *(f"{runs}/{own}/{str(name).replace('{}', '*')}" for name in protocol)]
    # The last is the folder of a node's ranks.
    wanted = [f"/{top}/", *(f"/{top}/{name}" for name in (*files, *_OUTPUTS, f"{runs}/{own}/node-*/*"))]
    return [*(f"+ {rule}\n" for rule in wanted), f"- /{top}/**\n"]


@contextmanager
def reached(jobs: Sequence[Job]) -> Iterator[None]:
    """Run the scheduler's commands where `jobs`, of one host, were submitted. Raises SchedulerError."""
    refresh(jobs)
    with ssh.there(jobs[0].host):
        yield


def states(ask: Callable[[Sequence[Job]], dict[str, State]], jobs: Sequence[Job]) -> dict[str, State]:
    """Return the states of jobs of one host by the scheduler's `ask`, which is spared those known to have ended."""
    found = {
        job.id: msgspec.json.decode(end.read_bytes(), type=State) for job in jobs if (end := job.path / _END).exists()
    }
    if left := [job for job in jobs if job.id not in found]:
        with reached(left):
            found |= ask(left)
            if ended := [job for job in left if job.id in found and found[job.id].ended]:
                refresh(ended)
                found |= ask(ended)  # what they wrote at their end counts: a further attempt, the exit code
        for job in ended:
            # One that failed by no exit code of its own may be requeued yet: a node died, or it was preempted.
            if found[job.id].ended and job.path.is_dir() and (found[job.id].word != FAILED or job.recorded_end):
                (job.path / _END).write_bytes(msgspec.json.encode(found[job.id]))
    return found
