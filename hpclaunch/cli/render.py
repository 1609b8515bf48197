"""The command that prints a job script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hpclaunch.cli.echo import json_option
from hpclaunch.cli.options import OUTPUT, job_command
from hpclaunch.cli.requests import planned_request, quiet_option, summarized
from hpclaunch.errors import HpclaunchError
from hpclaunch.job.consider import make_plan


@job_command(
    "render", epilog="render -s gadi -N 2 -A ab12 -o job.sh -- python train.py\nrender --explain -- python train.py"
)
@click.option("--output", "-o", type=OUTPUT, help="Write the script to this file.")
@click.option("--explain", is_flag=True, help="Print the origin of each line of the script.")
@json_option
@quiet_option
def render_command(
    ctx: click.Context, /, output: Path | None, explain: bool, as_json: bool, quiet: bool, **values: Any
) -> None:
    """Print the job script of COMMAND.

    Without a COMMAND, of a bundled workload.
    """
    if as_json and not explain:
        raise click.UsageError("--json goes with --explain: the script itself is text")
    if output and output.is_file() and output.stat().st_size and b"Made by hpclaunch" not in output.read_bytes()[:2000]:
        raise HpclaunchError(f"{output} exists and is not a script of hpclaunch's; use another name or remove it")

    request, profile = planned_request(ctx, values)
    plan = make_plan(profile, request)
    script = summarized(plan, quiet)
    if output is not None:
        if values["env"] and (output.is_file() or not output.exists()):  # not /dev/stdout
            output.touch()
            output.chmod(0o600)
        output.write_bytes(script.encode(errors="surrogateescape"))
    if explain:
        from hpclaunch.cli.explain import show
        from hpclaunch.job.render import render

        plan = plan.hidden()
        show(ctx, plan, profile, render(plan)[0], as_json)
    elif output is None:
        click.echo(script, nl=False)
