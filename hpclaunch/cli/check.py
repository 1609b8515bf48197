"""The command that checks a job and makes nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from hpclaunch.cli.job import CONTEXT
from hpclaunch.cli.options import request_options
from hpclaunch.cli.requests import planned_request
from hpclaunch.errors import printable
from hpclaunch.job.checks import Diagnostic
from hpclaunch.job.consider import consider
from hpclaunch.job.plan import Plan


@click.command("check", context_settings=CONTEXT)
@request_options
@click.option("--script", type=click.Path(path_type=Path), help="Check this script, line by line.")
@click.option("--fix", is_flag=True, help="With --script: print it with what is certain fixed.")
@click.option("--diff", is_flag=True, help="With --script: print what --fix changes.")
@click.option("--as-request", is_flag=True, help="With --script: print the hpclaunch command for its job.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_context
def check_command(
    ctx: click.Context, /, script: Path | None, fix: bool, diff: bool, as_request: bool, as_json: bool, **values: Any
) -> None:
    """Check COMMAND's job, all at once, and show its plan; submit nothing.

    The exit code is 1 if anything is refused. `--force CHECK` makes a check warn and not refuse.
    """
    if script is not None:
        from hpclaunch.cli.check_script import check_script
        from hpclaunch.cli.requests import script_options

        host, typed = script_options(ctx, values)
        raise SystemExit(check_script(script, host, values["site"], typed, fix=fix, diff=diff, as_json=as_json,
                                      as_request=as_request))  # fmt: skip
    if fix or diff or as_request:
        raise click.UsageError("--fix, --diff and --as-request need --script FILE", ctx)
    mistaken: list[tuple[str, str]] = []
    request, profile = planned_request(ctx, values, mistaken=mistaken)
    plan, diagnostics = consider(profile, request)
    if plan and sys.stderr and sys.stderr.isatty():
        from hpclaunch.cli.price import show_remaining

        show_remaining(plan, profile)
    words = [Diagnostic("option", f"--{name.replace('_', '-')}: {what}", fatal=True) for name, what in mistaken]
    report(plan, words + diagnostics, as_json)


def report(plan: Plan | None, diagnostics: list[Diagnostic], as_json: bool) -> None:
    """Print the diagnostics, the refusals first, and the plan; exit 1 if anything is refused."""
    refused = [one for one in diagnostics if one.refuses]
    warned = [one for one in diagnostics if not one.refuses]
    if any(one.fatal for one in refused):
        plan = None
    if as_json:
        import json

        found = [one.record() for one in refused + warned]
        table = dict(rows(plan)) if plan else None
        click.echo(json.dumps({"refused": bool(refused), "diagnostics": found, "plan": table}, indent=2))
    else:
        for one in refused + warned:
            click.echo(f"{'refused' if one.refuses else 'warning'}  {printable(str(one))}")
        if plan:
            for name, value in rows(plan):
                if value:
                    click.echo(f"{name.replace('_', ' '):<14}  {_shown(value)}")
    raise SystemExit(1 if refused else 0)


_ROWS = (
    "site", "partition", "account", "qos", "job_name", "nodes", "gpus", "gpus_per_node", "tasks_per_node", "world_size",
    "launcher", "cpus", "cpus_per_task", "mem_gb", "jobfs_gb", "walltime", "max_attempts", "cost_at_most", "modules",
    "storage", "command",
)  # fmt: skip


def rows(plan: Plan) -> list[tuple[str, Any]]:
    """Return the plan's numbers by name; those of the whole job where the name does not say per node or task."""
    own = {
        "site": plan.name,
        "partition": plan.partition_name,
        "qos": plan.qos.name if plan.qos else None,
        "gpus": plan.nodes * plan.gpus_per_node,
        "cpus": plan.nodes * plan.cpus_per_node,
        "mem_gb": plan.nodes * (plan.mem_gb_per_node or 0) or None,
        "jobfs_gb": plan.nodes * (plan.jobfs_gb_per_node or 0) or None,
        "cost_at_most": plan.explained_price or None,
    }
    return [(name, own[name] if name in own else getattr(plan, name)) for name in _ROWS]


def _shown(value: Any) -> str:
    if isinstance(value, list):
        from hpclaunch.job.request import quote

        return " ".join(map(quote, value))
    return str(value)
