"""The price before a submission: what remains of the allocation, and the confirmation above a limit."""

from __future__ import annotations

import sys

import click

from hpclaunch import paths
from hpclaunch.errors import HpclaunchError
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import quote
from hpclaunch.profile.search import Profile


def show_remaining(plan: Plan, profile: Profile) -> None:
    """Print on stderr what remains of the allocation, by the site's own command, and warn if that is too little.

    A command named by a profile of the current folder is not run: that may be anybody's repository.
    """
    from hpclaunch.runs import budget

    for layer in profile.layers:
        if "allocation" in layer.data and not paths.is_trusted(layer.path):
            file, own = quote(paths.shown(layer.path)), paths.shown(paths.user_config() / "site_profiles")
            click.echo(f"hpclaunch: {file}: allocation.command is not run; if it is yours, move it to {own}", err=True)
            return
    if (left := budget.remaining(plan)) is None:
        return
    click.echo(f"hpclaunch: {plan.account or 'the account'} has {left} left", err=True)
    if short := budget.shortage(plan, left):
        click.echo(f"hpclaunch: warning: {short}", err=True)


def confirm(plan: Plan, yes: bool) -> None:
    """Ask before a job above `confirm_above` is submitted; without a terminal, print its price and go on.

    Raises HpclaunchError if the answer is not yes.
    """
    asked = plan.request.confirm_above
    most = plan.site.confirm_above if asked is None else asked
    if yes or most is None or plan.cost is None or plan.cost.amount <= most:
        return
    price = f"at most {plan.explained_price}, above {most:g} (confirm_above)"
    if not at_terminal():
        click.echo(f"hpclaunch: {price}: submitted unasked, stdin is no terminal; use --max-cost", err=True)
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
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
