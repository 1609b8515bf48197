"""What to request the next time: options for a job that used less than it asked, and what they do to the price."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from msgspec import structs

from hpclaunch.errors import HpclaunchError, counted
from hpclaunch.job.consider import make_plan
from hpclaunch.job.plan import Plan
from hpclaunch.profile.search import Profile
from hpclaunch.schedulers.job import Usage
from hpclaunch.schedulers.walltime import clock

_ROOM = 1.25  # of what was used, to request for the next job


class Used(Usage, frozen=True, kw_only=True):
    """The same, `mem_gb` and `cores` of a node at most, and each GPU's host, number, mean use and idle time in %."""

    cores: float | None = None
    gpus: list[tuple[str, str, float, float]] = []


def advise(profile: Profile, plan: Plan, used: Used, whole: bool) -> Iterator[str]:
    """Yield what to change in the request of `plan`; options for memory, cores and GPUs only if they make it cheaper.

    `whole` is whether the job did all of its work, in one attempt.
    """
    if whole and used.seconds and used.seconds < plan.seconds / 2:
        step = 3600 if used.seconds > 4 * 3600 else 900
        if (seconds := math.ceil(_ROOM * used.seconds / step) * step) < plan.seconds:
            words = f"walltime {plan.walltime}, used {clock(int(used.seconds))}"
            with suppress(HpclaunchError):
                make_plan(profile, structs.replace(plan.request, walltime=clock(seconds)))
                yield f"{words}: --walltime {clock(seconds)} starts sooner"
    asked_gb, gb = plan.mem_gb_per_node or 0, math.ceil(_ROOM * (used.mem_gb or 0))
    memory = {"mem_gb": gb} if used.mem_gb and gb < asked_gb else {}
    if memory and (less := _cheaper(profile, plan, memory, {})):
        yield f"asked {asked_gb} GB of memory a node, used at most {used.mem_gb:.3g} GB: {less}"
    if used.cores is not None and used.cores < plan.cpus_per_node / 2:
        cpus = {"cpus_per_task": max(math.ceil(_ROOM * used.cores / plan.tasks_per_node), 1)}
        less = _cheaper(profile, plan, cpus, memory) if memory else ""
        words = f"used at most {used.cores:.3g} of {counted(plan.cpus_per_node, 'core')} of a node"
        yield f"{words}: {less}" if less else words
    busy = max(Counter(host for host, _, _, idle in used.gpus if idle < 95).values(), default=0)
    if len(used.gpus) == plan.gpus and busy < plan.gpus_per_node:  # else it is not known what the others did
        options = {"gpus_per_node": busy, "tasks_per_node": min(plan.tasks_per_node, max(busy, 1))}
        known = asked_gb or not used.mem_gb  # else the memory is that of what is left
        keep = {"mem_gb": min(gb or asked_gb, asked_gb)} if asked_gb else {}
        less = _cheaper(profile, plan, options, keep) if known else ""
        words = f"used {busy} of {counted(plan.gpus_per_node, 'GPU')} of a node"
        yield f"{words}: {less}" if less else words
    for host, gpu, _, idle in sorted(used.gpus, key=lambda one: -one[3])[:4]:
        if idle >= 50:
            yield f"GPU {gpu} of {host} was idle {idle:.0f} % of the time"


def _cheaper(profile: Profile, plan: Plan, values: dict[str, int], other: dict[str, int]) -> str:
    """Return these options and what they save, or "" if they are refused, or not cheaper than `other` ones alone."""
    less = before = None
    with suppress(HpclaunchError):
        requests = (structs.replace(plan.request, **options) for options in (other, values | other))
        before, less = (make_plan(profile, request).cost for request in requests)
    if not (less and before and plan.cost and less.amount <= 0.95 * before.amount):  # else not worth it
        return ""
    options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in (values | other).items())
    share = 1 - less.amount / plan.cost.amount
    how = "halves the price" if 0.49 < share < 0.51 else f"lowers the price by {share:.0%}"
    return f"{options} {how}, from {plan.cost} to {less} for {plan.walltime}"
