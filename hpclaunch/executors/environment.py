"""How submitit's worker learns its place: from the launch contract, the same under every scheduler and launcher.

submitit imports this module in every job of its own as well, through the entry point `job_environment`: keep it light.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from submitit.core.job_environment import JobEnvironment


class HpclaunchJobEnvironment(JobEnvironment):
    """The rank in which the worker runs; active where the script sets SUBMITIT_EXECUTOR=hpclaunch."""

    _env = {
        "num_tasks": "WORLD_SIZE",
        "num_nodes": "HPCLAUNCH_NODES",
        "node": "NODE_RANK",
        "global_rank": "RANK",
        "local_rank": "LOCAL_RANK",
    }

    @property
    def job_id(self) -> str:
        """Return the id of the job, ARRAY_INDEX in an array: the name of its run folder."""
        return Path(os.environ["HPCLAUNCH_RUN_DIR"]).name

    def _requeue(self, countdown: int) -> None:
        subprocess.check_call(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], timeout=60)
