"""Whether the scheduler is within reach, knows the account and the partition, and would take the job."""

import grp
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress

from hpclaunch.doctor.result import ASK_SECONDS, Patient, Result, ok, one_line, problem, warning
from hpclaunch.errors import SchedulerError
from hpclaunch.job.plan import Plan
from hpclaunch.schedulers import Scheduler, scheduler
from hpclaunch.schedulers.machine import user


def probe(patient: Patient) -> Iterator[Result]:
    """Look for the scheduler's commands, then ask it about the server, the partition, the account and the script."""
    kind, plan = scheduler(patient.profile.site.scheduler), patient.plan
    if plan is None:
        yield problem("job", patient.refusal, "change the options, or the profile")
    if kind.here:
        yield ok("scheduler", "none is needed, jobs run on this machine")
        return
    missing, lacking = (
        ", ".join(name for name in names if not shutil.which(name)) for names in (kind.needs, kind.useful)
    )
    if missing:
        remedy = "run this on a login node of the site; `module avail` may have the scheduler's commands"
        yield problem("scheduler", f"not on PATH: {missing}", remedy, out_of_reach=True)
        return
    yield ok("scheduler", f"{', '.join(kind.needs) or f'no command of {kind.name}'} are on PATH")
    if lacking:
        remedy = "without them the end of older jobs is not known, and accounts are not checked"
        yield warning("scheduler", f"not on PATH: {lacking}", remedy)
    try:
        if answer := kind.ping(ASK_SECONDS):
            yield ok("server", answer)
    except SchedulerError as error:
        remedy = "it may be down for maintenance: look at the site's status page, try again later"
        yield problem("server", one_line(error), remedy, out_of_reach=True)
        return
    if plan and kind.needs and (name := _partition_named(plan)):
        yield _partition(kind, name)
    try:
        if plan and (how := kind.try_script(patient.script, ASK_SECONDS)):
            yield ok("job", f"{how} takes the script of a job with these options")
    except SchedulerError as error:
        yield problem("job", one_line(error), f"{kind.name} would refuse this very job: see its reason")
    yield from _account(patient, kind)


def _partition_named(plan: Plan) -> str | None:
    """Return the scheduler's own name of the partition, or None if the job does not name one."""
    if plan.partition.directives is None:
        return plan.partition_name
    found = re.search(r"^(?:--partition[= ]|-p ?|-q )(\S+)$", "\n".join(plan.partition.directives), re.MULTILINE)
    return found and found[1]


def _partition(kind: Scheduler, name: str) -> Result:
    try:
        closed = kind.closed(name, ASK_SECONDS)
    except SchedulerError as error:
        remedy = "compare `hpclaunch site show` with what the site offers now: `hpclaunch site new NAME --detect`"
        return problem("partition", f"{name}: {one_line(error)}", remedy)
    if closed:
        found = f"{name}: {closed}: it takes no jobs, or starts none"
        return problem("partition", found, "choose another with --partition, or wait")
    return ok("partition", f"{name} is there and open")


def _account(patient: Patient, kind: Scheduler) -> Iterator[Result]:
    """Look for the account among the user's: Slurm's associations, or the unix groups that projects are on PBS."""
    name, (mine, complete) = patient.request.account or patient.profile.site.account, kind.accounts()
    listed = ", ".join(mine)
    if name is None:
        if complete and mine:
            yield ok("account", f"none is given, {kind.name} takes your default; yours: {listed}")
        elif advice := patient.profile.site.account_help:
            yield warning("account", "none is given", advice)
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
    with suppress(KeyError):
        return bool(grp.getgrnam(name))
    return False
