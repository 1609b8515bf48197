"""What differs between schedulers, as one object for each; a further scheduler is a further folder, or a package.

A package from outside names its subclass of `Scheduler` by an entry point of the group `hpclaunch.schedulers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hpclaunch.errors import HpclaunchError, SchedulerError, did_you_mean
from hpclaunch.schedulers import run_folder
from hpclaunch.schedulers.job import UNKNOWN, Allocation, Job, State, Usage

if TYPE_CHECKING:
    from hpclaunch.schedulers.machine import Machine

Key = tuple[str, str]  # a job's site and id
Group = tuple[str, str, str]  # of jobs that one question covers
J = TypeVar("J", bound=Job)

# Slurm before PBS: some Slurm sites have a qstat of Slurm's own.
SCHEDULERS = {
    "slurm": "hpclaunch.schedulers.slurm:Slurm",
    "pbs": "hpclaunch.schedulers.pbs:Pbs",
    "local": "hpclaunch.schedulers.local:Local",
}
ENTRY_POINTS = "hpclaunch.schedulers"
# The GPUs that a process may use; HIP reads the first too.
VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


class Scheduler:
    """One scheduler. A subclass must have `submit`, `states` and `cancel`; the rest has an answer that fits many."""

    name = ""  # as in a profile's `scheduler`
    prefix = ""  # its directives begin with # and this word: PBS, SBATCH
    here = False  # jobs run on this machine, at once: no queue, no walltime, no price
    starts_ranks = False  # its own command starts programs on all nodes and ends them together (srun)
    gives_range = False  # a job may request a range of nodes, and gets what is free
    resubmits = False  # each further attempt is a job of its own, with its own id; else the same job is requeued
    lightning_requeues = False  # Lightning saves and requeues the job by itself
    output_at_end = False  # the job's own output is there only once it has ended
    job_variable = ""  # holds the id of the job in which a program runs
    host_variables: tuple[str, ...] = ("HOSTNAME", "TMPDIR", *VISIBLE_DEVICES)  # differ from node to node
    own_variables: frozenset[str] = frozenset()  # set by the scheduler in every job: a user cannot
    interactive_names: frozenset[str] = frozenset()  # job names that Lightning takes for an interactive shell
    account_directive = ""  # charges a job to {account}
    array_directives: tuple[str, ...] = ()  # request an array; {} are its indices. Without them there are none
    array_lists = False  # the indices may be a list, as 1,3,7
    array_index = "SLURM_ARRAY_TASK_ID"  # holds a job's index; without arrays as Slurm's, for programs that read it
    signal_directive = ""  # asks for submitit's signal before the walltime; without one the job script sends it
    ids = "", ""  # a pattern of its jobs' ids, and what to use; "" if all its jobs are runs of ours
    needs: tuple[str, ...] = ()  # commands of a login node
    useful: tuple[str, ...] = ()  # commands without which less is known

    def submit(self, script: str, after: Sequence[str] = (), name: str = "") -> str:
        """Submit the text of a job script from the current folder, to start after `after`; return its id.

        `after` has afterok:ID, afterany:ID, afternotok:ID, `name` is for a script without one. Raises SchedulerError.
        """
        raise NotImplementedError

    def submit_all(self, script: str, attempts: int, runs: Path, after: Sequence[str], name: str) -> list[str]:
        """Submit a job and its further attempts, if jobs cannot; return the ids. `runs` has the run folders."""
        return [self.submit(script, after, name)]

    def mail(self, address: str, events: str) -> list[str]:
        """Return the directives that have mail sent at `events`, as begin,end,fail; none if it sends no mail."""
        return []

    def states(self, jobs: Sequence[Job]) -> dict[str, State]:
        """Ask for all `jobs` at once; an id that the scheduler does not know is absent. Raises SchedulerError."""
        raise NotImplementedError

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Cancel `jobs`, leaving those that have ended. Raises SchedulerError."""
        raise NotImplementedError

    def usage(self, job: Job) -> Usage:
        """Return what the job has used by the scheduler's accounting. Raises SchedulerError."""
        return Usage()

    def interactive(self, script: Path) -> list[str]:
        """Return the command that requests the nodes of the script's directives and opens a shell that reads it.

        The script is below the current folder. Raises SchedulerError if there are no interactive jobs.
        """
        raise SchedulerError(f"{self.name} has no interactive jobs; use hpclaunch submit")

    def requeue(self, environment: Mapping[str, str], folder: Path) -> None:
        """Start the job at hand again after its end; `folder` is its run folder. Raises SchedulerError."""
        raise SchedulerError(f"{self.name} does not start a job again; submit it again")

    def output(self, job: Job) -> Path | None:
        """Return the file of what the job script itself printed, or None if it is not there."""
        path = job.path / run_folder.OUTPUT
        return path if path.is_file() else None

    def array_ids(self, array: str, indices: Iterable[int]) -> list[str]:
        """Return the ids of the jobs of an array with these indices."""
        return []

    def allocation(self, environment: Mapping[str, str]) -> Allocation:
        """Return the nodes of the job at hand. Raises HpclaunchError."""
        raise HpclaunchError(f"launch: {self.name} does not say which nodes a job has")

    def ping(self, seconds: float) -> str:
        """Ask the scheduler's daemon whether it is there; return what it is. Raises SchedulerError."""
        return ""

    def closed(self, partition: str, seconds: float) -> str:
        """Return why a partition takes or starts no jobs, or "". Raises SchedulerError if it is not known."""
        return ""

    def accounts(self) -> tuple[list[str], bool]:
        """Return this user's accounts, and whether there are no others. Raises SchedulerError."""
        return [], False

    def try_script(self, script: str, seconds: float) -> str:
        """Let the scheduler check a script without submitting it; return how. Raises SchedulerError if it refuses."""
        return ""

    def detect(self) -> Machine:
        """Describe the machine for a first profile. Raises SchedulerError."""
        raise SchedulerError("it does not describe its machine")


