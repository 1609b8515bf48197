"""The parameters of an executor: the options of `hpclaunch submit`, with underscores, and submitit's names for some."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

if TYPE_CHECKING:  # submitit's worker imports this module in every rank
    from hpclaunch.job.plan import Plan

_ALIASES = {"name": "job_name", "queue": "partition", "project": "account"}
# The command is submitit's worker, one in each rank; what this machine knows is looked up again.
_NOT_OURS = {"command", "workload", "launcher", "confirm_above", "snapshot", "host", "remote_folder", "machine", "jobs"}


def names() -> set[str]:
    """Return the names of the parameters that every executor has."""
    from hpclaunch.job.request import Request

    return {*Request.__struct_fields__, *_ALIASES, "timeout_min"} - _NOT_OURS


def changed(plan: Plan, given: dict[str, Any]) -> Plan:
    """Return the plan with these parameters in place of its own; None is the site's default.

    Raises HpclaunchError if the site would refuse it.
    """
    options = {_ALIASES.get(name, name): value for name, value in given.items()}
    if (minutes := options.pop("timeout_min", None)) is not None:
        options["walltime"] = f"{math.ceil(minutes * 60)}s"
    if options.get("mem_gb") is not None:
        options["mem_gb"] = math.ceil(options["mem_gb"])
    return plan_of(to_builtins(plan.request) | {"site": plan.name, "machine": {}} | options)


def plan_of(options: dict[str, Any]) -> Plan:
    """Return the plan of these options, `site` among them. Raises HpclaunchError where the site would refuse them."""
    from hpclaunch.job.consider import make_plan
    from hpclaunch.job.machine import follow_links
    from hpclaunch.job.request import make_request
    from hpclaunch.profile.search import load

    profile = load(options["site"])
    return make_plan(profile, follow_links(profile.site, make_request({"launcher": "tasks", **options})))
