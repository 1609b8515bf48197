"""Which partition a job gets whose request names none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from msgspec import structs

from hpclaunch.job.diagnostic import Diagnostic
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Basis, Request
from hpclaunch.profile.model import Partition

_DECIDE = {"gpus", "size", "memory", "walltime", "qos", "account"}  # checks that another partition may satisfy
Check = Callable[[Plan], Iterable[Diagnostic]]
_ORDER: dict[str, Callable[[Plan], tuple[float, ...]]] = {
    "cheapest": lambda plan: (plan.cost.amount if plan.cost else 0 if plan.partition.free else inf,),
    "fastest": lambda plan: (-(plan.partition.compute_capability or 0), -(plan.partition.cores_per_node or 0)),
}


def choose(plan: Plan, refusal: Diagnostic | None, planned: Callable[[Request], Plan], check: Check) -> Plan:
    """Return `plan`, or the plan on the first other partition that takes the job if the default's `refusal` is given.

    With `choose: cheapest` or `fastest` the site's partitions are tried in that order, the default among them. A
    free partition is not chosen instead of one that is charged, nor one without GPUs instead of one with them unless
    the request or the account says so. If none takes the job the default stays.
    """
    site, default = plan.site, plan.partition_name
    if site.choose == "none" or (refusal.check not in _DECIDE if refusal else not site.choose):
        return plan

    def suffix(partition: Partition) -> str:
        return next((end for end in partition.account_suffixes if (plan.account or "").endswith(end)), "")

    def may_serve(other: Partition) -> bool:
        alike = bool(other.gpus_per_node) is bool(plan.partition.gpus_per_node)
        named = plan.request.gpus_per_node is not None or suffix(other)
        return bool(other.automatic and (plan.partition.free or not other.free) and (alike or named))

    names = [name for name, other in site.partitions.items() if name != default and may_serve(other)]
    others = [planned(structs.replace(plan.request, partition=name)) for name in names]
    order = _ORDER.get(site.choose or "", lambda plan: (plan.partition.small_jobs,))
    for other in sorted([*([] if refusal else [plan]), *others], key=order):
        if other is plan:
            return plan
        if any(one.refuses or one.source.endswith("not confirmed") for one in check(other)):
            continue
        why = f"{default} refuses it, {refusal.message}" if refusal else f"the {site.choose} that takes the job"
        if refusal and refusal.check == "account" and (end := suffix(other.partition)):
            why = f"the account ends in {end}"
        return structs.replace(other, chosen=why, basis={**other.basis, "partition_name": Basis((), why)})
    return plan
