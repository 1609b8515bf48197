"""Rehearsals: the script that a site would get, run on this machine with stand-ins for what only a cluster has.

The stand-ins have the habits of OpenPBS 23.06 and Slurm 22.05, as they were seen there. They run with the standard
library only, so that they start fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan

REHEARSALS = {"pbs": "hpclaunch.rehearsal.pbs", "slurm": "hpclaunch.rehearsal.slurm"}


def rehearse(plan: Plan, script: str) -> int:
    """Run the job script of `plan` here, its further attempts too; return the exit code.

    What the job prints is shown, and is also in the file that the scheduler would write. Raises HpclaunchError if the
    scheduler has no rehearsal.
    """
    import sys
    import tempfile
    from importlib import import_module
    from pathlib import Path

    from hpclaunch.errors import HpclaunchError

    scheduler = plan.site.scheduler
    if scheduler not in REHEARSALS:
        raise HpclaunchError(f"there is no rehearsal for scheduler {scheduler}; use `hpclaunch run` without --site")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="hpclaunch-rehearsal-") as folder:
        code: int = import_module(REHEARSALS[scheduler]).rehearse(plan, script, Path(folder))
    return code
