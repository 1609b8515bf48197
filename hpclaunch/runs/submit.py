"""From a plan to a run, and which option to look at where the scheduler refuses."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hpclaunch import schedulers
from hpclaunch.errors import SchedulerError
from hpclaunch.runs import registry
from hpclaunch.runs.registry import Run

if TYPE_CHECKING:  # submitit imports this module in every job of its own
    from hpclaunch.job.plan import Plan


def hand_over(plan: Plan, script: str, after: Sequence[str] = (), name: str = "") -> list[str]:
    """Submit a script from the current folder; return the id, and its further attempts' if these are submitted with it.

    `name` is the job's where the script has none. Raises SchedulerError, with the option to look at, and RequestError
    for a variable to pass on that is not set here.
    """
    plan.request.check_passed(os.environ)
    try:
        if plan.max_attempts > 1 and plan.site.scheduler == "pbs" and not plan.site.resubmit:
            from hpclaunch.schedulers import pbs

            return pbs.submit_all(script, plan.max_attempts, Path(registry.FOLDER).absolute(), after)
        return [schedulers.scheduler(plan.site.scheduler).submit(script, after, name)]
    except SchedulerError as error:
        raise SchedulerError(*str(error).splitlines(), *blame(plan, str(error))) from None


def note(plan: Plan, script: str, ids: Sequence[str]) -> Run:
    """Fill the run folder of a job that was just submitted and register it; warn of what cannot be written."""
    run = run_of(plan, ids[0])
    registry.record(run, script, plan.hidden(), ids[1:])
    return run


def run_of(plan: Plan, job_id: str) -> Run:
    """Return the registry's entry for a job of this plan."""
    folder = str(Path(registry.FOLDER, job_id).absolute())
    return msgspec.convert(plan.about | {"id": job_id, "folder": folder, "submitted": time.time()}, Run)


# What qsub says, a site's hooks in their own words, and the key of the profile or option to look at.
_BLAME_PBS = {
    r"project|account": ("account", "--account"),
    r"storage|gdata": ("storage", "--storage"),
    r"jobfs": ("partitions.{partition}.jobfs_gb_per_node", "the sizes"),
    r"ncpus.*ngpus": ("partitions.{partition}.cpus_per_gpu", "--cpus-per-task and --gpus-per-node"),
    r"ncpus|mpiprocs": ("partitions.{partition}.cores_per_node", "--cpus-per-task"),
    r"ngpus": ("partitions.{partition}.gpus_per_node", "--gpus-per-node"),
    r"walltime": ("partitions.{partition}.walltime", "--walltime"),
    r"\bmem\b|memory": ("partitions.{partition}.mem_gb_per_node", "--mem-gb"),
    r"\bselect\b|unknown resource": ("template", "--directive"),
    r"queue and/or server resource limits": ("partitions.{partition}.walltime, max_cores", "the sizes"),
    r"queue": ("partitions.{partition}.directives", "--partition"),
}
# What sbatch says, and the key of the profile or option to look at.
_BLAME = {
    # Both come with "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)".
    "submitjob": ("partitions.{partition}.qos", "--qos and the number of your jobs (hpclaunch jobs)"),
    "maxwall": ("partitions.{partition}.walltime, qos", "--walltime and --qos"),
    "accounting/qos policy": ("partitions.{partition}.qos", "--qos and the sizes"),
    # Slurm 22.05 says "Requested node configuration is not available" after either.
    "memory": ("partitions.{partition}.mem_gb_per_node", "--mem-gb"),
    "cpu count": ("partitions.{partition}.cores_per_node", "--cpus-per-task and --tasks-per-node"),
    "account": ("account", "--account"),
    "qos": ("partitions.{partition}.qos", "--qos"),
    "node configuration": ("partitions.{partition}.gpus_per_node, cores_per_node, directives", "the sizes"),
    "partition": ("partitions.{partition}.directives", "--partition"),
    "feature": ("partitions.{partition}.directives", "--partition"),
    "gres": ("partitions.{partition}.gpus_per_node", "--gpus-per-node"),
    "time limit": ("partitions.{partition}.walltime, qos", "--walltime"),
}


def blame(plan: Plan, said: str) -> list[str]:
    """Name the profile's key that led to what the scheduler said, where it can be told."""
    for word, (key, option) in (_BLAME_PBS if plan.site.scheduler == "pbs" else _BLAME).items():
        if re.search(word, said.lower()):
            return [
                f"look at {option}, or at {key.format(partition=plan.partition_name)} in the profile of {plan.name}"
            ]
    return []
