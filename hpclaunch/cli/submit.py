"""The command submit, with the price before: what remains of the allocation, and the confirmation above a limit."""

import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from hpclaunch import paths
from hpclaunch.cli.echo import echo, echo_json, json_option, talk
from hpclaunch.cli.job import quiet_option, summarized
from hpclaunch.cli.options import CONFIRM_ABOVE, JOB_IDS, job_command
from hpclaunch.cli.requests import planned_request
from hpclaunch.errors import HpclaunchError
from hpclaunch.job.consider import make_plan
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import quote
from hpclaunch.profile.search import Profile
from hpclaunch.runs import registry
from hpclaunch.schedulers import scheduler
from hpclaunch.schedulers.run_folder import RUNS

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask, whatever the price.")


@job_command("submit", epilog="submit -N 2 -t 2h -- python train.py\nsubmit --after 1234 --follow -- python eval.py")
@CONFIRM_ABOVE
@yes_option
@click.option("--wait", "wait_for_end", is_flag=True, help="Wait for the end; the exit code is the job's.")
@click.option("--follow", is_flag=True, help="Show what the ranks write until then; implies --wait.")
@click.option("--after", multiple=True, metavar="JOB", **JOB_IDS, help="Start once this job succeeded (repeatable).")
@click.option("--dry-run", is_flag=True, help="Print the script and submit nothing.")
@click.option("--script", type=click.Path(path_type=Path), help="Submit this script as it is, instead of a COMMAND.")
@json_option
@quiet_option
def submit_command(
    ctx: click.Context,
    /,
    yes: bool,
    wait_for_end: bool,
    follow: bool,
    after: tuple[str, ...],
    dry_run: bool,
    script: Path | None,
    as_json: bool,
    quiet: bool,
    **values: Any,
) -> None:
    """Submit COMMAND as a job and print only the job's id.

    Without a COMMAND, a bundled workload.
    """
    request, profile = planned_request(ctx, values, starts=not after)  # an earlier job may make the program
    before = [_last_attempt(run) for run in registry.find(after)] if after else []
    name = ""
    if script is None:
        plan = make_plan(profile, request)
        text = summarized(plan, quiet)
    else:
        from hpclaunch.scripts import own

        if request.command or request.workload:
            raise HpclaunchError("COMMAND, --workload and --script exclude each other: give one of them")
        text, plan, name = own.read(script, profile)
    if dry_run:
        click.echo(text.encode(errors="surrogateescape"), nl=False)
        return
    if script is None:
        if not quiet and at_terminal():
            show_remaining(plan, profile)
        confirm(plan, yes)
    elif (request.max_cost, request.confirm_above, plan.site.confirm_above) != (None, None, None):
        talk(f"warning: max_cost and confirm_above are not checked: the price of {script} is not known")
    run = _submit(plan, text, before, name, partial(_print_id, plan, as_json))
    if wait_for_end or follow:
        from hpclaunch.cli.progress import Progress
        from hpclaunch.cli.runs import exit_code, wait

        if follow:
            from hpclaunch.runs import logs

            with Progress([run]) as progress:
                for line in logs.read(run, None, progress.look):
                    progress.clear()
                    echo(line, err=True)
        raise SystemExit(exit_code(wait([run])[0]))


def _submit(plan: Plan, text: str, before: list[str], name: str, submitted: Callable[[str], None]) -> registry.Run:
    """Submit, and print the id first: what fails after the scheduler's answer is a warning."""
    from hpclaunch.executors.script import ScriptExecutor

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("ignore")  # Python's own
        warnings.simplefilter("always", UserWarning)
        run = ScriptExecutor(plan).submit_script(text, before, name, submitted=submitted).run
    for warning in found:
        talk(f"warning: {warning.message}")
    return run


def _print_id(plan: Plan, as_json: bool, job_id: str) -> None:
    price = {"amount": plan.cost.amount, "unit": plan.cost.unit} if plan.cost else None
    record = {"id": job_id, "folder": str(Path(RUNS, job_id).absolute()), **plan.about, "price": price}
    try:
        echo_json(record) if as_json else click.echo(job_id)
    except OSError as error:
        talk(f"warning: job {job_id} is submitted, but stdout: {error.strerror}")


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


def show_remaining(plan: Plan, profile: Profile) -> None:
    """Print on stderr what remains of the allocation, by the site's own command, and warn if that is too little.

    A command named by a profile of the current folder is not run: that may be anybody's repository.
    """
    from hpclaunch.runs import budget

    for layer in profile.layers:
        if "allocation" in layer.data and not paths.is_trusted(layer.path):
            file, own = quote(paths.shown(layer.path)), paths.shown(paths.user_config() / "site_profiles")
            talk(f"{file}: allocation.command is not run; if it is yours, move it to {own}")
            return
    if left := budget.remaining(plan):
        talk(f"{plan.account or 'the account'} has {left} left")
        if short := budget.shortage(plan, left):
            talk(f"warning: {short}")


def confirm(plan: Plan, yes: bool) -> None:
    """Ask before a job above `confirm_above` is submitted; without a terminal, print its price and go on.

    Raises HpclaunchError if the answer is not yes.
    """
    own = plan.request.confirm_above
    most = plan.site.confirm_above if own is None else own
    if yes or most is None or plan.cost is None or plan.cost.amount <= most:
        return
    price = f"at most {plan.explained_price}, above {most:g} (confirm_above)"
    if not at_terminal():
        talk(f"{price}: submitted unasked, stdin is no terminal; use --max-cost")
        return
    # Not click.confirm, which writes a blank to stdout, where only the job's id goes.
    click.echo(f"hpclaunch: {price}. Submit? [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        click.echo(err=True)
    if answer.strip().lower() not in ("y", "yes"):
        raise HpclaunchError("not submitted")


def at_terminal() -> bool:
    """Return whether the user can be asked: stdin and stderr are terminals."""
    return all(stream and stream.isatty() for stream in (sys.stdin, sys.stderr))
