"""How submitit's worker learns its rank: from the launch contract, the same under every scheduler and launcher.

submitit imports this module in its own jobs too, through the entry point `job_environment`: it must stay light.
"""

import os
from pathlib import Path

from submitit.core.job_environment import JobEnvironment
from submitit.core.utils import DelayedSubmission, JobPaths
from submitit.helpers import TorchDistributedEnvironment


class HpclaunchJobEnvironment(JobEnvironment):
    """The rank in which the worker runs; active if the script sets SUBMITIT_EXECUTOR=hpclaunch."""

    _env = {"num_tasks": "WORLD_SIZE", "node": "NODE_RANK", "global_rank": "RANK", "local_rank": "LOCAL_RANK"}

    @property
    def job_id(self) -> str:
        """Return the id of the job, ARRAY_INDEX in an array: the name of its run folder."""
        return Path(os.environ["HPCLAUNCH_RUN_DIR"]).name

    @property
    def num_nodes(self) -> int:
        """Count the nodes of the job."""
        return self.num_tasks // int(os.environ["LOCAL_WORLD_SIZE"])

    @property
    def hostnames(self) -> list[str]:
        """Return the host of each node, in the order of the ranks."""
        return os.environ["HPCLAUNCH_HOSTS"].split()

    def _handle_signals(self, paths: JobPaths, submission: DelayedSubmission) -> None:
        super()._handle_signals(paths, submission)
        # It refuses by default to overwrite the variables of the launch contract, which say the same.
        TorchDistributedEnvironment.export.__defaults__ = (True, True)  # set_cuda_visible_devices, overwrite

    def _requeue(self, countdown: int) -> None:
        from hpclaunch.schedulers import at_hand

        if kind := at_hand(os.environ):
            kind.requeue(os.environ, Path(os.environ["HPCLAUNCH_RUN_DIR"]))
