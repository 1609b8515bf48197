"""The command that submits."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click

from hpclaunch.cli.echo import echo
from hpclaunch.cli.foreign import rendered
from hpclaunch.cli.job import CONTEXT, quiet_option, talk
from hpclaunch.cli.options import CONFIRM_ABOVE, nearer, planned_request, request_options
from hpclaunch.errors import HpclaunchError
from hpclaunch.job.plan import Plan, make_plan
from hpclaunch.runs import registry


@click.command("submit", context_settings=CONTEXT)
@request_options
@CONFIRM_ABOVE
@click.option("--yes", "-y", is_flag=True, help="Submit without asking, whatever --confirm-above says.")
@click.option("--wait", "wait_for_end", is_flag=True, help="Wait for the end; the exit code is the job's.")
@click.option("--follow", is_flag=True, help="Show what the ranks write meanwhile; implies --wait.")
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
    """Submit COMMAND as a job and print the job's id alone; without one, a bundled workload."""
    # What a script of the user's own costs is not known, so no price of it can be refused.
    limits = {name: values.pop(name) for name in ("max_cost", "confirm_above")} if script is not None else {}
    values |= {name: None for name in ("command", "workload") if nearer(ctx, "script", name)}
    request, profile = planned_request(ctx, values, starts=not after)  # an earlier job may make the program
    before = [_last_attempt(run) for run in registry.find(after)] if after else []
    name = ""
    if script is not None:
        from hpclaunch.scripts import own

        if request.command or request.workload:
            raise HpclaunchError("give a COMMAND, --workload or --script, one of them")
        text, plan, name = own.read(script, profile)
    else:
        plan = make_plan(profile, request)
        text = rendered(plan)
        talk(plan, quiet)
    if dry_run:
        click.echo(text.encode(errors="surrogateescape"), nl=False)
        return
    if script is not None:
        _tell_unpriced(plan, script, limits)
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
    """Submit and print the id before anything else; what fails after the scheduler's answer is a warning."""
    from hpclaunch.executors import script_executor

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("ignore")  # Python's own
        warnings.simplefilter("always", UserWarning)
        run = script_executor(plan).submit_script(text, before, name, submitted=_print_id).run
    for warning in found:
        echo(f"hpclaunch: warning: {warning.message}", err=True)
    return run


def _print_id(job_id: str) -> None:
    try:
        click.echo(job_id)
    except OSError as error:
        echo(f"hpclaunch: warning: job {job_id} is submitted, but stdout: {error.strerror}", err=True)


def _tell_unpriced(plan: Plan, script: Path, limits: dict[str, Any]) -> None:
    """Say that no price limits a script of a person's own, where the person or the site's profile wants a limit."""
    named = [f"--{name.replace('_', '-')}" for name, limit in limits.items() if limit is not None]
    if "--confirm-above" not in named and plan.site.confirm_above is not None:
        named.append(f"confirm_above of {plan.name}")
    if named:
        click.echo(
            f"hpclaunch: warning: {' and '.join(named)}: what {script} costs is not known, it is submitted", err=True
        )


def _last_attempt(run: registry.Run) -> str:
    """Return the id of the job that ends `run`. Raises HpclaunchError where that one is yet to come."""
    if run.scheduler == "pbs" and run.max_attempts > 1:
        if len(run.further_ids) < run.max_attempts - 1:
            raise HpclaunchError(
                f"--after {run.id}: that run may go on in further PBS jobs, whose ids nobody knows yet",
                f"submit once it has ended: hpclaunch wait {run.id} && hpclaunch submit ...",
            )
        return run.further_ids[-1]
    return run.id
