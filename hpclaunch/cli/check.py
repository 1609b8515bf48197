"""The command that checks a job and makes nothing."""

import sys
from pathlib import Path
from typing import Any

import click

from hpclaunch.cli.echo import coloured, echo_json, json_option, talk
from hpclaunch.cli.options import INPUT, job_command
from hpclaunch.cli.requests import planned_request
from hpclaunch.errors import counted, printable
from hpclaunch.job.checks import Diagnostic
from hpclaunch.job.consider import consider
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import quote

# Of the plan; those of the whole job where the name does not say per node or task.
_NUMBERS = (
    "account", "qos", "job_name", "nodes", "gpus", "gpus_per_node", "tasks_per_node", "world_size", "launcher", "cpus",
    "cpus_per_task", "mem_gb", "jobfs_gb", "walltime", "max_attempts", "cost_at_most", "modules", "storage", "command",
)  # fmt: skip


@job_command("check", epilog="check -s gadi -A ab12 -N 2 -t 48h -- python train.py\ncheck --script old.sh --diff")
@click.option("--script", type=INPUT, help="Check this script, line by line.")
@click.option("--fix", is_flag=True, help="With --script: print it with what is certain fixed.")
@click.option("--diff", is_flag=True, help="With --script: print what --fix changes.")
@click.option("--as-request", is_flag=True, help="With --script: print the hpclaunch command for its job.")
@json_option
def check_command(
    ctx: click.Context, /, script: Path | None, fix: bool, diff: bool, as_request: bool, as_json: bool, **values: Any
) -> None:
    """Check a job, or a script, and submit nothing.

    All that is wrong is printed at once, then the plan. The exit code is 1 if anything is refused. `--force CHECK`
    makes a check warn and not refuse.
    """
    if script is not None:
        from hpclaunch.cli.check_script import check_script, print_request
        from hpclaunch.cli.requests import script_options

        typed = script_options(ctx, values)
        if as_request:
            raise SystemExit(print_request(script, values["site"]))
        raise SystemExit(check_script(script, values["site"], typed, fix=fix, diff=diff, as_json=as_json))
    if fix or diff or as_request:
        raise click.UsageError("--fix, --diff and --as-request need --script FILE", ctx)
    mistaken: list[tuple[str, str]] = []
    request, profile = planned_request(ctx, values, mistaken=mistaken)
    plan, found = consider(profile, request)
    if plan and plan.chosen:
        talk(f"partition {plan.partition_name}: {plan.chosen}")
    if plan and sys.stderr and sys.stderr.isatty():
        from hpclaunch.cli.submit import show_remaining

        show_remaining(plan, profile)
    found += [
        Diagnostic("option", f"--{name.removeprefix('pass_').replace('_', '-')}: {what}", fatal=True)
        for name, what in mistaken
    ]
    found.sort(key=lambda one: (not one.refuses, one.check != "option"))
    refused = any(one.refuses for one in found)
    numbers = {} if plan is None or any(one.fatal and one.refuses for one in found) else _numbers(plan)
    if as_json:
        echo_json({"refused": refused, "diagnostics": [one.record() for one in found], "plan": numbers or None})
    else:
        for one in found:
            click.echo(f"{coloured('refused' if one.refuses else 'warning')}  {printable(str(one))}")
        for name, value in numbers.items():
            if value:
                text = " ".join(map(quote, value)) if isinstance(value, list) else value
                click.echo(f"{name.replace('_', ' '):<14}  {text}")
        if plan and not refused:
            verdict = f"{plan.summary()}; nothing refused, {counted(len(found), 'warning')}"
            click.echo(f"{coloured('fine', 14)}  {verdict}")
    raise SystemExit(refused)


def _numbers(plan: Plan) -> dict[str, Any]:
    """Return the plan's numbers by name."""
    other = {"qos": plan.qos and plan.qos.name, "cost_at_most": plan.explained_price or None}
    numbers = {name: other[name] if name in other else getattr(plan, name) for name in _NUMBERS}
    return {"site": plan.name, "partition": plan.partition_name, **numbers}
