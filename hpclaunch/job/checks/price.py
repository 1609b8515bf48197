"""What a job may cost at most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpclaunch import walltime as times
from hpclaunch.job.checks.check import is_unconfirmed, partition_key
from hpclaunch.job.diagnostic import Found

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan


def max_cost(plan: Plan) -> Iterator[Found]:
    """Refuse a job that may cost more than --max-cost; warn if its price is not known."""
    most, cost = plan.request.max_cost, plan.cost
    if most is None or plan.scheduler.here:
        return
    key = partition_key(plan, "charge")
    if cost is None:
        if not plan.partition.free:
            where = f"partition {plan.partition_name} of {plan.name}"
            yield Found(
                f"the limit of {most:g} cannot be checked: the price of {where} is not known, "
                "its profile has neither `charge` nor `free`",
                key,
                warns=True,
            )
        return
    weak = is_unconfirmed(plan.site, key)
    # To the cent, as the price is; a user's own limit holds even if the price is not sure.
    if cost.amount > round(most, 2):
        seconds = int(plan.seconds * most / cost.amount + 1e-6) // 60 * 60
        sure = ", a price that is not confirmed" if weak else ""
        yield Found(
            f"the job may cost {cost.explained}{sure}, above the limit of {most:g} {cost.unit}",
            None if weak else key,
            suggestions=[{"walltime": times.clock(seconds)} if seconds else {}, {"max_cost": cost.amount}],
        )
    elif weak:
        yield Found(f"{cost} fits the limit of {most:g} {cost.unit}, but the price is not confirmed", key)
