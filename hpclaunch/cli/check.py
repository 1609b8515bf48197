"""The command that checks a job and makes nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from hpclaunch.cli.job import CONTEXT
from hpclaunch.cli.options import request_options
from hpclaunch.cli.requests import planned_request
from hpclaunch.errors import printable
from hpclaunch.job.checks import Finding
from hpclaunch.job.consider import consider
from hpclaunch.job.plan import Plan


@click.command("check", context_settings=CONTEXT)
@request_options
@click.option(
    "--script", type=click.Path(path_type=Path), help="Check this script, which somebody else wrote, by line."
)
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_context
def check_command(ctx: click.Context, /, script: Path | None, as_json: bool, **values: Any) -> None:
    """Say what the site would refuse or mishandle of COMMAND's job, all at once, and show the plan; submit nothing.

    The exit code is 1 where anything is refused. `--force CHECK` makes a check warn and not refuse.
    """
    if script is not None:
        from hpclaunch.cli.check_script import check_script
        from hpclaunch.cli.requests import script_options

        host, typed = script_options(ctx, values)
        raise SystemExit(check_script(script, host, values["site"], typed, as_json))
    mistaken: list[tuple[str, str]] = []
    request, profile = planned_request(ctx, values, mistaken=mistaken)
    plan, findings = consider(profile, request)
    if plan and sys.stderr and sys.stderr.isatty():
        from hpclaunch.cli.price import show_remaining

        show_remaining(plan, profile)
    words = [Finding("option", f"--{name.replace('_', '-')}: {what}", fatal=True) for name, what in mistaken]
    report(plan, words + findings, as_json)


def report(plan: Plan | None, findings: list[Finding], as_json: bool) -> None:
    """Print the findings, the refusals first, and the plan; exit 1 where anything is refused."""
    refused = [finding for finding in findings if finding.refuses]
    warned = [finding for finding in findings if not finding.refuses]
    if any(finding.fatal for finding in refused):
        plan = None
    if as_json:
        import json

        found = [msgspec.to_builtins(finding) for finding in refused + warned]
        table = dict(rows(plan)) if plan else None
        click.echo(json.dumps({"refused": bool(refused), "findings": found, "plan": table}, indent=2))
    else:
        for finding in refused + warned:
            click.echo(f"{'refused' if finding.refuses else 'warning'}  {printable(str(finding))}")
        if plan:
            for name, value in rows(plan):
                if value:
                    click.echo(f"{name.replace('_', ' '):<14}  {_shown(value)}")
    raise SystemExit(1 if refused else 0)


def rows(plan: Plan) -> list[tuple[str, Any]]:
    """Return the plan's numbers by name; those of the whole job where the name does not say per node or task."""
    return [
        ("site", plan.name),
        ("partition", plan.partition_name),
        ("account", plan.account),
        ("qos", plan.qos.name if plan.qos else None),
        ("job_name", plan.job_name),
        ("nodes", plan.nodes),
        ("gpus", plan.nodes * plan.gpus_per_node),
        ("gpus_per_node", plan.gpus_per_node),
        ("tasks_per_node", plan.tasks_per_node),
        ("world_size", plan.world_size),
        ("launcher", plan.launcher),
        ("cpus", plan.nodes * plan.cpus_per_node),
        ("cpus_per_task", plan.cpus_per_task),
        ("mem_gb", plan.nodes * (plan.mem_gb_per_node or 0) or None),
        ("jobfs_gb", plan.nodes * (plan.jobfs_gb_per_node or 0) or None),
        ("walltime", plan.walltime),
        ("max_attempts", plan.max_attempts),
        ("cost_at_most", plan.explained_price or None),
        ("modules", plan.modules),
        ("storage", plan.storage),
        ("command", plan.command),
    ]


def _shown(value: Any) -> str:
    if isinstance(value, list):
        from hpclaunch.job.request import quote

        return " ".join(map(quote, value))
    return str(value)
