"""submitit's executor for PBS, as `submitit.AutoExecutor(folder, cluster="pbs")` makes it.

submitit imports this module in every job of its own: it must stay light.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from hpclaunch.executors.parameters import plan_of
from hpclaunch.executors.script import ScriptExecutor

GENERIC_SITE = "pbs"


class PbsExecutor(ScriptExecutor):
    """The executor of submitit's AutoExecutor for PBS; its parameter `site` is by default the generic profile."""

    def __init__(self, folder: Path | str, max_num_timeout: int = 3) -> None:
        # submitit's default is one task, whatever there is of GPUs
        super().__init__(plan_of({"site": GENERIC_SITE, "tasks_per_node": 1}), folder)
        self.max_num_timeout = max_num_timeout

    @classmethod
    def affinity(cls) -> int:
        """Tell AutoExecutor whether this machine has PBS; Grid Engine, which has a qsub too, is known by its qconf."""
        return 2 if shutil.which("qsub") and not shutil.which("qconf") else -1
