"""The command that looks for what would keep a job from running."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from msgspec import structs

from hpclaunch import paths
from hpclaunch.cli.echo import echo_json, json_option
from hpclaunch.cli.options import job_command
from hpclaunch.cli.requests import config_file, planned_request, rendered
from hpclaunch.doctor.result import Patient, Result, one_line
from hpclaunch.errors import HpclaunchError, SchedulerError, printable

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}
_RUN = ("module", "setup", "venv", "env", "command")  # what the probe of the environment runs


@job_command("doctor")
@json_option
def doctor_command(ctx: click.Context, /, as_json: bool, **values: Any) -> None:
    """Look for what would keep a job from running.

    Example: hpclaunch doctor --site gadi -A ab12 -- python train.py

    It looks at scheduler, account, python and folders, and submits nothing. It runs the job's modules, venv and setup
    here, but not those that a file of the current folder names. Run it in the folder from which you submit. The exit
    code is 0 without a problem, 1 with one, 3 if the scheduler is out of reach.
    """
    from hpclaunch.doctor import examine
    from hpclaunch.job.consider import make_plan

    request, profile = planned_request(ctx, values)
    patient = Patient(profile=profile, request=request, folder=Path.cwd())
    try:
        plan = make_plan(profile, request)
        script, templates = rendered(plan)
    except HpclaunchError as error:
        patient = structs.replace(patient, refusal=one_line(error))
    else:
        files = [layer.path for layer in profile.layers]
        set_by_config = any(ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP for name in _RUN)
        if set_by_config and (config := config_file()):
            files.append(config)
        foreign = [paths.shown(file) for file in files + templates if not paths.is_trusted(file)]
        patient = structs.replace(patient, plan=plan, script=script, foreign=foreign)
    results = examine(patient)
    print_results(results, as_json)
    if any(result.out_of_reach for result in results):
        raise SystemExit(SchedulerError.exit_code)
    raise SystemExit(any(result.refuses for result in results))


def print_results(results: Sequence[Result], as_json: bool) -> None:
    """Print what was found, as a table or as JSON."""
    if as_json:
        echo_json([result.record() for result in results])
    else:
        width = max(len(result.check) for result in results)
        for result in results:
            verdict = f"{result.verdict:<7}"
            if not os.environ.get("NO_COLOR"):  # https://no-color.org
                verdict = click.style(verdict, fg=_COLOURS[result.verdict])
            click.echo(f"{verdict}  {result.check:<{width}}  {printable(result.message)}")
            if result.remedy:
                click.echo(f"{'':7}  {'':{width}}  -> {printable(result.remedy)}")
