"""What a job may cost at most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpclaunch import walltime as times
from hpclaunch.job.checks.finding import Found, is_unconfirmed, partition_key

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan


def max_cost(plan: Plan) -> Iterator[Found]:
    """Refuse a job that may cost more than --max-cost; warn where its price is not known."""
    most, cost = plan.request.max_cost, plan.cost
    if most is None or plan.site.scheduler == "local":
        return
    key = partition_key(plan, "charge")
    if cost is None:
        if not plan.partition.free:
            where = f"partition {plan.partition_name} of {plan.name}"
            yield Found(
                f"{most:g} cannot be promised: what an hour costs in {where} is not known, "
                "its profile has neither `charge` nor `free`",
                key,
                warns=True,
            )
        return
    weak = is_unconfirmed(plan.site, key)
    # To the cent, as the price is; a person's own limit holds also where the price is not sure.
    if cost.amount > round(most, 2):
        seconds = int(plan.seconds * most / cost.amount + 1e-6) // 60 * 60
        sure = ", a price that is not confirmed" if weak else ""
        yield Found(
            f"{most:g} {cost.unit} allowed, the job may cost {cost.explained}{sure}",
            None if weak else key,
            suggestions=[{"walltime": times.clock(seconds)} if seconds else {}, {"max_cost": cost.amount}],
        )
    elif weak:
        yield Found(f"{most:g} {cost.unit} allowed, and {cost} fit; but the price is not confirmed", key)
