"""Submit a plan's job script, and name the option to look at if the scheduler refuses."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hpclaunch.errors import SchedulerError
from hpclaunch.runs import registry
from hpclaunch.runs.registry import Run
from hpclaunch.schedulers.run_folder import RUNS

if TYPE_CHECKING:  # submitit imports this module in every job of its own
    from hpclaunch.job.plan import Plan


def hand_over(plan: Plan, script: str, after: Sequence[str] = (), name: str = "") -> list[str]:
    """Submit a script from the current folder; return the id, and its further attempts' if these are submitted with it.

    `name` is the job's if the script has none. Raises SchedulerError, with the option to look at, and RequestError
    for a variable to pass on that is not set here.
    """
    plan.request.check_passed(os.environ)
    try:
        if plan.max_attempts > 1 and plan.scheduler.resubmits and not plan.site.resubmit:
            return plan.scheduler.submit_all(script, plan.max_attempts, Path(RUNS).absolute(), after)
        return [plan.scheduler.submit(script, after, name)]
    except SchedulerError as error:
        raise SchedulerError(*str(error).splitlines(), *blame(plan, str(error))) from None


def note(plan: Plan, script: str, ids: Sequence[str]) -> Run:
    """Fill the run folder of a job that was just submitted and register it; warn of what cannot be written."""
    run = run_of(plan, ids[0])
    registry.record(run, script, plan.hidden(), ids[1:])
    return run


def run_of(plan: Plan, job_id: str) -> Run:
    """Return the registry's entry for a job of this plan."""
    folder = str(Path(RUNS, job_id).absolute())
    return msgspec.convert(plan.about | {"id": job_id, "folder": folder, "submitted": time.time()}, Run)


def blame(plan: Plan, answer: str) -> list[str]:
    """Name the option and the profile's key that led to the scheduler's refusal, if it is a known one."""
    from hpclaunch.runs import messages

    known = messages.combined(plan.site.scheduler, plan.site.messages)
    if (found := messages.refusal(known, answer)) is None:
        return []
    key = found.key.replace("{partition}", plan.partition_name)
    return [f"look at {found.option}, or at {key} in the profile of {plan.name}"]
