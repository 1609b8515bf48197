"""A submitit job that lives in a run folder, and what asks for its state."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from submitit.core import core, utils

from hpclaunch import schedulers
from hpclaunch.runs import registry
from hpclaunch.runs.registry import Run
from hpclaunch.runs.watch import Watch
from hpclaunch.schedulers import run_folder
from hpclaunch.schedulers.job import UNKNOWN, State


class RunPaths(utils.JobPaths):
    """The paths of submitit's files, with script and logs in our run folder."""

    def __init__(self, folder: Path | str, job_id: str, task_id: int | None, run_path: Path) -> None:
        super().__init__(folder, job_id=job_id, task_id=task_id)
        self.run_path = run_path

    @property
    def submission_file(self) -> Path:
        """The job script."""
        return self.run_path / run_folder.SCRIPT

    @property
    def stdout(self) -> Path:
        """What the rank printed."""
        rank, name = self.task_id or 0, run_folder.RANK_LOG
        return run_folder.logs(self.run_path, name, rank).get(rank, self.run_path / name.format(rank))

    @property
    def stderr(self) -> Path:
        """What it wrote to stderr."""
        return self.stdout.with_suffix(".err")


class Watcher(Watch):
    """Ask for all jobs of a scheduler at once, not more often than the profiles' `poll`, in submitit's way."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: dict[str, Run] = {}

    def add(self, run: Run) -> None:
        """Watch a run too."""
        self.runs[run.id] = run
        super().add(run)

    def get_info(self, job_id: str, mode: str = "standard") -> dict[str, str]:
        """Return state, reason and nodes of a job; `force` asks the scheduler, `cache` looks nowhere."""
        if mode != "cache":
            self.look(force=mode == "force")
        run = self.runs[job_id]
        state = self.states.get((run.site, run.id), State(UNKNOWN))
        return {"State": state.word, "Reason": state.reason, "NodeList": state.hosts}

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """Return our word for the job's state."""
        return self.get_info(job_id, mode=mode)["State"]

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Tell whether the job has ended or is unknown to its scheduler, so that no result will come."""
        self.get_info(job_id, mode)
        return self.over(self.runs[job_id])


class ScriptJob(core.Job[Any]):
    """A submitit job that lives in a run folder, under any scheduler."""

    watcher = Watcher()  # type: ignore[assignment]  # all that submitit calls is there

    def __init__(self, folder: Path | str, job_id: str, tasks: Sequence[int] = (0,)) -> None:
        super().__init__(folder, job_id, tasks)
        self._paths = RunPaths(folder, job_id, self.task_id, self.run.path)

    @property
    def run(self) -> Run:
        """Return the job's run. Raises HpclaunchError if another process submitted it and it is not known."""
        if self.job_id not in self.watcher.runs:
            folder = getattr(self._paths, "run_path", self._paths.folder)
            self.watcher.add(registry.read(folder / run_folder.RUN) or registry.find([self.job_id])[0])
        return self.watcher.runs[self.job_id]

    def results(self) -> list[Any]:
        """Return each rank's result. Raises what a rank raised, rather than that the others were killed for it."""
        self.wait()
        if not self._sub_jobs:
            return super().results()
        results = {rank.task_id: rank.result() for rank in self._finished_first()}
        return [results[rank.task_id] for rank in self._sub_jobs]

    def exception(self) -> utils.UncompletedJobError | None:
        """Return what a rank raised, or else that one was killed; None if all came back."""
        self.wait()
        if not self._sub_jobs:
            return super().exception()
        return next((error for rank in self._finished_first() if (error := rank.exception())), None)

    def cancel(self, check: bool = True) -> None:
        """Cancel the job through its scheduler."""
        schedulers.scheduler(self.run.scheduler).cancel([self.run])

    def _finished_first(self) -> list[core.Job[Any]]:
        """Return the ranks, those first that left a result: submitit waits 15 s for each other one's."""
        return sorted(self._sub_jobs, key=lambda rank: not rank.paths.result_pickle.exists())

    def _register_in_watcher(self) -> None:
        assert self.run  # noqa: S101 - finding it registers it
