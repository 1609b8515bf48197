"""Accounts, job names, variables and directives: words that a site or a scheduler takes amiss."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpclaunch.checks.finding import Found, partition_key

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


def account(plan: Plan) -> Iterator[Found]:
    """Refuse an account whose suffix is another partition's; warn of none."""
    suffixes = plan.partition.account_suffixes
    if plan.account is None:
        if plan.site.account_help:
            yield Found(f"none given; {plan.site.account_help}", ("account_help",), warns=True)
    elif suffixes and not plan.account.endswith(tuple(suffixes)):
        project = plan.account.partition("@")[0]
        yield Found(
            f"{plan.account} asked, {plan.partition_name} charges accounts that end in {' or '.join(suffixes)}; "
            f"use -A {project}{suffixes[0]}",
            partition_key(plan, "account_suffixes"),
        )


def job_name(plan: Plan) -> Iterator[Found]:
    """Refuse a job name under which Lightning takes a Slurm job for an interactive shell."""
    if plan.site.scheduler == "slurm" and plan.job_name in HIDES_SLURM:
        yield Found(f"{plan.job_name} asked, Lightning ignores Slurm under that name; choose another")


def env(plan: Plan) -> Iterator[Found]:
    """Refuse a variable that the job, its shell or the scheduler sets itself."""
    reserved = RESERVED | (RESERVED_PBS if plan.site.scheduler == "pbs" else set())
    for name in sorted(plan.request.env.keys() | plan.site.env.keys()):
        if name in reserved or name.startswith("HPCLAUNCH_"):
            yield Found(f"--env {name}: the job sets it itself, on each rank; leave it out")
        elif name in SHELLS_OWN:
            yield Found(f"--env {name}: the job script's shell has its own use for it; set it inside your command")


def signal(plan: Plan) -> Iterator[Found]:
    """Warn of a --signal of one's own under torchrun, which ends of a signal that it does not know."""
    if plan.launcher == "torchrun" and any("--signal" in line for line in plan.directives):
        yield Found(
            "--signal with torchrun: it ends of a signal that it does not know; --max-attempts tells the ranks",
            warns=True,
        )


def directives(plan: Plan) -> Iterator[Found]:
    """Refuse a directive that PBS refuses or that carries too much: a comment behind it, -V."""
    if plan.site.scheduler == "pbs":
        for line in plan.directives:
            if re.search(r"\s#|^-V\b", line):
                yield Found(f"{line!r}: PBS refuses a comment behind a directive, and -V carries too much")
