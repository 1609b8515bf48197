"""What a site refuses or silently mishandles, found before anything is submitted.

A check reads the plan and the profile's figures, never a site's name. Where a profile lists a key as
unconfirmed, its checks warn and do not refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec import structs

from hpclaunch.errors import did_you_mean
from hpclaunch.job.checks import command, directives, downloads, files, folders, limits, memory, restarts, sizes, words
from hpclaunch.job.checks.check import QSUB, SBATCH, Check, judged
from hpclaunch.job.diagnostic import Diagnostic, Found
from hpclaunch.job.directives.options import Script
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request
from hpclaunch.profile.model import Partition
from hpclaunch.profile.search import Profile

__all__ = ["CHECKS", "Check", "Diagnostic", "Found", "Script", "check_plan", "check_request"]

_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html"
_SCRIPT = "the job script, templates/"
_REQUEST = "hpclaunch render --help"
_FILES = "this machine's files"

_of_directives = partial(Check, options="directive", source=QSUB, sources={"slurm": SBATCH})
# In the order in which users read the diagnostics.
CHECKS: dict[str, Check] = {
    "partition": Check(words=limits.known_partition, reads="partitions any_partition", options="partition"),
    "network": Check(words=limits.known_network, reads="networks", options="network"),
    "hint": Check(limits.hint, "hint", options="partition"),
    "workload": Check(words=limits.known_workload, options="workload command", source=_REQUEST),
    "placeholders": Check(
        words.placeholders,
        options="account job_name venv env storage module directive setup mail command",
        source="examples that were copied",
    ),
    "gpus": Check(sizes.gpus, "gpus_per_node", options="gpus_per_node"),
    "tasks": Check(sizes.tasks, "gpus_per_node", options="tasks_per_node gpus_per_node", source=_NCCL),
    "ranks": Check(sizes.ranks, options="nodes tasks_per_node", source=_REQUEST),
    "whole-nodes": Check(sizes.whole_nodes, "multi_node gpus_per_node whole_nodes", options="nodes gpus_per_node"),
    "cpus": Check(
        sizes.cpus,
        "cores_per_node cpus_per_gpu cpus_per_gpu_exact omit",
        options="cpus_per_task tasks_per_node gpus_per_node",
    ),
    "size": Check(sizes.size, "max_cores min_cores core_step max_nodes min_nodes", options="nodes cpus_per_task"),
    "memory": Check(memory.memory, "mem_gb_per_node omit", options="mem_gb directive"),
    "memory-charge": Check(memory.memory_charge, "charge.mem_gb", options="mem_gb"),
    "jobfs": Check(memory.jobfs, "jobfs_gb_per_node ask_jobfs", options="jobfs_gb", source=_SCRIPT),
    "walltime": Check(
        limits.walltime,
        words=limits.readable_walltime,
        reads="walltime min_walltime",
        options="walltime warn_before hang_after nodes",
        source=_REQUEST,
    ),
    "hang": Check(limits.hang, "hang_after", options="hang_after walltime", source=_SCRIPT),
    "qos": Check(
        limits.qos,
        "qos.max_walltime qos.min_walltime qos.max_gpus qos.disputed_max_gpus qos.max_cores "
        "qos.max_nodes qos.min_nodes",
        options="qos walltime nodes gpus_per_node",
    ),
    "account": Check(
        words.account, "account account_help account_pattern account_suffixes", options="account partition"
    ),
    "job-name": Check(words.job_name, options="job_name", source=sizes.LIGHTNING_SLURM),
    "mail": Check(words.mail, options="mail mail_on", source=_REQUEST),
    "env": Check(words.env, options="env", source=_SCRIPT),
    "modules": Check(words.modules, "modules", options="module partition"),
    "storage": Check(
        folders.storage, "storage storage_roots storage_given", options="storage env setup venv", source=_SCRIPT
    ),
    "home": Check(folders.home, "home_gb", options="venv env command"),
    "expiring": Check(folders.expiring, "expiring", options="env command"),
    "reach": Check(folders.reach, "only_on", options="command setup env venv partition"),
    "download": Check(downloads.download, "internet", options="command setup env partition"),
    "container": Check(files.container, "container vendor", options="container launcher venv", source=_FILES),
    "staging": Check(
        files.staging, "jobfs_gb_per_node local_disk", options="stage_in stage_out jobfs_gb", source=_FILES
    ),
    "commands": Check(command.removed_commands, "removed_commands", options="command setup"),
    "launcher": Check(command.launcher, options="command launcher", source=_SCRIPT),
    "program": Check(command.program, options="command", source="this folder, and PATH"),
    "trainer": Check(
        command.trainer, options="command nodes gpus_per_node tasks_per_node", source=sizes.LIGHTNING_SLURM
    ),
    "literal": Check(command.literal, options="command", source=_SCRIPT),
    "dtype": Check(command.dtype, "compute_capability", options="command partition"),
    "backend": Check(command.backend, "backend vendor", options="command partition"),
    "attempts": Check(directives.attempts, options="max_attempts warn_before directive", source=_SCRIPT),
    "restarts": Check(
        restarts.restarts, options="max_restarts min_nodes spares launcher nodes", source=restarts.TORCHRUN
    ),
    "node-range": Check(restarts.node_range, options="nodes", source=SBATCH),
    "arrays": _of_directives(directives.arrays, "arrays max_array rerunnable max_jobs qos.max_jobs"),
    "signal": Check(directives.signal, options="directive launcher", source=SBATCH),
    "log-folder": _of_directives(directives.log_folder),
    "directives": _of_directives(directives.directives),
    "refused-directives": Check(directives.refused_directives, "refused_directives", options="directive"),
    "repeated": _of_directives(directives.repeated),
    "max-cost": Check(limits.max_cost, "charge free", options="max_cost walltime max_attempts nodes", source=_REQUEST),
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
        first = check.reads.partition(" ")[0].partition(".")[0]
        on_any = first not in Partition.__struct_fields__ and "tasks_per_node" not in check.options
        for found in check.function(plan) if check.function and (on_any or not anywhere) else ():
            one = judged(profile, name, check, found)
            yield structs.replace(one, refuses=one.refuses and name not in plan.request.force)
