"""submitit's executor for Slurm, made from a plan."""

from __future__ import annotations

import submitit

from hpclaunch.executors.script import ScriptExecutor, ScriptJob, Watcher


class SlurmJob(ScriptJob):
    """A job under Slurm."""

    scheduler = "slurm"
    watcher = Watcher()


class SlurmExecutor(ScriptExecutor, submitit.SlurmExecutor):
    """submitit's Slurm executor over our script; several jobs at once are one array."""

    job_class = SlurmJob  # type: ignore[assignment]

    def _directives(self, count: int) -> list[str]:
        array = [f"--array={self._indices(count)}"] if count > 1 else []
        return ["--signal=USR2@90", *array]

    def _array_ids(self, array: str, count: int) -> list[str]:
        return [f"{array}_{index}" for index in range(count)]
