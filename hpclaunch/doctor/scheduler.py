"""Whether the scheduler is within reach, knows the account and the partition, and would take the job."""

from __future__ import annotations

import grp
import json
import re
import shutil
from collections.abc import Iterator

from hpclaunch.doctor import ASK_SECONDS, Finding, Patient
from hpclaunch.errors import SchedulerError
from hpclaunch.schedulers.command import call
from hpclaunch.schedulers.machine import my_groups, user
from hpclaunch.schedulers.slurm.limits import table

# What hpclaunch calls on a login node: what it needs, and what it can do without.
COMMANDS = {
    "slurm": (["sbatch", "squeue", "scontrol", "scancel"], ["sacct", "sacctmgr"]),
    "pbs": (["qsub", "qstat", "qdel"], []),
}
NOT_HERE = "run this on a login node of the site; `module avail` may have the scheduler's commands"


def commands(patient: Patient) -> Iterator[Finding]:
    """Look for the scheduler's commands on PATH."""
    kind = patient.profile.site.scheduler
    if kind == "local":
        yield Finding(probe="scheduler", verdict="ok", found="none is needed, jobs run on this machine")
        return
    needed, useful = COMMANDS[kind]
    missing = [name for name in needed if not shutil.which(name)]
    if missing:
        found = f"not on PATH: {', '.join(missing)}"
        yield Finding(probe="scheduler", verdict="problem", found=found, remedy=NOT_HERE, out_of_reach=True)
        return
    yield Finding(probe="scheduler", verdict="ok", found=f"{', '.join(needed)} are on PATH")
    if missing := [name for name in useful if not shutil.which(name)]:
        yield Finding(
            probe="scheduler",
            verdict="warning",
            found=f"not on PATH: {', '.join(missing)}",
            remedy="without them the end of older jobs is not known, and accounts are not checked",
        )


def server(patient: Patient) -> Iterator[Finding]:
    """Ask the scheduler's daemon whether it is there."""
    kind = patient.profile.site.scheduler
    words = {"slurm": ["scontrol", "ping"], "pbs": ["qstat", "-B", "-f", "-F", "json"]}.get(kind)
    if words is None or not shutil.which(words[0]):
        return
    try:
        answer = call(words, seconds=ASK_SECONDS).stdout
        if kind == "slurm" and "is UP" not in answer:  # some releases say DOWN and exit with 0
            raise SchedulerError(answer)
    except SchedulerError as error:
        yield Finding(
            probe="server",
            verdict="problem",
            found=" ".join(str(error).split()),
            remedy="it may be down for maintenance: look at the site's status page, try again later",
            out_of_reach=True,
        )
        return
    yield Finding(probe="server", verdict="ok", found=_described(kind, answer))


def _described(kind: str, answer: str) -> str:
    if kind == "slurm":
        return "; ".join(answer.split("\n")).strip("; ")
    try:
        document = json.loads(answer, strict=False)
        return f"{document['pbs_server']}, PBS {document['pbs_version']}"
    except (ValueError, KeyError, TypeError):
        return "it answers"


def partition(patient: Patient) -> Iterator[Finding]:
    """Ask for the partition by the name that the job's script uses."""
    name, kind = _asked_for(patient), patient.profile.site.scheduler
    words = {
        "slurm": ["scontrol", "--oneliner", "show", "partition", str(name)],
        "pbs": ["qstat", "-Q", "-f", "-F", "json", str(name)],
    }.get(kind)
    if name is None or words is None or not shutil.which(words[0]):
        return
    remedy = "compare `hpclaunch site show` with what the site offers now: `hpclaunch site new NAME --detect`"
    try:
        answer = call(words, seconds=ASK_SECONDS).stdout
    except SchedulerError as error:
        yield Finding(
            probe="partition", verdict="problem", found=f"{name}: {' '.join(str(error).split())}", remedy=remedy
        )
        return
    if kind == "slurm":
        closed = re.search(r"\bState=(?!UP\b)\S+", answer)
    else:
        closed = re.search(r'"(enabled|started)":\s*"False"', answer)
    if closed:
        found = f"{name}: {closed[0]}: it takes no jobs, or starts none"
        yield Finding(
            probe="partition", verdict="problem", found=found, remedy="choose another with --partition, or wait"
        )
    else:
        yield Finding(probe="partition", verdict="ok", found=f"{name} is there and open")


def _asked_for(patient: Patient) -> str | None:
    """Return the scheduler's own name of the partition; None where the job does not name one."""
    if patient.plan is None:
        return None
    directives = patient.plan.partition.directives
    if directives is None:
        return patient.plan.partition_name
    found = [re.fullmatch(r"(?:--partition[= ]|-p ?|-q )(\S+)", line) for line in directives]
    return next((match[1] for match in found if match), None)


def account(patient: Patient) -> Iterator[Finding]:
    """Look for the account among this person's: Slurm's associations, or the unix groups that projects are on PBS."""
    site = patient.profile.site
    name = patient.request.account or site.account
    if site.scheduler == "local":
        return
    if site.scheduler == "slurm" and shutil.which("sacctmgr"):
        yield _slurm_account(name)
    elif name is None:
        if site.account_help:
            yield Finding(probe="account", verdict="warning", found="none is given", remedy=site.account_help)
    elif name in my_groups():
        yield Finding(probe="account", verdict="ok", found=f"{name} is one of your unix groups")
    elif _is_group(name):
        yield Finding(
            probe="account",
            verdict="problem",
            found=f"there is a unix group {name}, and {user()} is not in it",
            remedy=f"ask the project's lead to add you; your groups: {', '.join(sorted(my_groups()))}",
        )
    else:
        remedy = "the site's own command tells your projects and what is left of them"
        yield Finding(probe="account", verdict="warning", found=f"cannot tell whether {name} is yours", remedy=remedy)


def _slurm_account(name: str | None) -> Finding:
    mine = list(dict.fromkeys(row[0] for row in table("assoc", "Account", f"user={user()}") if row[0]))
    listed = ", ".join(mine)
    if not mine:
        found = f"cannot tell: Slurm lists no account of {user()}"
        return Finding(probe="account", verdict="warning", found=found, remedy="ask the site for an account")
    if name is None:
        return Finding(probe="account", verdict="ok", found=f"none is given, Slurm takes your default; yours: {listed}")
    if name.lower() in mine:  # Slurm keeps accounts in lower case
        return Finding(probe="account", verdict="ok", found=f"{name} is yours")
    return Finding(
        probe="account", verdict="problem", found=f"{name} is not yours", remedy=f"use -A with one of {listed}"
    )


def _is_group(name: str) -> bool:
    try:
        return grp.getgrnam(name).gr_name == name
    except KeyError:
        return False


def job(patient: Patient) -> Iterator[Finding]:
    """Plan the job, and let Slurm try its script without submitting it; PBS has no such trial."""
    if patient.plan is None:
        yield Finding(
            probe="job", verdict="problem", found=patient.refusal, remedy="change the options, or the profile"
        )
        return
    if patient.profile.site.scheduler != "slurm" or not shutil.which("sbatch"):
        return
    try:
        call(["sbatch", "--test-only"], stdin=patient.script, seconds=ASK_SECONDS)
    except SchedulerError as error:
        found = " ".join(str(error).split())
        yield Finding(
            probe="job", verdict="problem", found=found, remedy="Slurm would refuse this very job: see its reason"
        )
    else:
        yield Finding(
            probe="job", verdict="ok", found="sbatch --test-only takes the script of a job with these options"
        )


PROBES = {"scheduler": commands, "server": server, "partition": partition, "account": account, "job": job}
