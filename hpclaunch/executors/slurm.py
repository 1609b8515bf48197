"""submitit's executor for Slurm, made from a plan."""

from __future__ import annotations

import submitit

from hpclaunch.executors.script import ScriptExecutor


class SlurmExecutor(ScriptExecutor, submitit.SlurmExecutor):
    """Our executor as a submitit.SlurmExecutor, for libraries that look for one."""

    job_class = ScriptExecutor.job_class  # type: ignore[assignment]
