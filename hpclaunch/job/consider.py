"""A plan and all that the checks say of it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from hpclaunch.errors import RequestError
from hpclaunch.job import checks
from hpclaunch.job.checks import Diagnostic, Script
from hpclaunch.job.checks.suggestions import with_suggestions
from hpclaunch.job.choose import choose
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request
from hpclaunch.job.sizes import unchecked_plan
from hpclaunch.profile.search import Profile

# The options that are left out of the plan when a check says that their value means nothing at a site.
_LEFT_OUT = {
    "partition": (),
    "network": ("network",),
    "walltime": ("walltime", "warn_before", "hang_after"),
    "workload": ("workload",),
    "force": (),
}


def make_plan(profile: Profile, request: Request) -> Plan:
    """Return the plan of a request, its warnings included.

    Raises RequestError with every refusal at once, each with the numbers and what to use.
    """
    plan, diagnostics = consider(profile, request)
    refusals = [str(one) for one in diagnostics if one.refuses]
    if plan is None or refusals:
        raise RequestError(*refusals)
    return plan


def consider(profile: Profile, request: Request, script: Script | None = None) -> tuple[Plan | None, list[Diagnostic]]:
    """Return the plan of a request and what the checks say of it, refusals and warnings alike.

    A refused request has a plan too; the plan is None only if a value of the request means nothing at the site. The
    rest of such a request is checked as well, so that everything is reported at once. A `script` is what the request
    was read from.
    """
    diagnostics = list(checks.check_request(profile, request))
    wrong = {one.check for one in diagnostics}
    request = own = structs.replace(request, **{option: None for name in wrong for option in _LEFT_OUT[name]})

    def planned(request: Request) -> Plan:
        plan = unchecked_plan(profile, request)
        if script is None:
            return plan
        read = script if request is own else structs.replace(script, cpus=None)
        return structs.replace(plan, script=read, directives=request.directive)

    def check(plan: Plan) -> Iterator[Diagnostic]:
        return checks.check_plan(profile, plan, anywhere="partition" in wrong)

    plan = planned(request)
    found = list(check(plan))
    if request.partition is None and script is None and not wrong:
        other = choose(plan, next((one for one in found if one.refuses), None), planned, check)
        plan, found = other, found if other is plan else list(check(other))
    diagnostics = list(with_suggestions([*diagnostics, *found], plan.request, planned, check))
    if wrong:
        return None, diagnostics
    return structs.replace(plan, warnings=[str(one) for one in diagnostics if not one.refuses]), diagnostics
