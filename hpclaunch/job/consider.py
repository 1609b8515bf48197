"""A plan and all that the checks say of it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from hpclaunch.errors import RequestError
from hpclaunch.job import checks
from hpclaunch.job.checks import Finding
from hpclaunch.job.checks.suggestions import with_suggestions
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request
from hpclaunch.job.sizes import unchecked_plan
from hpclaunch.profile.search import Profile

# The options that are left out of the plan when a check says that their value means nothing at a site.
_LEFT_OUT = {"partition": (), "walltime": ("walltime", "warn_before"), "workload": ("workload",), "force": ()}


def make_plan(profile: Profile, request: Request) -> Plan:
    """Return the plan of a request, its warnings included.

    Raises RequestError with every refusal at once, each with the numbers and what to use.
    """
    plan, findings = consider(profile, request)
    refusals = [str(finding) for finding in findings if finding.refuses]
    if plan is None or refusals:
        raise RequestError(*refusals)
    return plan


def consider(profile: Profile, request: Request) -> tuple[Plan | None, list[Finding]]:
    """Return the plan of a request and what the checks say of it, refusals and warnings alike.

    A refused request has a plan too; the plan is None only if a value of the request means nothing at the site. The
    rest of such a request is checked as well, so that everything is reported at once.
    """
    findings = list(checks.request_findings(profile, request))
    wrong = {finding.check for finding in findings}
    request = structs.replace(request, **{option: None for name in wrong for option in _LEFT_OUT[name]})
    plan = unchecked_plan(profile, request)

    def check(request: Request) -> Iterator[Finding]:
        return checks.plan_findings(profile, unchecked_plan(profile, request), anywhere="partition" in wrong)

    findings = list(with_suggestions([*findings, *check(request)], request, check))
    if wrong:
        return None, findings
    warnings = [str(finding) for finding in findings if not finding.refuses]
    return structs.replace(plan, warnings=warnings), findings
