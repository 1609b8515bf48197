"""Commands that plan a job: render its script, run it here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hpclaunch import paths
from hpclaunch.cli.options import planned_request, request_options
from hpclaunch.errors import HpclaunchError
from hpclaunch.plan import Plan, make_plan

CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": False}


def quiet_option(command: Any) -> Any:
    """Give a command --quiet."""
    return click.option("--quiet", is_flag=True, help="No summary on stderr, warnings only.")(command)


def talk(plan: Plan, quiet: bool) -> None:
    """Tell the plan on stderr, and what to beware of."""
    if not quiet:
        click.echo(f"hpclaunch: {plan.summary()}", err=True)
    for warning in plan.warnings:
        click.echo(f"hpclaunch: warning: {warning}", err=True)


@click.command("render", context_settings=CONTEXT)
@request_options
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write the script to this file.")
@quiet_option
@click.pass_context
def render_command(ctx: click.Context, /, output: Path | None, quiet: bool, **values: Any) -> None:
    """Print the job script of COMMAND; without one, of the bundled MNIST training."""
    from hpclaunch.render import Cache, render

    request, profile = planned_request(ctx, values)
    plan = make_plan(profile, request)
    script = render(plan, Cache(paths.user_cache()))
    talk(plan, quiet)
    if output is None:
        click.echo(script, nl=False)
        return
    try:
        output.write_text(script, encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise HpclaunchError(f"{output}: cannot be written: {error.strerror}") from None


@click.command("run", context_settings=CONTEXT)
@request_options
@quiet_option
@click.pass_context
def run_command(ctx: click.Context, /, quiet: bool, **values: Any) -> None:
    """Run COMMAND here, on nodes emulated by groups of processes; without one, the bundled MNIST training.

    The exit code is the command's: that of the first rank to fail.
    """
    from hpclaunch.render import Cache, render
    from hpclaunch.run import run

    request, profile = planned_request(ctx, values, here=True)
    if profile.site.scheduler != "local":
        raise HpclaunchError(f"run: site {profile.name} needs {profile.site.scheduler}; leave --site out to run here")
    plan = make_plan(profile, request)
    script = render(plan, Cache(paths.user_cache()))
    talk(plan, quiet)
    run(script)