@cache
def scheduler(name: str) -> Scheduler:
    """Return the scheduler of this name. Raises HpclaunchError if there is none."""
    where = SCHEDULERS.get(name) or installed().get(name)
    if where is None:
        raise HpclaunchError(f"no scheduler {name!r}{did_you_mean(name, known())}")
    module, _, kind = where.partition(":")
    try:
        found: Scheduler = getattr(import_module(module), kind)()
    except Exception as error:
        if name in SCHEDULERS:
            raise
        raise HpclaunchError(f"scheduler {name}: {where} cannot be used: {type(error).__name__}: {error}") from None
    found.name = name
    return found


def installed() -> dict[str, str]:
    """Return the schedulers that other packages bring: name to MODULE:CLASS."""
    from importlib.metadata import entry_points

    return {entry.name: entry.value for entry in entry_points(group=ENTRY_POINTS)}


def known() -> list[str]:
    """List the names of all schedulers."""
    return [*SCHEDULERS, *installed()]


def at_hand(environment: Mapping[str, str]) -> Scheduler | None:
    """Return the scheduler in whose job this process runs, or None outside of one."""
    return next((kind for kind in map(scheduler, known()) if kind.job_variable in environment), None)


def groups(jobs: Iterable[J]) -> dict[Group, list[J]]:
    """Group jobs that one question covers: by scheduler, host, and the server in which the ids of PBS jobs end."""
    found: dict[Group, list[J]] = {}
    for job in jobs:
        found.setdefault((job.scheduler, job.host, job.id.partition(".")[2]), []).append(job)
    return found


def states(jobs: Sequence[Job]) -> tuple[dict[Key, State], list[HpclaunchError]]:
    """Return the state of each job by (site, id), and the errors of schedulers that left a state unknown.

    Each scheduler is asked once. If it says nothing of a job, the run folder's record counts; else the job is UNKNOWN,
    without a reason if the scheduler did answer.
    """
    found: dict[Key, State] = {}
    errors: list[HpclaunchError] = []
    for (name, host, _), mine in groups(jobs).items():
        answers: dict[str, State] = {}
        unknown, failure = State(UNKNOWN), None
        try:
            if host:
                from hpclaunch.schedulers import mirror

                answers = mirror.states(scheduler(name).states, mine)
            else:
                answers = scheduler(name).states(mine)
        except HpclaunchError as error:
            unknown, failure = State(UNKNOWN, f"no answer from {name}"), error
        told = {(job.site, job.id): answers.get(job.id) or job.recorded_end or unknown for job in mine}
        if failure and unknown in told.values():
            errors.append(failure)
        found |= told
    return found, errors
