"""submitit executors whose job script is ours, with submitit's worker as its command."""

from __future__ import annotations

import shlex
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import submitit
from msgspec import structs
from submitit.core import core, utils

from hpclaunch import schedulers
from hpclaunch.plan import Plan
from hpclaunch.render import render
from hpclaunch.runs import UNKNOWN, Run, record

# submitit counts a job as timed out once it ran T - 10 min: a job of 10 minutes from its first second on.
_SUBMITIT_MARGIN_MIN = 10


class RunPaths(utils.JobPaths):
    """submitit's files in our run folder; a rank's log has its stdout and its stderr."""

    @property
    def submission_file(self) -> Path:
        """The job script."""
        return self.folder / "job.sh"

    @property
    def stdout(self) -> Path:
        """The rank's log."""
        return self.folder / f"rank-{self.task_id}.log"

    @property
    def stderr(self) -> Path:
        """What it wrote to stderr alone."""
        return self.stdout.with_suffix(".err")


class Watcher(core.InfoWatcher):
    """Ask one scheduler for all its jobs at once."""

    def __init__(self, scheduler: str) -> None:
        super().__init__(delay_s=60)
        self.scheduler = scheduler
        self.folders: dict[str, Path] = {}

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """Return our word for the job's state."""
        return self.get_info(job_id, mode=mode).get("State") or UNKNOWN

    def update(self) -> None:
        """Ask for every job that has not ended; submitit's own is not called, so its traps are not there."""
        asked = sorted(self._registered - self._finished)
        if asked:
            self._num_calls += 1
            asking = [
                Run(id=i, site="", scheduler=self.scheduler, job_name="", folder=str(self.folders[i]), submitted=0)
                for i in asked
            ]
            for job_id, state in schedulers.scheduler(self.scheduler).states(asking).items():
                self._info_dict[job_id] = {"State": state.word, "Reason": state.reason, "NodeList": state.hosts}
                if state.ended:
                    self._finished.add(job_id)
        self._last_status_check = time.time()


class ScriptJob(core.Job[Any]):
    """A submitit job that lives in a run folder."""

    def __init__(self, folder: Path | str, job_id: str, tasks: Sequence[int] = (0,)) -> None:
        self.watcher.folders[job_id] = Path(str(folder).replace("%j", job_id))
        super().__init__(folder, job_id, tasks)
        self._paths = RunPaths(folder, job_id=job_id, task_id=self.task_id)

    watcher: Watcher

    def cancel(self, check: bool = True) -> None:
        """Cancel the job through its scheduler."""
        run = Run(id=self.job_id, site="", scheduler="", job_name="", folder=str(self.paths.folder), submitted=0)
        schedulers.scheduler(self.watcher.scheduler).cancel([run])


class SlurmJob(ScriptJob):
    """A job under Slurm."""

    watcher = Watcher("slurm")


class LocalJob(ScriptJob):
    """A job on this machine."""

    watcher = Watcher("local")


class ScriptExecutor(core.PicklingExecutor):
    """Submits a plan's script: as it is, or with submitit's worker as the command."""

    job_class: type[ScriptJob] = ScriptJob

    def __init__(self, folder: Path | str, plan: Plan) -> None:
        # Not super(): submitit's Slurm executor wants srun on PATH, which a laptop that renders does not have.
        core.PicklingExecutor.__init__(self, folder)
        self.plan = plan
        self.parameters = {"timeout_min": max(plan.seconds / 60, plan.seconds / 120 + _SUBMITIT_MARGIN_MIN)}

    def submit_script(self, script: str, after: Sequence[str] = ()) -> ScriptJob:
        """Submit a finished script; the job has no result, but a state, logs and cancel()."""
        return self._made(schedulers.scheduler(self.plan.site.scheduler).submit(script, after), script)

    def run_of(self, job_id: str) -> Run:
        """Return the registry's entry for one of this executor's jobs."""
        plan = self.plan
        return Run(
            id=job_id,
            site=plan.name,
            scheduler=plan.site.scheduler,
            job_name=plan.job_name,
            folder=str(self.folder).replace("%j", job_id),
            submitted=time.time(),
            partition=plan.partition_name,
            nodes=plan.nodes,
            tasks_per_node=plan.tasks_per_node,
            seconds=plan.seconds,
        )

    def _made(self, job_id: str, script: str) -> ScriptJob:
        record(self.run_of(job_id), script, self.plan)
        return self.job_class(self.folder, job_id, range(self._num_tasks()))

    def _script(self, count: int = 1) -> str:
        """Render the script whose command is submitit's worker; for more than one job as an array."""
        request = self.plan.request
        settings = {"SUBMITIT_EXECUTOR": "hpclaunch", "HPCLAUNCH_NODES": str(self.plan.nodes)}
        plan = structs.replace(
            self.plan,
            command=shlex.split(self._submitit_command_str),
            request=structs.replace(request, env=request.env | settings, command=[sys.executable]),
            directives=[*self.plan.directives, *self._directives(count)],
        )
        return render(plan)

    def _directives(self, count: int) -> list[str]:
        return []

    @property
    def _submitit_command_str(self) -> str:
        return shlex.join([sys.executable, "-u", "-m", "submitit.core._submit", str(self.folder)])

    def _submit_command(self, command: str) -> ScriptJob:
        return self.submit_script(self._script())

    def _num_tasks(self) -> int:
        return self.plan.world_size

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        return self._script()

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        raise NotImplementedError("submit_script submits")

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        raise NotImplementedError("submit_script submits")

    @classmethod
    def affinity(cls) -> int:
        """Say nothing to AutoExecutor: this executor is made from a plan."""
        return -1


class SlurmExecutor(ScriptExecutor, submitit.SlurmExecutor):
    """submitit's Slurm executor over our script; several jobs at once are one array."""

    job_class = SlurmJob  # type: ignore[assignment]

    def _directives(self, count: int) -> list[str]:
        array = [f"--array=0-{count - 1}"] if count > 1 else []
        return ["--signal=USR2@90", *array]

    def _internal_process_submissions(self, delayed_submissions: list[utils.DelayedSubmission]) -> list[core.Job[Any]]:
        if len(delayed_submissions) == 1:
            return core.PicklingExecutor._internal_process_submissions(self, delayed_submissions)
        root = utils.JobPaths.get_first_id_independent_folder(self.folder)
        root.mkdir(parents=True, exist_ok=True)
        pickles = []
        for delayed in delayed_submissions:
            delayed.set_timeout(self.parameters["timeout_min"], self.max_num_timeout)
            pickles.append(root / f"{uuid.uuid4().hex}.pkl")
            delayed.dump(pickles[-1])
        script = self._script(len(pickles))
        array = schedulers.scheduler("slurm").submit(script, ())
        jobs: list[core.Job[Any]] = []
        for index, pickle in enumerate(pickles):
            job = self._made(f"{array}_{index}", script)
            job.paths.move_temporary_file(pickle, "submitted_pickle")
            jobs.append(job)
        return jobs


class LocalExecutor(ScriptExecutor):
    """The same on this machine."""

    job_class = LocalJob


EXECUTORS: dict[str, type[ScriptExecutor]] = {"slurm": SlurmExecutor, "local": LocalExecutor}
