"""Commands about submitted jobs: list them, ask for their state, read their logs, wait, cancel, explain."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import click
import msgspec

from hpclaunch import runs, schedulers
from hpclaunch.cli.echo import echo
from hpclaunch.runs import Run, State
from hpclaunch.watch import Watch

_JSON = click.option("--json", "as_json", is_flag=True, help="For machines.")
POLL_SECONDS = 2.0  # between two looks; the scheduler is asked as often as its site likes


def complete_job(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Offer the ids of the runs to the shell's completion."""
    return [run.id for run in runs.newest_first() if run.id.startswith(incomplete)]


_JOBS = click.argument("jobs", nargs=-1, metavar="[JOB]...", shell_complete=complete_job)
_JOB = click.argument("job", required=False, shell_complete=complete_job)


def _show(chosen: Sequence[Run], as_json: bool) -> None:
    states = schedulers.states(chosen)
    rows = [(run, states[run.site, run.id]) for run in chosen]
    if as_json:
        click.echo(json.dumps([msgspec.to_builtins(run) | msgspec.to_builtins(state) for run, state in rows], indent=2))
        return
    for run, state in rows:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.submitted))
        size = f"{run.nodes} x {run.tasks_per_node}"
        code = f" exit code {state.exit_code}" if state.exit_code else ""
        reason = f" ({state.reason})" if state.reason else ""
        echo(f"{run.id:<12} {state.word:<9} {run.site} {run.partition} {size} {run.job_name} {when}{code}{reason}")


@click.command("jobs")
@click.option("--limit", "-n", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@_JSON
def jobs_command(limit: int, as_json: bool) -> None:
    """List my jobs, the newest first, on all sites."""
    _show(runs.newest_first()[:limit], as_json)


@click.command("status")
@_JOBS
@_JSON
def status_command(jobs: tuple[str, ...], as_json: bool) -> None:
    """Tell the state of jobs, of the newest where none is named; the scheduler is asked once."""
    _show(runs.find(jobs), as_json)


@click.command("logs")
@_JOB
@click.option("--follow", "-f", is_flag=True, help="Go on until the job ends.")
@click.option("--rank", type=click.IntRange(min=0), help="This rank alone.")
@click.option("--err", is_flag=True, help="What was written to stderr alone.")
def logs_command(job: str | None, follow: bool, rank: int | None, err: bool) -> None:
    """Show what the ranks wrote, lines that many wrote alike folded into one."""
    from hpclaunch import logs

    (run,) = runs.find([job] if job else [])
    lines = logs.follow(run, rank, Watch([run]).look, err) if follow else logs.read(run, rank, err)
    for line in lines:
        echo(line)


@click.command("wait")
@_JOBS
def wait_command(jobs: tuple[str, ...]) -> None:
    """Wait until jobs have ended; the exit code is that of the first that failed."""
    chosen = runs.find(jobs)
    codes = wait(chosen)
    raise SystemExit(next((code for code in codes if code), 0))


@click.command("cancel")
@_JOBS
def cancel_command(jobs: tuple[str, ...]) -> None:
    """Cancel jobs, the newest where none is named."""
    chosen = runs.find(jobs)
    for name in dict.fromkeys(run.scheduler for run in chosen):
        schedulers.scheduler(name).cancel([run for run in chosen if run.scheduler == name])


@click.command("why")
@_JOB
def why_command(job: str | None) -> None:
    """Say why a job waits, or why it died, and what may help."""
    from hpclaunch import why

    (run,) = runs.find([job] if job else [])
    for line in why.explain(run, state_of(run)):
        echo(line)


def state_of(run: Run) -> State:
    """Ask for one run's state."""
    return schedulers.states([run])[run.site, run.id]


def wait(chosen: Sequence[Run]) -> list[int]:
    """Wait until all of `chosen` have ended; return their exit codes in order."""
    watch = Watch(chosen)
    while not watch.look():
        time.sleep(POLL_SECONDS)
    return [watch.states[run.site, run.id].shell_code for run in chosen]
