"""The commands render, run and launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hpclaunch.cli.foreign import rendered
from hpclaunch.cli.options import launch_options, request_options
from hpclaunch.cli.requests import launch_request, planned_request
from hpclaunch.errors import HpclaunchError, printable
from hpclaunch.job.consider import make_plan
from hpclaunch.job.plan import Plan

CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": False}


def quiet_option(command: Any) -> Any:
    """Give a command --quiet."""
    return click.option("--quiet", is_flag=True, help="No summary on stderr, only warnings.")(command)


def summarize(plan: Plan, quiet: bool) -> None:
    """Print the plan's summary and its warnings on stderr."""
    if not quiet:
        click.echo(f"hpclaunch: {printable(plan.summary())}", err=True)
    for warning in plan.warnings:
        click.echo(f"hpclaunch: warning: {printable(warning)}", err=True)


@click.command("render", context_settings=CONTEXT)
@request_options
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write the script to this file.")
@click.option("--explain", is_flag=True, help="Print the origin of each line of the script.")
@click.option("--json", "as_json", is_flag=True, help="With --explain: print JSON.")
@quiet_option
@click.pass_context
def render_command(
    ctx: click.Context, /, output: Path | None, explain: bool, as_json: bool, quiet: bool, **values: Any
) -> None:
    """Print the job script of COMMAND.

    Example: hpclaunch render --site gadi --nodes 2 -A ab12 -o job.sh -- python train.py

    Without a COMMAND, of a bundled workload.
    """
    if as_json and not explain:
        raise click.UsageError("--json goes with --explain: the script itself is text")

    request, profile = planned_request(ctx, values)
    plan = make_plan(profile, request)
    script = rendered(plan)
    summarize(plan, quiet)
    if output is not None:
        private = bool(values["env"]) and ctx.get_parameter_source("env") is not ParameterSource.DEFAULT_MAP
        try:
            _write(output, script.encode(errors="surrogateescape"), private)
        except OSError as error:
            raise HpclaunchError(f"{output}: cannot be written: {error.strerror}") from None
    if explain:
        from hpclaunch.cli.explain import show
        from hpclaunch.job.render import render

        plan = plan.hidden()
        show(ctx, plan, profile, render(plan), as_json)
    elif output is None:
        click.echo(script, nl=False)


def _write(path: Path, content: bytes, private: bool) -> None:
    """Write a script; a `private` one is readable only by its owner from the beginning."""
    if private and (path.is_file() or not path.exists()):
        from hpclaunch.paths import write_whole

        write_whole(path.resolve(), content)
    else:
        path.write_bytes(content)


@click.command("run", context_settings=CONTEXT)
@request_options
@quiet_option
@click.pass_context
def run_command(ctx: click.Context, /, quiet: bool, **values: Any) -> None:
    """Run COMMAND on this machine, on emulated nodes.

    Example: hpclaunch run --nodes 2 --tasks-per-node 2 -- python train.py

    With --site it is a rehearsal: that site's job script, with stand-ins for what only a cluster has. The exit code is
    that of the first rank to fail. Without a COMMAND, a bundled workload.
    """
    from hpclaunch.runs.here import run
    from hpclaunch.schedulers.local import new_id

    request, profile = planned_request(ctx, values, here=True, starts=True)
    plan = make_plan(profile, request)
    script = rendered(plan)
    summarize(plan, quiet)
    if plan.scheduler.here:
        job_id = new_id()
        run(script, job_id, HPCLAUNCH_JOB_ID=job_id)
    from hpclaunch.rehearsal import rehearse

    raise SystemExit(rehearse(plan, script))


@click.command("launch", context_settings=CONTEXT)
@launch_options
@quiet_option
@click.pass_context
def launch_command(ctx: click.Context, /, quiet: bool, **values: Any) -> None:
    """Start COMMAND on every node of the current allocation.

    Example: salloc --nodes=2 hpclaunch launch -- python train.py

    It works in a salloc, a qsub -I, or your own job script, in the current environment. Without a COMMAND, a bundled
    workload.
    """
    import os

    from hpclaunch.runs import allocation
    from hpclaunch.runs.here import run

    found = allocation.find(os.environ)
    request, profile = launch_request(ctx, values, found.scheduler)
    plan = allocation.plan_in(found, profile, request)
    script = rendered(plan)
    summarize(plan, quiet)
    assert plan.run_id is not None  # noqa: S101 - plan_in gives one
    run(script, plan.run_id, PBS_O_WORKDIR=str(Path.cwd()))
