"""What a site refuses or silently mishandles, found before anything is submitted.

A check reads the plan and the profile's figures, never a site's name. Where a profile lists a key as
unconfirmed, its checks warn and do not refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import structs

from hpclaunch.checks import limits, sizes, words
from hpclaunch.checks.finding import Check, Finding, judged
from hpclaunch.errors import did_you_mean

if TYPE_CHECKING:
    from hpclaunch.plan import Plan
    from hpclaunch.request import Request
    from hpclaunch.site import Profile

__all__ = ["CHECKS", "Check", "Finding", "plan_findings", "request_findings"]

LIGHTNING_SLURM = "github.com/Lightning-AI/pytorch-lightning src/lightning/fabric/plugins/environments/slurm.py"
# In the order in which a person reads the findings.
CHECKS: dict[str, Check] = {
    "partition": Check(words=limits.known_partition, reads="partitions any_partition", options="partition"),
    "workload": Check(words=limits.known_workload, options="workload command"),
    "gpus": Check(sizes.gpus, reads="gpus_per_node", options="gpus_per_node"),
    "tasks": Check(sizes.tasks, reads="gpus_per_node", options="tasks_per_node gpus_per_node"),
    "whole-nodes": Check(sizes.whole_nodes, reads="multi_node gpus_per_node", options="nodes gpus_per_node"),
    "exclusive": Check(sizes.exclusive, reads="multi_node gpus_per_node", options="nodes gpus_per_node"),
    "cpus": Check(
        sizes.cpus,
        reads="cores_per_node cpus_per_gpu cpus_per_gpu_exact",
        options="cpus_per_task tasks_per_node gpus_per_node",
    ),
    "size": Check(sizes.size, reads="max_cores min_cores core_step", options="nodes cpus_per_task"),
    "memory": Check(sizes.memory, reads="mem_gb_per_node", options="mem_gb"),
    "walltime": Check(
        limits.walltime,
        words=limits.readable_walltime,
        reads="walltime",
        options="walltime warn_before nodes",
    ),
    "qos": Check(limits.qos, words=limits.known_qos, reads="qos", options="qos walltime nodes"),
    "account": Check(words.account, reads="account account_help account_suffixes", options="account partition"),
    "job-name": Check(words.job_name, options="job_name", source=LIGHTNING_SLURM),
    "env": Check(words.env, options="env"),
    "attempts": Check(limits.attempts, options="max_attempts warn_before directive"),
    "signal": Check(words.signal, options="directive launcher"),
    "directives": Check(words.directives, options="directive"),
}


def request_findings(profile: Profile, request: Request) -> Iterator[Finding]:
    """Yield what makes a plan impossible: words of the request that mean nothing at this site; nobody can force them."""
    for name, check in CHECKS.items():
        for found in check.words(profile, request) if check.words else ():
            finding = judged(profile, name, check, found)
            forced = f" (--force {name} cannot help: there is nothing to render)" if name in request.force else ""
            yield structs.replace(finding, message=finding.message + forced, refuses=True, fatal=True)
    for name in request.force:
        if name not in CHECKS:
            yield Finding("force", f"there is no check {name!r}{did_you_mean(name, CHECKS)}", fatal=True)


def plan_findings(profile: Profile, plan: Plan) -> Iterator[Finding]:
    """Yield what the site would refuse or mishandle of a plan; a check that is forced only warns."""
    for name, check in CHECKS.items():
        for found in check.function(plan) if check.function else ():
            finding = judged(profile, name, check, found)
            yield structs.replace(finding, refuses=finding.refuses and name not in plan.request.force)
