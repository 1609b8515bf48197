"""Rehearsals: the script that a site would get, run on this machine with stand-ins for what only a cluster has.

The stand-ins are as unkind as the real programs: their habits were seen on OpenPBS 23.06 and Slurm 22.05. They are
started with the standard library only, so what they load imports nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan

SCHEDULERS = {"pbs": "hpclaunch.rehearsal.pbs", "slurm": "hpclaunch.rehearsal.slurm"}


def rehearse(plan: Plan, script: str) -> int:
    """Run the job script of `plan` here, its further attempts too; return the exit code.

    What the job prints is shown, and kept where the scheduler would keep it. Raises HpclaunchError if the scheduler
    has no stand-in.
    """
    import sys
    import tempfile
    from importlib import import_module
    from pathlib import Path

    from hpclaunch.errors import HpclaunchError

    scheduler = plan.site.scheduler
    if scheduler not in SCHEDULERS:
        raise HpclaunchError(f"there is no rehearsal for scheduler {scheduler}; use `hpclaunch run` without --site")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="hpclaunch-rehearsal-") as folder:
        code: int = import_module(SCHEDULERS[scheduler]).rehearse(plan, script, Path(folder))
    return code
