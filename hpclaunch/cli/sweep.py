"""Sweeps: the options of `submit` that make one, its submission as an array or as single jobs, its table."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import click
import msgspec
from msgspec import structs

from hpclaunch.cli.echo import echo_json, echo_table, talk
from hpclaunch.cli.requests import summarized
from hpclaunch.errors import HpclaunchError, counted
from hpclaunch.job import sweep
from hpclaunch.job.consider import make_plan
from hpclaunch.job.machine import look_up_program
from hpclaunch.job.plan import Plan
from hpclaunch.job.render import render
from hpclaunch.job.request import Request
from hpclaunch.profile.search import Profile
from hpclaunch.runs import groups, metrics
from hpclaunch.runs.groups import Element
from hpclaunch.runs.registry import Run
from hpclaunch.schedulers.job import State


class Jobs(msgspec.Struct):
    """The jobs that the options name: their values by number, and the group that they are of if it is there."""

    values: dict[int, dict[str, Any]]
    at_most: int | None = None
    group: groups.Group | None = None
    template: Request | None = None  # with the values' places

    def first(self, template: Request) -> Request:
        """Return the first job's request. Raises RequestError for a place without values, or values without one."""
        self.template = template
        return sweep.swept(template, self.values)


def take_jobs(values: dict[str, Any], again: Jobs | None) -> Jobs | None:
    """Return the jobs of the options, which leave `values`, or of `rerun`; None without any. Raises HpclaunchError."""
    settings, file, array, at_most = (values.pop(name) for name in ("sweep", "sweep_file", "array", "at_most"))
    if bool(settings or file) + (array is not None) + bool(again) > 1:
        raise HpclaunchError("--array, rerun, and --sweep or --sweep-file exclude each other: give one of them")
    if again:
        return structs.replace(again, at_most=at_most or again.at_most)
    if settings or file:
        return Jobs(sweep.product([*([sweep.table(file)] if file else []), *map(sweep.axis, settings)]), at_most)
    if at_most and array is None:
        raise HpclaunchError(f"--at-most {at_most}: there is one job; use it with --sweep, --sweep-file or --array")
    return None if array is None else Jobs(sweep.indices(array), at_most)


class Sweep(msgspec.Struct):
    """A sweep whose every job is planned: `whole` has the price of all, the scripts of an `array` are its one."""

    jobs: Jobs
    whole: Plan
    plans: list[Plan]
    scripts: list[str]
    array: Plan | None = None

    def submit(self, after: Sequence[str]) -> tuple[groups.Group, list[Run]]:
        """Submit all; return their group and runs. Raises SchedulerError."""
        jobs, first, template = self.jobs, self.whole.request, self.jobs.template or self.whole.request
        places = {name: text for name, text in template.env.items() if text != first.env[name]}  # which are no secret
        request = structs.replace(first, command=template.command, env=first.hidden().env | places, jobs=1)
        group = jobs.group or groups.new("sweep", self.whole.name, jobs.values)
        group.at_most, group.request = jobs.at_most, group.request or msgspec.to_builtins(request)
        chosen = [element for element in group.elements if element.number in jobs.values]
        return group, groups.submit(group, [*zip(chosen, self.plans, self.scripts, strict=True)], after, self.array)


def planned(jobs: Jobs, profile: Profile, request: Request, quiet: bool) -> Sweep:
    """Return the sweep of a request; print its summary and the warnings. Raises RequestError if one job is refused."""
    whole, template = make_plan(profile, request), jobs.template or request
    final, plans = request.machine.program_is_final, dict[int, Plan]()
    for i, values in jobs.values.items():
        if values or not plans:  # else it is as the one before
            one = look_up_program(profile.site, sweep.element(request, template, values), starts=final)
            plan = make_plan(profile, structs.replace(one, max_cost=None))
        plans[i] = plan
    array = sweep.as_array(profile, whole, plans, jobs.at_most)
    for i in (i for i, values in jobs.values.items() if not values):
        env = plans[i].request.env | {whole.scheduler.array_index: str(i)}
        plans[i] = structs.replace(plans[i], request=structs.replace(plans[i].request, env=env))
    if array:
        return Sweep(jobs, whole, [*plans.values()], [summarized(array, quiet)] * len(plans), array)
    summarized(whole, quiet)
    if not quiet:
        words = "--dry-run prints the script of the first, others differ in their values only"
        talk(f"{counted(len(plans), 'single job')}; {words}")
    made = [groups.with_all_attempts(plan) if jobs.at_most else plan for plan in plans.values()]
    return Sweep(jobs, whole, made, [render(plan)[0] for plan in made])


def echo_elements(elements: Sequence[Element], runs: Sequence[Run], states: Sequence[State], form: str = "") -> None:
    """Print values and states of elements as a table, or with metrics in a `form`: table, csv or json."""
    known = {run.id: (state, metrics.read(run.path) if form else {}) for run, state in zip(runs, states, strict=True)}
    records: list[Any] = []
    for one in elements:
        job = one.ids[-1] if one.ids else ""
        state, found = known.get(job, (State("not submitted"), {}))
        end = {"state": state.word, "exit_code": state.exit_code, "job": job, "note": state.reason}
        records.append(({"element": one.number}, one.values, found, end))
    names = list(dict.fromkeys(name for part in zip(*records, strict=True) for cells in part for name in cells))
    rows = [[{**one, **found, **values, **end}.get(name) for name in names] for one, values, found, end in records]
    if form == "json":
        echo_json([{**number, "values": values, "metrics": found, **end} for number, values, found, end in records])
    elif form == "csv":
        csv.writer(text := io.StringIO(), lineterminator="\n").writerows([names, *rows])
        click.echo(text.getvalue().encode(errors="surrogateescape"), nl=False)
    else:
        table = [["" if x is None else f"{x:.5g}" if isinstance(x, float) else x for x in row] for row in rows]
        echo_table(names, table)
