"""The command that looks for what would keep a job from running."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hpclaunch import paths
from hpclaunch.cli.foreign import rendered_from
from hpclaunch.cli.job import CONTEXT
from hpclaunch.cli.options import request_options
from hpclaunch.cli.requests import config_file, planned_request
from hpclaunch.errors import HpclaunchError, SchedulerError, printable

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}
_CONFIG = ParameterSource.DEFAULT_MAP
_RUN = ("module", "setup", "venv", "env", "command")  # what the probe of the environment runs


@click.command("doctor", context_settings=CONTEXT)
@request_options
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_context
def doctor_command(ctx: click.Context, /, as_json: bool, **values: Any) -> None:
    """Examine this machine, and what a job with these options needs: scheduler, account, python, folders.

    It submits nothing. It runs the job's lines of environment here: modules, venv, setup; but none that a file of the
    current folder names. Run it in the folder from which you submit. The exit code is 0 without a problem, 1 with one,
    3 where the scheduler is out of reach.
    """
    from hpclaunch.doctor import examine
    from hpclaunch.doctor.result import Patient
    from hpclaunch.job.consider import make_plan

    request, profile = planned_request(ctx, values)
    plan, script, refusal = None, "", ""
    files = [layer.path for layer in profile.layers]
    if (config := config_file()) and any(ctx.get_parameter_source(name) is _CONFIG for name in _RUN):
        files.append(config)
    try:
        plan = make_plan(profile, request)
        script, templates = rendered_from(plan)
        files += templates
    except HpclaunchError as error:
        plan, refusal = None, " ".join(str(error).split())
    results = examine(
        Patient(
            profile=profile,
            request=request,
            plan=plan,
            script=script,
            refusal=refusal,
            folder=Path.cwd(),
            strange=[paths.shown(file) for file in files if not paths.is_trusted(file)],
        )
    )
    if as_json:
        click.echo(json.dumps([result.record() for result in results], indent=2))
    else:
        width = max(len(result.probe) for result in results)
        for result in results:
            verdict = f"{result.verdict:<7}"
            if not os.environ.get("NO_COLOR"):  # https://no-color.org
                verdict = click.style(verdict, fg=_COLOURS[result.verdict])
            click.echo(f"{verdict}  {result.probe:<{width}}  {printable(result.found)}")
            if result.remedy and result.verdict != "ok":
                click.echo(f"{'':7}  {'':{width}}  -> {printable(result.remedy)}")
    if any(result.out_of_reach for result in results):
        raise SystemExit(SchedulerError.exit_code)
    raise SystemExit(1 if any(result.verdict == "problem" for result in results) else 0)
