"""Whether the scheduler is within reach, knows the account and the partition, and would take the job."""

from __future__ import annotations

import grp
import re
import shutil
from collections.abc import Iterator

from hpclaunch.doctor.result import ASK_SECONDS, Patient, Result, ok, problem, warning
from hpclaunch.errors import SchedulerError
from hpclaunch.schedulers import Scheduler, scheduler
from hpclaunch.schedulers.machine import user

NOT_HERE = "run this on a login node of the site; `module avail` may have the scheduler's commands"


def commands(patient: Patient) -> Iterator[Result]:
    """Look for the scheduler's commands on PATH."""
    kind = scheduler(patient.profile.site.scheduler)
    if kind.here:
        yield ok("scheduler", "none is needed, jobs run on this machine")
    elif missing := _missing(kind.needs):
        yield problem("scheduler", f"not on PATH: {', '.join(missing)}", NOT_HERE, out_of_reach=True)
    else:
        yield ok("scheduler", f"{', '.join(kind.needs) or f'no command of {kind.name}'} are on PATH")
        if missing := _missing(kind.useful):
            remedy = "without them the end of older jobs is not known, and accounts are not checked"
            yield warning("scheduler", f"not on PATH: {', '.join(missing)}", remedy)


def _missing(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if not shutil.which(name)]


def _in_reach(patient: Patient) -> Scheduler | None:
    """Return the scheduler if its commands are here."""
    kind = scheduler(patient.profile.site.scheduler)
    return None if kind.here or _missing(kind.needs) else kind


def server(patient: Patient) -> Iterator[Result]:
    """Ask the scheduler's daemon whether it is there."""
    if not (kind := _in_reach(patient)):
        return
    try:
        if answer := kind.ping(ASK_SECONDS):
            yield ok("server", answer)
    except SchedulerError as error:
        remedy = "it may be down for maintenance: look at the site's status page, try again later"
        yield problem("server", _line(error), remedy, out_of_reach=True)


def partition(patient: Patient) -> Iterator[Result]:
    """Ask for the partition by the name that the job's script uses."""
    name = _partition_named(patient)
    if name is None or not (kind := _in_reach(patient)):
        return
    try:
        closed = kind.closed(name, ASK_SECONDS)
    except SchedulerError as error:
        remedy = "compare `hpclaunch site show` with what the site offers now: `hpclaunch site new NAME --detect`"
        yield problem("partition", f"{name}: {_line(error)}", remedy)
        return
    if closed:
        found = f"{name}: {closed}: it takes no jobs, or starts none"
        yield problem("partition", found, "choose another with --partition, or wait")
    elif kind.needs:
        yield ok("partition", f"{name} is there and open")


def _partition_named(patient: Patient) -> str | None:
    """Return the scheduler's own name of the partition, or None if the job does not name one."""
    if patient.plan is None:
        return None
    directives = patient.plan.partition.directives
    if directives is None:
        return patient.plan.partition_name
    found = [re.fullmatch(r"(?:--partition[= ]|-p ?|-q )(\S+)", line) for line in directives]
    return next((match[1] for match in found if match), None)


def account(patient: Patient) -> Iterator[Result]:
    """Look for the account among the user's: Slurm's associations, or the unix groups that projects are on PBS."""
    site = patient.profile.site
    kind, name = scheduler(site.scheduler), patient.request.account or site.account
    if kind.here:
        return
    mine, complete = kind.accounts()
    listed = ", ".join(mine)
    if name is None:
        if complete and mine:
            yield ok("account", f"none is given, {kind.name} takes your default; yours: {listed}")
        elif site.account_help:
            yield warning("account", "none is given", site.account_help)
    elif name in mine or (complete and name.lower() in mine):  # Slurm keeps accounts in lower case
        yield ok("account", f"{name} is yours")
    elif complete and mine:
        yield problem("account", f"{name} is not yours", f"use -A with one of {listed}")
    elif not complete and _is_group(name):
        remedy = f"ask the project's lead to add you; your groups: {listed}"
        yield problem("account", f"there is a unix group {name}, and {user()} is not in it", remedy)
    else:
        remedy = "the site's own command shows your projects and what is left of them"
        yield warning("account", f"cannot tell whether {name} is yours", remedy)


def _is_group(name: str) -> bool:
    try:
        return grp.getgrnam(name).gr_name == name
    except KeyError:
        return False


def job(patient: Patient) -> Iterator[Result]:
    """Plan the job, and let the scheduler check its script without submitting it, if it can."""
    if patient.plan is None:
        yield problem("job", patient.refusal, "change the options, or the profile")
        return
    if not (kind := _in_reach(patient)):
        return
    try:
        if how := kind.try_script(patient.script, ASK_SECONDS):
            yield ok("job", f"{how} takes the script of a job with these options")
    except SchedulerError as error:
        yield problem("job", _line(error), f"{kind.name} would refuse this very job: see its reason")


def _line(error: SchedulerError) -> str:
    return " ".join(str(error).split())


PROBES = {"scheduler": commands, "server": server, "partition": partition, "account": account, "job": job}
