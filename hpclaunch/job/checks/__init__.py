"""What a site refuses or silently mishandles, found before anything is submitted.

A check reads the plan and the profile's figures, never a site's name. Where a profile lists a key as
unconfirmed, its checks warn and do not refuse.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from hpclaunch.errors import did_you_mean
from hpclaunch.job.checks import command, directives, downloads, folders, limits, memory, sizes, words
from hpclaunch.job.checks.check import Check, judged
from hpclaunch.job.diagnostic import Diagnostic, Found
from hpclaunch.job.directives.options import Script
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request
from hpclaunch.profile.search import Profile

__all__ = ["CHECKS", "Check", "Diagnostic", "Found", "Script", "check_plan", "check_request", "run_check"]

_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html"
_QSUB = "https://github.com/openpbs/openpbs/blob/master/doc/man1/qsub.1B"
_SBATCH = "https://slurm.schedmd.com/sbatch.html"
_SCRIPT = "the job script, templates/"
_REQUEST = "hpclaunch render --help"

# In the order in which users read the diagnostics.
CHECKS: dict[str, Check] = {
    "partition": Check(words=limits.known_partition, reads="partitions any_partition", options="partition"),
    "hint": Check(limits.hint, reads="hint", options="partition"),
    "workload": Check(words=limits.known_workload, options="workload command", source=_REQUEST),
    "placeholders": Check(
        words.placeholders,
        options="account job_name venv env storage module directive setup command",
        source="examples that were copied",
    ),
    "gpus": Check(sizes.gpus, reads="gpus_per_node", options="gpus_per_node"),
    "tasks": Check(sizes.tasks, reads="gpus_per_node", options="tasks_per_node gpus_per_node", source=_NCCL),
    "ranks": Check(sizes.ranks, options="nodes tasks_per_node", source=_REQUEST),
    "whole-nodes": Check(sizes.whole_nodes, reads="multi_node gpus_per_node", options="nodes gpus_per_node"),
    "cpus": Check(
        sizes.cpus,
        reads="cores_per_node cpus_per_gpu cpus_per_gpu_exact",
        options="cpus_per_task tasks_per_node gpus_per_node",
    ),
    "size": Check(sizes.size, reads="max_cores min_cores core_step", options="nodes cpus_per_task"),
    "memory": Check(memory.memory, reads="mem_gb_per_node memory_follows_cpus", options="mem_gb directive"),
    "memory-charge": Check(memory.memory_charge, reads="charge.mem_gb_per_core", options="mem_gb"),
    "jobfs": Check(memory.jobfs, reads="jobfs_gb_per_node ask_jobfs", options="jobfs_gb", source=_SCRIPT),
    "walltime": Check(
        limits.walltime,
        words=limits.readable_walltime,
        reads="walltime",
        options="walltime warn_before nodes",
        source=_REQUEST,
    ),
    "qos": Check(
        limits.qos,
        reads="qos.max_walltime qos.max_gpus qos.disputed_max_gpus qos.max_cores",
        options="qos walltime nodes gpus_per_node",
    ),
    "account": Check(words.account, reads="account account_help account_suffixes", options="account partition"),
    "job-name": Check(words.job_name, options="job_name", source=sizes.LIGHTNING_SLURM),
    "env": Check(words.env, options="env", source=_SCRIPT),
    "modules": Check(words.modules, reads="modules", options="module partition"),
    "storage": Check(
        folders.storage, reads="storage storage_roots storage_given", options="storage env setup venv", source=_SCRIPT
    ),
    "home": Check(folders.home, reads="home_gb", options="venv env command"),
    "expiring": Check(folders.expiring, reads="expiring", options="env command"),
    "reach": Check(folders.reach, reads="only_on", options="command setup env venv partition"),
    "download": Check(downloads.download, reads="internet", options="command setup env partition"),
    "commands": Check(command.removed_commands, reads="removed_commands", options="command setup"),
    "launcher": Check(command.launcher, options="command launcher", source=_SCRIPT),
    "program": Check(command.program, options="command", source="this folder, and PATH"),
    "trainer": Check(
        command.trainer, options="command nodes gpus_per_node tasks_per_node", source=sizes.LIGHTNING_SLURM
    ),
    "literal": Check(command.literal, options="command", source=_SCRIPT),
    "dtype": Check(
        command.dtype,
        reads="compute_capability",
        options="command partition",
    ),
    "attempts": Check(directives.attempts, options="max_attempts warn_before directive", source=_SCRIPT),
    "arrays": Check(
        directives.arrays,
        reads="arrays max_array rerunnable qos.max_jobs",
        options="directive",
        source=_QSUB,
        sources={"slurm": _SBATCH},
    ),
    "signal": Check(directives.signal, options="directive launcher", source=_SBATCH),
    "log-folder": Check(directives.log_folder, options="directive", source=_QSUB, sources={"slurm": _SBATCH}),
    "directives": Check(directives.directives, options="directive", source=_QSUB, sources={"slurm": _SBATCH}),
    "refused-directives": Check(directives.refused_directives, reads="refused_directives", options="directive"),
    "repeated": Check(directives.repeated, options="directive", source=_QSUB, sources={"slurm": _SBATCH}),
    "max-cost": Check(
        limits.max_cost, reads="charge free", options="max_cost walltime max_attempts nodes", source=_REQUEST
    ),
}


def check_request(profile: Profile, request: Request) -> Iterator[Diagnostic]:
    """Yield what makes a plan impossible: words of the request that mean nothing here. Nobody can force them."""
    for name, check in CHECKS.items():
        for found in check.words(profile, request) if check.words else ():
            one = judged(profile, name, check, found)
            forced = f" (--force {name} cannot help: there is nothing to render)" if name in request.force else ""
            yield structs.replace(one, message=one.message + forced, refuses=True, fatal=True)
    for name in request.force:
        if name not in CHECKS:
            yield Diagnostic("force", f"there is no check {name!r}{did_you_mean(name, CHECKS)}", fatal=True)


def check_plan(profile: Profile, plan: Plan, anywhere: bool = False) -> Iterator[Diagnostic]:
    """Yield what the site would refuse or mishandle of a plan; a check that is forced only warns.

    With `anywhere`, of a partition that is not known, only what would be wrong on any.
    """
    for name, check in CHECKS.items():
        if check.function is not None and not (anywhere and (check.reads or "tasks_per_node" in check.options)):
            yield from run_check(profile, plan, name)


def run_check(profile: Profile, plan: Plan, name: str) -> Iterator[Diagnostic]:
    """Yield the diagnostics of one check."""
    check = CHECKS[name]
    for found in check.function(plan) if check.function else ():
        one = judged(profile, name, check, found)
        yield structs.replace(one, refuses=one.refuses and name not in plan.request.force)
