"""Commands about submitted jobs: list them, ask for their state, read their logs, wait, cancel, explain."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import click
import msgspec

from hpclaunch import schedulers
from hpclaunch.cli.echo import echo
from hpclaunch.errors import HpclaunchError, SchedulerError
from hpclaunch.runs import registry
from hpclaunch.runs.registry import UNKNOWN, Run, State
from hpclaunch.runs.watch import Watch
from hpclaunch.schedulers import Key

_JSON = click.option("--json", "as_json", is_flag=True, help="For machines.")
POLL_SECONDS = 2.0  # between two looks; the scheduler is asked as often as its site likes


def complete_job(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Offer the ids of the runs to the shell's completion."""
    return [run.id for run in registry.newest_first() if run.id.startswith(incomplete)]


_JOBS = click.argument("jobs", nargs=-1, metavar="[JOB]...", shell_complete=complete_job)
_JOB = click.argument("job", required=False, shell_complete=complete_job)


def _ask(chosen: Sequence[Run]) -> tuple[dict[Key, State], int]:
    """Return the states of `chosen` and an exit code, 3 if none is known; warn of schedulers that gave no answer."""
    states, errors = schedulers.states(chosen)
    for said in dict.fromkeys("; ".join(str(error).splitlines()) for error in errors):
        click.echo(f"hpclaunch: warning: {said}", err=True)
    unknown = errors and all(state.word == UNKNOWN for state in states.values())
    return states, SchedulerError.exit_code if unknown else 0


def _show(chosen: Sequence[Run], as_json: bool) -> None:
    states, code = _ask(chosen)
    rows = [(run, states[run.site, run.id]) for run in chosen]
    if as_json:
        click.echo(json.dumps([msgspec.to_builtins(run) | msgspec.to_builtins(state) for run, state in rows], indent=2))
        raise SystemExit(code)
    for run, state in rows:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.submitted))
        size = f"{run.nodes} x {run.tasks_per_node}"
        ended = f" exit code {state.exit_code}" if state.exit_code else ""
        reason = f" ({state.reason})" if state.reason else ""
        echo(f"{run.id:<12} {state.word:<9} {run.site} {run.partition} {size} {run.job_name} {when}{ended}{reason}")
    raise SystemExit(code)


@click.command("jobs")
@click.option("--limit", "-n", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@_JSON
def jobs_command(limit: int, as_json: bool) -> None:
    """List my jobs, the newest first, on all sites.

    Where a scheduler is out of reach, its jobs are UNKNOWN; the exit code is 3 if that leaves no state known.
    """
    _show(registry.newest_first()[:limit], as_json)


@click.command("status")
@_JOBS
@_JSON
def status_command(jobs: tuple[str, ...], as_json: bool) -> None:
    """Tell the state of jobs, of the newest where none is named; the scheduler is asked once.

    Where a scheduler is out of reach, its jobs are UNKNOWN; the exit code is 3 if that leaves no state known.
    """
    _show(registry.find(jobs), as_json)


@click.command("logs")
@_JOB
@click.option("--follow", "-f", is_flag=True, help="Go on until the job ends.")
@click.option("--rank", type=click.IntRange(min=0), help="This rank alone.")
@click.option("--err", is_flag=True, help="What was written to stderr alone.")
def logs_command(job: str | None, follow: bool, rank: int | None, err: bool) -> None:
    """Show what the ranks wrote, lines that many wrote alike folded into one."""
    from hpclaunch.runs import logs

    (run,) = registry.find([job] if job else [])
    lines = logs.follow(run, rank, Watch([run]).look, err) if follow else logs.read(run, rank, err)
    for line in lines:
        echo(line)


@click.command("wait")
@_JOBS
def wait_command(jobs: tuple[str, ...]) -> None:
    """Wait until jobs have ended; the exit code is that of the first that failed.

    That of a job that its scheduler does not know is 3, and 3 where a scheduler is out of reach.
    """
    chosen = registry.find(jobs)
    codes = wait(chosen)
    raise SystemExit(next((code for code in codes if code), 0))


@click.command("cancel")
@_JOBS
def cancel_command(jobs: tuple[str, ...]) -> None:
    """Cancel jobs, the newest where none is named."""
    chosen = registry.find(jobs)
    errors = []
    for (name, _), mine in schedulers.groups(chosen).items():
        try:
            schedulers.scheduler(name).cancel(mine)
        except HpclaunchError as error:
            errors.append(f"{' '.join(run.id for run in mine)}: not cancelled: {error}")
    if errors:
        raise SchedulerError(*errors)


@click.command("why")
@_JOB
def why_command(job: str | None) -> None:
    """Say why a job waits, or why it died, and what may help."""
    from hpclaunch.runs import why

    (run,) = registry.find([job] if job else [])
    states, code = _ask([run])
    for line in why.explain(run, states[run.site, run.id]):
        echo(line)
    raise SystemExit(code)


def wait(chosen: Sequence[Run]) -> list[int]:
    """Wait until all of `chosen` have ended; return their exit codes in order, 3 for one that nobody knows."""
    watch = Watch(chosen)
    while not watch.look():
        time.sleep(POLL_SECONDS)
    codes = []
    for run in chosen:
        state = watch.states[run.site, run.id]
        codes.append(state.shell_code if state.ended else SchedulerError.exit_code)
        if not state.ended:
            click.echo(
                f"hpclaunch: {run.id}: {run.scheduler} does not know this job, or no longer, and {run.folder} records "
                "no end; if it runs on another cluster, wait there",
                err=True,
            )
    return codes
