"""Sweeps: the options of `submit` that make one, and its submission as an array or as single jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import structs

from hpclaunch.cli.echo import echo_json, talk
from hpclaunch.cli.options import FILE
from hpclaunch.cli.requests import summarized
from hpclaunch.errors import HpclaunchError
from hpclaunch.job import sweep as sweeps
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
        return sweeps.swept(request, self.values)


_OPTIONS = (
    click.option("--sweep", multiple=True, metavar="NAME=VALUES", help="A job for each of V1,V2 or A..B (repeatable)."),
    click.option("--sweep-file", type=FILE, help="A job for each row of a CSV; the first row has the names."),
    click.option("--array", metavar="INDICES", help="A job for each of 0-9, 0-9:2 or 1,3,7."),
    click.option("--at-most", type=click.IntRange(min=1), help="Jobs of the sweep that run at once.  [default: all]"),
)


def sweep_options(command: Any) -> Any:
    """Add the options that make a sweep."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_jobs(values: dict[str, Any], again: Jobs | None) -> Jobs | None:
    """Return the jobs that the options name, which leave `values`, or those of `rerun`; None without a sweep.

    Raises HpclaunchError.
    """
    options = {f"--{name.replace('_', '-')}": values.pop(name) for name in ("sweep", "sweep_file", "array")}
    given = [option for option, value in options.items() if value not in (None, ())]
    settings, file, array = options.values()
    at_most = values.pop("at_most")
    if again:
        if given:
            raise HpclaunchError(f"{given[0]} does not go with rerun: the sweep has its values; use hpclaunch submit")
        return structs.replace(again, at_most=at_most or again.at_most)
    if array is not None:
        if given[1:]:
            raise HpclaunchError(f"--array and {given[0]} exclude each other: give one of them")
        return Jobs(sweeps.indices(array), at_most)
    if at_most and not given:
        raise HpclaunchError(f"--at-most {at_most}: there is one job; use it with --sweep, --sweep-file or --array")
    axes = [*([_table(file)] if file else []), *map(sweeps.axis, settings)]
    return Jobs(sweeps.product(axes), at_most) if axes else None


def _table(file: Path) -> sweeps.Axis:
    import csv  # only here: it takes time to import

    try:
        with file.open(newline="", encoding="utf-8-sig") as rows:
            return sweeps.table(str(file), list(csv.reader(rows, strict=True)))
    except (OSError, ValueError, csv.Error) as error:
        raise HpclaunchError(f"--sweep-file {file}: {getattr(error, 'strerror', None) or error}") from None


class Sweep(msgspec.Struct):
    """A sweep whose every job is planned: `whole` has the price of all, `script` is the array's or the first job's."""

    jobs: Jobs
    whole: Plan
    plans: list[Plan]
    scripts: list[str]
    array: Plan | None

    def submit(self, after: Sequence[str], submitted: Callable[[str], None]) -> list[Run]:
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
    if array := sweeps.as_array(profile, whole, jobs.at_most):
        script = summarized(array, quiet)
        own = [sweeps.element(request, number) for number in jobs.values]
        plans = [structs.replace(whole, request=one, command=one.command or whole.command) for one in own]
        return Sweep(jobs, whole, plans, [script], array)
    summarized(whole, quiet)
    index = "" if any(jobs.values.values()) else whole.scheduler.array_index
    own = [structs.replace(sweeps.element(request, number, index), max_cost=None) for number in jobs.values]
    plans = [make_plan(profile, one) for one in own]
    if jobs.at_most:
        plans = list(map(groups.with_all_attempts, plans))
    for warning in dict.fromkeys(text for plan in plans for text in plan.warnings if text not in whole.warnings):
        talk(f"warning: {warning}")
    return Sweep(jobs, whole, plans, [render(plan)[0] for plan in plans], None)
