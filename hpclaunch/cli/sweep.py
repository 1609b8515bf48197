"""Sweeps: the options of `submit` that make one, and its submission as an array or as single jobs."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from hpclaunch.cli.echo import echo_json, talk
from hpclaunch.cli.requests import summarized
from hpclaunch.errors import HpclaunchError
from hpclaunch.job import sweep
from hpclaunch.job.consider import make_plan
from hpclaunch.job.plan import Plan
from hpclaunch.job.render import render
from hpclaunch.job.request import Request
from hpclaunch.profile.search import Profile
from hpclaunch.runs import groups
from hpclaunch.runs.groups import Element, Group
from hpclaunch.runs.registry import Run


class Jobs(msgspec.Struct):
    """The jobs that the options name: their values by number, and the group that they are of if it is there."""

    values: dict[int, dict[str, Any]]
    at_most: int | None = None
    group: Group | None = None

    def change(self, request: Request) -> Request:
        """Return the request of the first job, with all of them in it. Raises RequestError."""
        return sweep.swept(request, self.values)


def named(
    settings: Sequence[str], file: Path | None, array: str | None, at_most: int | None, again: Jobs | None
) -> Jobs | None:
    """Return the jobs that the options name, or those of `rerun`; None without a sweep. Raises HpclaunchError."""
    many = [option for option, value in {"--sweep": settings, "--sweep-file": file, "--array": array}.items() if value]
    if again and many:
        raise HpclaunchError(f"{many[0]} does not go with rerun: the sweep has its values; use hpclaunch submit")
    if again:
        again.at_most = at_most or again.at_most
        return again
    if array is not None and len(many) > 1:
        raise HpclaunchError(f"--array and {many[0]} exclude each other: give one of them")
    if array is not None:
        return Jobs(sweep.indices(array), at_most)
    if not many and at_most:
        raise HpclaunchError(f"--at-most {at_most}: there is one job; use it with --sweep, --sweep-file or --array")
    axes = [sweep.axis(one) for one in settings]
    if file:
        try:
            with file.open(newline="", encoding="utf-8-sig") as rows:
                axes.insert(0, sweep.table(str(file), list(csv.reader(rows, strict=True))))
        except (OSError, ValueError, csv.Error) as error:
            raise HpclaunchError(f"--sweep-file {file}: {getattr(error, 'strerror', None) or error}") from None
    return Jobs(dict(sweep.product(axes)), at_most) if axes else None


class Sweep(msgspec.Struct):
    """A sweep whose every job is planned: `whole` has the price of all, `script` is the array's or the first job's."""

    jobs: Jobs
    whole: Plan
    plans: list[Plan]
    scripts: list[str]
    array: Plan | None

    def submit(self, after: Mapping[str, Sequence[str]], submitted: Callable[[str], None]) -> list[Run]:
        """Submit all; `submitted` gets the sweep's id as soon as a job has its own. Raises SchedulerError."""
        request, of = self.whole.request, self.whole.request.sweep
        template = structs.replace(request, command=of.command, env=of.env, sweep=None) if of else request
        group = self.jobs.group or groups.new("sweep", self.whole.name, self.jobs.values)
        group.at_most = self.jobs.at_most
        group.request = group.request or msgspec.to_builtins(template.hidden())
        chosen = [element for element in group.elements if element.number in self.jobs.values]
        told: list[Element] = []

        def tell(element: Element) -> None:
            told.append(element)
            if told == [element]:
                submitted(group.id)

        self.jobs.group = group
        if self.array:
            return groups.submit_array(group, chosen, self.plans, self.array, self.scripts[0], after, tell)
        return groups.submit(group, list(zip(chosen, self.plans, self.scripts, strict=True)), after, tell)

    def echo_json(self) -> None:
        """Print the sweep's id, its price, and the values and the newest id of each element."""
        group, cost = self.jobs.group, self.whole.cost
        assert group  # noqa: S101 - it is submitted
        found = [{"element": one.number, "values": one.values, "id": one.ids[-1] if one.ids else None}
                 for one in group.elements]  # fmt: skip
        price = {"amount": cost.amount, "unit": cost.unit} if cost else None
        echo_json({"id": group.id, **self.whole.about, "price": price, "elements": found})


def planned(jobs: Jobs, profile: Profile, request: Request, quiet: bool) -> Sweep:
    """Return the sweep of a request; print its summary and the warnings. Raises RequestError if one job is refused."""
    whole = make_plan(profile, request)
    if array := sweep.as_array(profile, whole, jobs.at_most):
        script = summarized(array, quiet)
        own = [sweep.element(request, number) for number in jobs.values]
        plans = [structs.replace(whole, request=one, command=one.command or whole.command) for one in own]
        return Sweep(jobs, whole, plans, [script], array)
    summarized(whole, quiet)
    index = "" if any(jobs.values.values()) else whole.scheduler.array_index
    own = [structs.replace(sweep.element(request, number, index), max_cost=None) for number in jobs.values]
    plans = [make_plan(profile, one) for one in own]
    if jobs.at_most:
        plans = list(map(groups.with_all_attempts, plans))
    for warning in dict.fromkeys(text for plan in plans for text in plan.warnings if text not in whole.warnings):
        talk(f"warning: {warning}")
    return Sweep(jobs, whole, plans, [render(plan)[0] for plan in plans], None)
