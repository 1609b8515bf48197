"""The price on the way to a submission: what remains of the allocation, and whether the user means it."""

from __future__ import annotations

import sys

import click

from hpclaunch import paths
from hpclaunch.errors import HpclaunchError
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import quote
from hpclaunch.profile.search import Profile


def show_remaining(plan: Plan, profile: Profile) -> None:
    """Print on stderr what remains of the allocation, if the site's own command says so, and whether it is enough.

    A command that a profile in the current folder names is not run: that may be anybody's repository.
    """
    from hpclaunch.runs import budget

    for layer in profile.layers:
        if "allocation" in layer.data and not paths.is_trusted(layer.path):
            file, own = quote(paths.shown(layer.path)), paths.shown(paths.user_config() / "site_profiles")
            click.echo(f"hpclaunch: {file}: its allocation.command is not run; if it is yours, move it to {own}", err=True)
            return
    if (left := budget.remaining(plan)) is None:
        return
    click.echo(f"hpclaunch: {plan.account or 'the account'} has {left} left", err=True)
    if short := budget.shortage(plan, left):
        click.echo(f"hpclaunch: warning: {short}", err=True)


def confirm(plan: Plan, yes: bool) -> None:
    """Ask before a job above `confirm_above` is submitted; without a terminal tell its price and go on.

    Raises HpclaunchError where the answer is not yes.
    """
    asked = plan.request.confirm_above
    most = plan.site.confirm_above if asked is None else asked
    if yes or most is None or plan.cost is None or plan.cost.amount <= most:
        return
    told = f"at most {plan.explained_price}, above {most:g} (confirm_above)"
    if not at_terminal():
        click.echo(f"hpclaunch: {told}: submitted unasked, nobody is at a terminal; --max-cost refuses", err=True)
        return
    # Not click.confirm, which writes a blank to stdout: that is for the job's id alone.
    click.echo(f"hpclaunch: {told}. Submit? [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        click.echo(err=True)
    if answer.strip().lower() not in ("y", "yes"):
        raise HpclaunchError("not submitted")


def at_terminal() -> bool:
    """Tell whether a person can be asked: stdin and stderr are terminals."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
