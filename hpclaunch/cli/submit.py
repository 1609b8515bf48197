"""The command submit."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click

from hpclaunch.cli.echo import echo
from hpclaunch.cli.foreign import rendered
from hpclaunch.cli.job import CONTEXT, quiet_option, summarize
from hpclaunch.cli.options import CONFIRM_ABOVE, request_options
from hpclaunch.cli.requests import nearer, planned_request
from hpclaunch.errors import HpclaunchError
from hpclaunch.job.consider import make_plan
from hpclaunch.job.plan import Plan
from hpclaunch.runs import registry
from hpclaunch.schedulers import scheduler


@click.command("submit", context_settings=CONTEXT)
@request_options
@CONFIRM_ABOVE
@click.option("--yes", "-y", is_flag=True, help="Submit without asking, whatever --confirm-above says.")
@click.option("--wait", "wait_for_end", is_flag=True, help="Wait for the end; the exit code is the job's.")
@click.option("--follow", is_flag=True, help="Show what the ranks write until then; implies --wait.")
@click.option("--after", multiple=True, metavar="JOB", help="Start once this job has succeeded (repeatable).")
@click.option("--dry-run", is_flag=True, help="Print the script and submit nothing.")
@click.option("--script", type=click.Path(path_type=Path), help="Submit this script as it is, instead of a COMMAND.")
@quiet_option
@click.pass_context
def submit_command(
    ctx: click.Context,
    /,
    yes: bool,
    wait_for_end: bool,
    follow: bool,
    after: tuple[str, ...],
    dry_run: bool,
    script: Path | None,
    quiet: bool,
    **values: Any,
) -> None:
    """Submit COMMAND as a job and print only the job's id.

    Example: hpclaunch submit --nodes 2 -t 2h -- python train.py --epochs 50

    Without a COMMAND, a bundled workload.
    """
    # The price of a user's own script is not known, so no limit on it can be kept.
    limits = {name: values.pop(name) for name in ("max_cost", "confirm_above")} if script is not None else {}
    values |= {name: None for name in ("command", "workload") if nearer(ctx, "script", name)}
    request, profile = planned_request(ctx, values, starts=not after)  # an earlier job may make the program
    before = [_last_attempt(run) for run in registry.find(after)] if after else []
    name = ""
    if script is not None:
        from hpclaunch.scripts import own

        if request.command or request.workload:
            raise HpclaunchError("COMMAND, --workload and --script exclude each other: give one of them")
        text, plan, name = own.read(script, profile)
    else:
        plan = make_plan(profile, request)
        text = rendered(plan)
        summarize(plan, quiet)
    if dry_run:
        click.echo(text.encode(errors="surrogateescape"), nl=False)
        return
    if script is not None:
        _warn_unpriced(plan, script, limits)
    else:
        from hpclaunch.cli import price

        if not quiet and price.at_terminal():
            price.show_remaining(plan, profile)
        price.confirm(plan, yes)
    run = _submit(plan, text, before, name)
    if wait_for_end or follow:
        from hpclaunch.cli.runs import wait

        if follow:
            from hpclaunch.runs import logs
            from hpclaunch.runs.watch import Watch

            for line in logs.follow(run, None, ended=Watch([run]).look):
                echo(line, err=True)
        raise SystemExit(wait([run])[0])


def _submit(plan: Plan, text: str, before: list[str], name: str) -> registry.Run:
    """Submit, and print the id first: what fails after the scheduler's answer is a warning."""
    from hpclaunch.executors import script_executor

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("ignore")  # Python's own
        warnings.simplefilter("always", UserWarning)
        run = script_executor(plan).submit_script(text, before, name).run
    _print_id(run.id)
    for warning in found:
        echo(f"hpclaunch: warning: {warning.message}", err=True)
    return run


def _print_id(job_id: str) -> None:
    try:
        click.echo(job_id)
    except OSError as error:
        echo(f"hpclaunch: warning: job {job_id} is submitted, but stdout: {error.strerror}", err=True)


def _warn_unpriced(plan: Plan, script: Path, limits: dict[str, Any]) -> None:
    """Warn that a limit on the price does not hold for a user's own script."""
    named = [f"--{name.replace('_', '-')}" for name, limit in limits.items() if limit is not None]
    if "--confirm-above" not in named and plan.site.confirm_above is not None:
        named.append(f"confirm_above of {plan.name}")
    if named:
        click.echo(
            f"hpclaunch: warning: {' and '.join(named)} cannot be kept: the price of {script} is not known", err=True
        )


def _last_attempt(run: registry.Run) -> str:
    """Return the id of the last job of `run`. Raises HpclaunchError if it is not submitted yet."""
    if run.max_attempts > 1 and scheduler(run.scheduler).resubmits:
        if len(run.further_ids) < run.max_attempts - 1:
            raise HpclaunchError(
                f"--after {run.id}: that run may continue in further jobs, whose ids are not known yet",
                f"use: hpclaunch wait {run.id} && hpclaunch submit ...",
            )
        return run.further_ids[-1]
    return run.id
