"""The command that says what a job used, and what it cost."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path

import click

from hpclaunch.cli.echo import echo, echo_json, echo_table, json_option, talk
from hpclaunch.cli.help import Command
from hpclaunch.cli.options import JOB_IDS, OUTPUT
from hpclaunch.cli.requests import load_site
from hpclaunch.cli.runs import ask
from hpclaunch.errors import HpclaunchError
from hpclaunch.runs import groups, page, report
from hpclaunch.schedulers import mirror, scheduler
from hpclaunch.schedulers.job import Usage


@click.command("report", cls=Command, epilog="report\nreport 1234567 --html report.html")
@click.argument("job", required=False, **JOB_IDS)
@click.option("--html", type=OUTPUT, help="Write a page with plots to this file.")
@json_option
def report_command(job: str | None, html: Path | None, as_json: bool) -> None:
    """Show what a job used of what it asked for, and its price.

    The numbers are the scheduler's, and those that the job's nodes noted. What is not known is said to be unknown.
    """
    if len(found := groups.runs([] if job is None else [job])) != 1:
        raise HpclaunchError(f"report is of one job: {job or 'the newest'} is {len(found)}; use the id of one of them")
    (run,) = found
    (state,), _ = ask([run])
    accounting, profile = Usage(), None
    try:
        with mirror.reached([run]) if run.host else nullcontext():
            accounting = scheduler(run.scheduler).usage(run)
    except (HpclaunchError, ValueError) as error:  # its words may be anything
        talk(f"warning: no accounting: {'; '.join(str(error).splitlines())}")
    with suppress(HpclaunchError):  # the profile may be gone by now
        profile = load_site(run.site)
    made = report.make(run, state, accounting, profile)
    if html:
        html.write_text(page.make(made), encoding="utf-8", errors="replace")
        talk(f"wrote {html}")
    if as_json:
        echo_json(made.record())
        return
    echo(f"{run.id} ({run.site}, {run.job_name}) {state.word}{'' if state.ended else ', so far'}")
    echo_table(("", "ASKED", "USED"), made.rows())
    for line in made.advice:
        echo(f"- {line}")
