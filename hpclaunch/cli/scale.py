"""The command scale: a job for each number of nodes, and later what they measured."""

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import structs, to_builtins

from hpclaunch import schedulers
from hpclaunch.cli.echo import echo, echo_json, echo_table, json_option, talk
from hpclaunch.cli.options import CONFIRM_ABOVE, job_command
from hpclaunch.cli.requests import planned_request, quiet_option, summarized
from hpclaunch.cli.runs import pattern
from hpclaunch.cli.submit import submit_sweep, yes_option
from hpclaunch.cli.sweep import Jobs, Sweep
from hpclaunch.errors import HpclaunchError, counted
from hpclaunch.job.consider import make_plan
from hpclaunch.job.cost import Cost
from hpclaunch.runs import groups
from hpclaunch.runs.scaling import measure


def _numbers(_ctx: click.Context, _param: click.Parameter, text: str) -> list[int]:
    if not re.fullmatch(r"([1-9]\d{0,8}(,(?!$)|$))*", text):
        raise click.BadParameter(f"{text!r} is no list of numbers; use 1,2,4")
    return sorted({int(word) for word in text.split(",") if word})


@job_command("scale", epilog="scale -N 1,2,4,8 -t 20m -- python train.py\nscale --json", without="nodes")
@click.option("--nodes", "-N", metavar="N,N,...", default="", callback=_numbers, help="Submit a job for each of these.")
@click.option("--weak/--strong", default=None, help="Fix the work of each rank, or that of all.  [default: strong]")
@click.option("--metric", type=pattern, metavar="RE", help="Read samples/s, RE's first group, from rank 0's log.")
@click.option("--at-most", type=click.IntRange(min=1), help="Run so many at once.  [default: all; on this machine 1]")
@CONFIRM_ABOVE
@yes_option
@click.option("--dry-run", is_flag=True, help="Print the first script and submit nothing.")
@json_option
@quiet_option
def scale_command(ctx: click.Context, /, nodes: list[int], **values: Any) -> None:
    """Measure how COMMAND scales with the number of nodes.

    With --nodes it is submitted on each of them, and the study's id is printed. Without, name studies in place of
    COMMAND, or none for the newest: their jobs that have ended are compared, and drawn in one picture.
    """
    own = {name: values.pop(name) for name in ("weak", "metric", "at_most", "yes", "dry_run", "as_json", "quiet")}
    words, about = values["command"], {"weak": own["weak"], "metric": own["metric"] and own["metric"].pattern}
    about = {name: value for name, value in about.items() if value is not None}
    if not nodes and any(word.startswith("-") for word in words):  # options may follow the ids
        with ctx.command.make_context("scale", [*words], ctx, allow_interspersed_args=True, default_map=own) as inner:
            ctx.command.invoke(inner)
        return
    if not nodes:
        _show(words, about, own["as_json"])
        return
    request, profile = planned_request(ctx, values, starts=True)
    plans = [make_plan(profile, structs.replace(request, nodes=number)) for number in nodes]
    if len(names := {plan.partition_name for plan in plans}) > 1:
        raise HpclaunchError(f"these sizes run in several partitions, {', '.join(sorted(names))}; use --partition")
    most = own["at_most"] or (1 if plans[0].scheduler.here else None)  # here they would slow each other down
    plans = [groups.with_all_attempts(plan) for plan in plans] if most else plans
    plans = [structs.replace(plan, warnings=plan.warnings if plan is plans[-1] else []) for plan in plans]
    scripts, whole = [summarized(plan, own["quiet"]) for plan in plans], plans[-1]
    if costs := [plan.cost for plan in plans if plan.cost]:
        cost = Cost(round(sum(one.amount for one in costs), 2), costs[0].unit, " + ".join(map(str, costs)))
        whole = structs.replace(whole, cost=cost)
        if request.max_cost is not None and cost.amount > request.max_cost:
            raise HpclaunchError(f"all jobs may cost {cost.explained}, above the limit of {request.max_cost:g}")
        if not own["quiet"]:
            talk(f"all jobs: {whole.price}")
    jobs = Jobs({number: {"nodes": number} for number in nodes}, most)
    jobs.group = groups.new("scale", profile.name, jobs.values, about={"weak": False, "metric": ""} | about)
    submit_sweep(Sweep(jobs, whole, plans, scripts), profile, [], ctx.params)


def _show(names: Sequence[str], about: Mapping[str, Any], as_json: bool) -> None:
    """Print what studies measured, and write their table and picture; the newest if none is named."""
    known = [one for one in groups.newest_first() if one.kind == "scale" and any(part.ids for part in one.elements)]
    chosen = [one for name in names for one in known if one.id == name] if names else known[:1]
    if len(chosen) < max(len(names), 1):
        raise HpclaunchError(f"no scaling study {' or '.join(names)}; use: hpclaunch scale --nodes 1,2,4 -- COMMAND")
    studies = []
    for group in chosen:
        states, errors = schedulers.states(runs := groups.runs([group.id]))
        group.about |= about
        studies.append(measure.results(group, runs, states))
        for line in [*(f"{job} left out: {reason}" for job, reason in studies[-1].left_out.items()), *errors]:
            talk(f"warning: {line}")
    if not (studies := [study for study in studies if study.sizes]):
        raise HpclaunchError("no size is measured yet")
    if as_json:
        echo_json([to_builtins(study) | study.choice for study in studies])
    for study in () if as_json else studies:
        rows = []
        for size in study.sizes:
            epoch = f"{size.epoch_seconds:,.1f} s" if size.epoch_seconds else "-"
            price = f"{size.epoch_price:,.4g} {study.unit}" if size.epoch_price else "-"
            gain = f"{size.samples_per_second:,.1f}", f"{size.speed_up:.2f}", f"{100 * size.efficiency:.0f} %"
            rows.append((size.nodes, size.ranks, *gain, epoch, price, size.job))
        echo(study.caption)
        echo_table(("NODES", "RANKS", "SAMPLES/S", "SPEED-UP", "EFFICIENCY", "EPOCH", "PRICE", "JOB"), rows)
        echo("within 80 % efficiency: " + ", ".join(f"{counted(n, 'node')} {what}" for what, n in study.choice.items()))
    table = [{"study": one.id, "place": one.place, **to_builtins(size)} for one in studies for size in one.sizes]
    with Path("scaling.csv").open("w", newline="") as file:
        csv.writer(file).writerows([table[0], *(row.values() for row in table)])
    try:
        from hpclaunch.runs.scaling import figure

        figure.draw(studies)
        talk("scaling.csv, scaling.svg and scaling.png are written")
    except ImportError as error:
        talk(f"scaling.csv is written, but no picture: {error}; use: pip install 'hpclaunch[plot]'")
