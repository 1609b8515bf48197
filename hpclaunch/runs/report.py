"""What a job used of what it asked for, and what it really cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from msgspec import Struct, convert, structs, to_builtins

from hpclaunch.job.advice import Used, advise
from hpclaunch.job.cost import Cost
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request
from hpclaunch.job.sizes import unchecked_plan
from hpclaunch.profile.search import Profile
from hpclaunch.runs import usage
from hpclaunch.runs.registry import Run
from hpclaunch.schedulers import run_folder
from hpclaunch.schedulers.job import COMPLETED, TIMEOUT, State, Usage
from hpclaunch.schedulers.walltime import clock

_UNKNOWN = "unknown"


class Report(Struct):
    """A job's use. `accounting` is the scheduler's, `nodes` is what the nodes noted, `used` what follows from both.

    The plan is that of the request with the profile of today; it, the profile and the price are None if not known.
    """

    run: Run
    state: State
    accounting: Usage
    nodes: list[usage.Node]
    profile: Profile | None
    plan: Plan | None
    used: Used
    paid: Cost | None
    advice: list[str]

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield what was asked, what was used, and the price, in words."""
        plan, run, used = self.plan, self.run, self.used
        asked = 0 if plan and plan.scheduler.here else run.seconds
        words = f"{run.max_attempts} x " * (run.max_attempts > 1) + clock(asked) if asked else ""
        yield "walltime", words, _part(used.seconds, asked * run.max_attempts, clock(int(used.seconds or 0)))
        asked = plan.cpus_per_node if plan else 0
        mean = (
            used.cpu_seconds / used.seconds / (len(self.nodes) or run.nodes)
            if used.cpu_seconds and used.seconds
            else None
        )
        most = f", {used.cores:.3g} at most" if used.cores is not None else ""
        yield "cores of a node", str(asked or ""), _part(mean, asked, f"{mean or 0:.3g} on average") + most
        asked = plan.mem_gb_per_node or 0 if plan else 0
        yield "memory of a node", f"{asked} GB" * bool(asked), _part(used.mem_gb, asked, f"{used.mem_gb or 0:.3g} GB")
        mean = sum(one[2] for one in used.gpus) / len(used.gpus) if used.gpus else None
        if mean is not None or (plan and plan.gpus):
            words = f"{mean or 0:.0f} % of {len(used.gpus)} that were seen"
            yield "GPUs", str(plan.gpus if plan else ""), _part(mean, 0, words)
        free = "free of charge" if plan and plan.partition.free else _UNKNOWN
        yield "price", str(plan.cost) if plan and plan.cost else "", self.paid.explained if self.paid else free
        yield "energy", "", f"{(used.joules or 0) / 3.6e6:.3g} kWh" if used.joules else _UNKNOWN

    def record(self) -> dict[str, Any]:
        """Return what --json prints; null is what is not known."""
        sizes = ("nodes", "cpus_per_node", "gpus_per_node", "mem_gb_per_node", "seconds", "max_attempts", "cost")
        asked = {name: to_builtins(getattr(self.plan, name)) for name in sizes} if self.plan else None
        parts = {name: to_builtins(getattr(self, name)) for name in ("used", "paid", "accounting", "advice")}
        return {**to_builtins(self.run), **to_builtins(self.state), "asked": asked, **parts}


def make(run: Run, state: State, accounting: Usage, profile: Profile | None) -> Report:
    """Return the report of a run."""
    nodes, plan, paid = usage.read(run.path), None, None
    with suppress(
        OSError, ValueError, LookupError, TypeError, RecursionError
    ):  # there is none of a plain sbatch or qsub
        said = json.loads((run.path / run_folder.PLAN).read_bytes())
        request = convert(said["request"] | {"partition": said["partition_name"]}, Request)
        plan = unchecked_plan(profile, request) if profile else None
    series = ([value for node in nodes for _, value in node.series[kind, ""]] for kind in usage.OF_NODE)
    cores, memory = (max(found, default=0) for found in series)
    used = Used(
        seconds=accounting.seconds or max((sum(b - a for a, b in node.times) for node in nodes), default=0) or None,
        cpu_seconds=max(accounting.cpu_seconds or 0, sum(node.cpu_seconds for node in nodes)) or None,
        cores=cores or None,
        mem_gb=max((accounting.mem_gb or 0) / (len(nodes) or run.nodes), memory) or None,
        gpus=[gpu for node in nodes for gpu in node.gpus()],
        joules=accounting.joules,
    )
    if profile and plan and used.seconds and not plan.fewest_nodes:
        walltime = f"{max(round(used.seconds), 1)}s"
        with suppress(ValueError):  # more than any walltime
            paid = unchecked_plan(profile, structs.replace(plan.request, walltime=walltime, max_attempts=1)).cost
    advice: list[str] = []
    if profile and plan and state.word in (COMPLETED, TIMEOUT) and not plan.scheduler.here:
        advice += advise(profile, plan, used, whole=state.word == COMPLETED and run.max_attempts == 1)
    return Report(run, state, accounting, nodes, profile, plan, used, paid, advice)


def _part(used: float | None, asked: float, words: str) -> str:
    """Return the words for what was used, with its share of what was asked; it is unknown if it is None."""
    return _UNKNOWN if used is None else f"{words} ({used / asked:.0%})" if asked else words
