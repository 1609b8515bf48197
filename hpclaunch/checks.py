"""What a site refuses or silently mishandles, found before anything is submitted.

A check reads the plan and the profile's figures, never a site's name. Where a profile lists a key as
unconfirmed, its checks warn and do not refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from hpclaunch import walltime
from hpclaunch.site import Qos

if TYPE_CHECKING:
    from hpclaunch.plan import Plan

# What the job script sets on every rank, and what PBS itself sets (G. NCPUS shadows a variable given by -v).
RESERVED = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "NODE_RANK", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}
RESERVED_PBS = {"NCPUS"}
# What bash or the job script itself reads.
SHELLS_OWN = {
    "BASH_ENV",
    "BASHOPTS",
    "IFS",
    "POSIXLY_CORRECT",
    "SHELLOPTS",
    "answer",
    "beat",
    "beats",
    "code",
    "command",
    "emulated",
    "end",
    "ended",
    "i",
    "job",
    "job_id",
    "job_number",
    "left",
    "log",
    "lost",
    "name",
    "next",
    "node",
    "nodes",
    "number",
    "pid",
    "pids",
    "running",
    "shells",
    "show",
    "silent",
    "told",
    "verdict",
    "who",
}
# Job names that Lightning takes for an interactive shell (lightning/fabric/plugins/environments/slurm.py).
HIDES_SLURM = {"bash", "interactive"}


class Finding(Struct, frozen=True):
    """One thing that is wrong, or may be."""

    check: str
    message: str
    refuses: bool = True


def findings(plan: Plan) -> Iterator[Finding]:
    """Yield all findings of a plan."""
    for check in (_gpus, _cpus, _size, _memory, _walltime, _qos, _account, _names, _attempts):
        for key, message in check(plan):
            yield Finding(
                check.__name__[1:], message, refuses=key is not None and key not in plan.partition.unconfirmed
            )


# Each check yields (profile key that it rests on, message); a key of None is a warning, "" a rule of its own.
Found = Iterator[tuple[str | None, str]]


def _gpus(plan: Plan) -> Found:
    where, gpus, most = f"partition {plan.partition_name}", plan.gpus_per_node, plan.partition.gpus_per_node
    if plan.site.scheduler == "local":
        return
    if gpus > most and not plan.site.any_partition:
        has = f"has {most}" if most else "has none"
        yield "gpus_per_node", f"{gpus} GPUs per node: a node of {where} {has}"
    elif most and not gpus:
        yield "gpus_per_node", f"0 GPUs per node: {where} is for GPU jobs, ask for 1 to {most}"
    elif gpus and plan.tasks_per_node > gpus:
        yield (
            "",
            f"{plan.tasks_per_node} tasks per node, but {gpus} GPUs: "
            f"two ranks cannot share a GPU under nccl, use --tasks-per-node {gpus}",
        )
    elif plan.site.multi_node == "whole" and plan.nodes > 1 and gpus < most:
        total = plan.nodes * gpus
        fits = f"--nodes 1 --gpus-per-node {total}" if total <= most else f"--gpus-per-node {most}"
        yield "", f"{plan.nodes} nodes with {gpus} of {most} GPUs: {plan.name} splits jobs by whole nodes, use {fits}"
    elif plan.site.multi_node == "exclusive" and plan.nodes > 1 and gpus < most:
        yield (
            None,
            f"{plan.nodes} nodes with {gpus} of {most} GPUs: a job on several nodes is charged for all of theirs",
        )


def _cpus(plan: Plan) -> Found:
    asked, cores = plan.tasks_per_node * plan.cpus_per_task, plan.partition.cores_per_node
    per_gpu, gpus = plan.partition.cpus_per_gpu, plan.gpus_per_node
    shape = f"{plan.tasks_per_node} tasks x {plan.cpus_per_task} cpus = {asked} per node"
    if cores and asked > cores:
        yield "cores_per_node", f"{shape}: a node of partition {plan.partition_name} has {cores} cores"
    elif per_gpu and gpus and asked > gpus * per_gpu:
        share = f"{gpus} GPUs come with {gpus} x {per_gpu} = {gpus * per_gpu} cpus on {plan.partition_name}"
        if plan.partition.cpus_per_gpu_exact:
            yield "cpus_per_gpu", f"{shape}: {share}; leave --cpus-per-task out or lower it"
        else:
            yield None, f"{shape}: {share}; the surplus is charged as more GPUs"


def _size(plan: Plan) -> Found:
    cores, part, where = plan.nodes * plan.cpus_per_node, plan.partition, f"partition {plan.partition_name}"
    if part.max_cores and cores > part.max_cores:
        most = f" ({part.max_cores // part.cores_per_node} nodes)" if part.cores_per_node else ""
        yield "max_cores", f"{plan.nodes} nodes are {cores} cores: {where} allows {part.max_cores}{most}"
    if part.min_cores and cores < part.min_cores:
        yield "min_cores", f"{cores} cores: {where} wants at least {part.min_cores}"
    if part.core_step and cores % part.core_step:
        yield "core_step", f"{cores} cores: {where} gives cores in multiples of {part.core_step}"


def _memory(plan: Plan) -> Found:
    most = plan.partition.mem_gb_per_node
    if plan.mem_gb_per_node and most and plan.mem_gb_per_node > most:
        yield (
            "mem_gb_per_node",
            f"{plan.mem_gb_per_node} GB per node: a node of partition {plan.partition_name} has {most:g} GB for jobs",
        )


def _walltime(plan: Plan) -> Found:
    cores = plan.nodes * plan.cpus_per_node
    tiers = plan.partition.walltime
    tier = next(
        (tier for tier in tiers if tier.max_cores is None or cores <= tier.max_cores), tiers[-1] if tiers else None
    )
    if tier and plan.seconds > walltime.clock_seconds(tier.max_walltime):
        smaller = [
            f"{tier.max_walltime} up to {tier.max_cores} cores" if tier.max_cores else tier.max_walltime
            for tier in tiers
            if plan.seconds <= walltime.clock_seconds(tier.max_walltime)
        ]
        instead = f"; it allows {smaller[-1]}" if smaller else ""
        yield (
            "walltime",
            f"walltime {plan.walltime}: partition {plan.partition_name} allows {tier.max_walltime} "
            f"for {cores} cores{instead}",
        )


def _qos(plan: Plan) -> Found:
    job = plan.seconds, plan.nodes * plan.gpus_per_node, plan.nodes * plan.cpus_per_node
    candidates = [plan.qos] if plan.qos else [qos for qos in plan.partition.qos if qos.automatic]
    for qos in candidates:
        instead = [other.name for other in plan.partition.qos if not list(qos_limits(other, *job))]
        for key, message in qos_limits(qos, *job):
            yield (
                None if key in qos.unconfirmed else "qos",
                f"{message}; use --qos {instead[0]}" if instead else message,
            )


def qos_limits(qos: Qos, seconds: int, gpus: int, cores: int) -> Iterator[tuple[str, str]]:
    """Yield (key, message) for each limit of `qos` that a job of this length and size exceeds."""
    if seconds > walltime.clock_seconds(qos.max_walltime):
        yield "max_walltime", f"walltime {walltime.clock(seconds)}: {qos.name} allows {qos.max_walltime}"
    if qos.max_gpus and gpus > qos.max_gpus:
        yield "max_gpus", f"{gpus} GPUs: {qos.name} allows {qos.max_gpus}"
    if qos.max_cores and cores > qos.max_cores:
        yield "max_cores", f"{cores} cores: {qos.name} allows {qos.max_cores}"


def _attempts(plan: Plan) -> Found:
    if plan.max_attempts > 1 and plan.site.scheduler == "local":
        yield "", f"{plan.max_attempts} attempts: nothing limits the time on this machine; leave them out"
    if plan.max_attempts > 1 and any("--signal" in line for line in plan.directives):
        yield "", "--signal with --max-attempts: the job script keeps the time and requeues; leave one of them out"
    if plan.max_attempts > 1 and plan.site.scheduler == "pbs" and any(re.match("-J", line) for line in plan.directives):
        yield (
            "",
            "-J with --max-attempts: each job of the array would submit the whole array again; leave one of them out",
        )
    if plan.max_attempts > 1 and plan.warn_seconds >= plan.seconds:
        warning = walltime.clock(plan.warn_seconds)
        yield "", f"--warn-before {warning}: not before the whole walltime, {plan.walltime}"


def _account(plan: Plan) -> Found:
    suffixes = plan.partition.account_suffixes
    if plan.account is None:
        if plan.site.account_help:
            yield None, f"no account: {plan.site.account_help}"
    elif suffixes and not plan.account.endswith(tuple(suffixes)):
        project = plan.account.partition("@")[0]
        yield (
            "account_suffixes",
            f"account {plan.account}: partition {plan.partition_name} charges accounts that end in "
            f"{' or '.join(suffixes)}, use -A {project}{suffixes[0]}",
        )


def _names(plan: Plan) -> Found:
    if plan.site.scheduler == "slurm" and plan.job_name in HIDES_SLURM:
        yield "", f"job name {plan.job_name}: Lightning ignores Slurm under that name, choose another"
    reserved = RESERVED | (RESERVED_PBS if plan.site.scheduler == "pbs" else set())
    for name in sorted(plan.request.env.keys() | plan.site.env.keys()):
        if name in reserved or name.startswith("HPCLAUNCH_"):
            yield "", f"--env {name}: the job sets it itself, on each rank; leave it out"
        elif name in SHELLS_OWN:
            yield "", f"--env {name}: the job script's shell has its own use for it; set it inside your command"
    if plan.launcher == "torchrun" and any("--signal" in line for line in plan.directives):
        yield None, "--signal with torchrun: it ends of a signal that it does not know; --max-attempts tells the ranks"
    if plan.site.scheduler == "pbs":
        for line in plan.directives:
            if re.search(r"\s#|^-V\b", line):
                yield "", f"directive {line!r}: PBS refuses a comment behind a directive, and -V carries too much"
