"""The command scale: a job for each number of nodes, and later what they measured."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import structs, to_builtins

from hpclaunch import schedulers
from hpclaunch.cli.echo import echo, echo_json, echo_table, json_option, talk
from hpclaunch.cli.options import CONFIRM_ABOVE, FILE, job_command
from hpclaunch.cli.requests import planned_request, quiet_option, summarized
from hpclaunch.cli.runs import pattern
from hpclaunch.cli.submit import confirm, show_remaining, warned, yes_option
from hpclaunch.errors import HpclaunchError, counted
from hpclaunch.job.consider import make_plan
from hpclaunch.job.cost import Cost
from hpclaunch.runs import groups
from hpclaunch.schedulers import walltime

_EXAMPLES = "scale -N 1,2,4,8 -t 20m -- python train.py\nscale scale-20260131-235900-1a2b"
_HEADER = ("NODES", "RANKS", "SAMPLES/S", "SPEED-UP", "EFFICIENCY", "EPOCH", "PRICE", "JOB")


def _numbers(_ctx: click.Context, _param: click.Parameter, text: str) -> list[int]:
    if not re.fullmatch(r"([1-9]\d{0,8}(,(?!$)|$))*", text):
        raise click.BadParameter(f"{text!r} is no list of numbers; use 1,2,4")
    return sorted({int(word) for word in text.split(",") if word})


@job_command("scale", epilog=_EXAMPLES, without="nodes")
@click.option("--nodes", "-N", metavar="N,N,...", default="", callback=_numbers, help="Submit a job for each of these.")
@click.option("--weak/--strong", help="Work grows with the nodes, or is always the same.  [default: strong]")
@click.option("--metric", type=pattern, metavar="RE", help="Read samples/s, RE's first group, from rank 0's log.")
@click.option("--at-most", type=click.IntRange(min=1), help="Run so many at once.  [default: all; on this machine 1]")
@click.option("--output", "-o", type=FILE, default=Path(), help="Folder for scaling.csv, scaling.svg, scaling.png.")
@CONFIRM_ABOVE
@yes_option
@click.option("--dry-run", is_flag=True, help="Print the scripts and submit nothing.")
@json_option
@quiet_option
def scale_command(
    ctx: click.Context, /, nodes: list[int], output: Path, metric: re.Pattern[str] | None, as_json: bool, **values: Any
) -> None:
    """Submit COMMAND on each number of --nodes, or show what that measured.

    The first prints the id of the study. Without --nodes, in place of COMMAND are the ids of studies, by default the
    newest; those of their jobs that have ended are compared, and drawn in one picture. --strong: the command does the
    same work on any number of nodes. --weak: each rank does; the program reads WORLD_SIZE.
    """
    names, text = values["command"], metric.pattern if metric else ""
    if nodes:
        _submit(ctx, nodes, {"weak": values.pop("weak"), "metric": text}, as_json, values)
    elif any(name.startswith("-") for name in names):  # options may follow the ids
        again = {"output": output, "metric": text or None, "as_json": as_json}
        with ctx.command.make_context("scale", [*names], ctx, allow_interspersed_args=True, default_map=again) as inner:
            ctx.command.invoke(inner)
    else:
        _show(names, text, output, as_json)


def _submit(
    ctx: click.Context, nodes: list[int], about: dict[str, Any], as_json: bool, values: dict[str, Any]
) -> None:
    """Check all plans, say what they cost, submit a job for each size and print the study's id."""
    yes, dry_run, quiet, at_most = (values.pop(name) for name in ("yes", "dry_run", "quiet", "at_most"))
    request, profile = planned_request(ctx, values, starts=True)
    plans = [make_plan(profile, structs.replace(request, nodes=number)) for number in nodes]
    if len(names := {plan.partition_name for plan in plans}) > 1:
        raise HpclaunchError(f"these sizes run in several partitions, {', '.join(sorted(names))}; use --partition")
    if costs := [plan.cost for plan in plans if plan.cost]:
        total = Cost(round(sum(one.amount for one in costs), 2), costs[0].unit, " + ".join(map(str, costs)))
        if total.amount > (request.max_cost or total.amount):
            raise HpclaunchError(f"all jobs may cost {total.explained}, above the limit of {request.max_cost:g}")
    plans = [structs.replace(plan, warnings=plan.warnings if plan is plans[-1] else []) for plan in plans]
    scripts = [summarized(plan, quiet) for plan in plans]
    if dry_run:
        click.echo("\n".join(scripts).encode(errors="surrogateescape"), nl=False)
        return
    if costs:
        talk(f"all jobs: at most {total}")
        whole = structs.replace(plans[-1], cost=total)
        show_remaining(whole, profile)
        confirm(whole, yes)
    at_most = at_most or (1 if plans[0].scheduler.here else None)
    elements = {number: {"nodes": number} for number in nodes}
    known = {"request": to_builtins(plans[0].hidden().request), "at_most": at_most, "about": about}
    group = groups.new("scale", profile.name, elements, **known)
    if at_most:
        plans = [groups.with_all_attempts(plan) for plan in plans]
    ...
