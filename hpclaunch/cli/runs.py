"""The commands about submitted jobs: status, jobs, logs, wait, cancel, why."""

import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress

import click
import msgspec

from hpclaunch import schedulers
from hpclaunch.cli.echo import echo, echo_json, json_option, talk
from hpclaunch.cli.options import completes
from hpclaunch.cli.requests import load_site
from hpclaunch.errors import HpclaunchError, SchedulerError, counted
from hpclaunch.runs import registry
from hpclaunch.runs.registry import Run
from hpclaunch.runs.watch import Watch
from hpclaunch.schedulers import mirror
from hpclaunch.schedulers.job import UNKNOWN, State

POLL_SECONDS = 2.0  # between two looks at run folders; the site's `poll` limits how often its scheduler is asked
_JOB_IDS = completes(lambda _: [run.id for run in registry.newest_first()])
_JOBS = click.argument("jobs", nargs=-1, metavar="[JOB]...", **_JOB_IDS)
_JOB = click.argument("job", required=False, **_JOB_IDS)


def _ask(chosen: Sequence[Run]) -> tuple[list[State], int]:
    """Return the states of `chosen` and an exit code, 3 if none is known; warn of schedulers that do not answer."""
    found, errors = schedulers.states(chosen)
    for message in dict.fromkeys("; ".join(str(error).splitlines()) for error in errors):
        talk(f"warning: {message}")
    states = [found[run.site, run.id] for run in chosen]
    unknown = errors and all(state.word == UNKNOWN for state in states)
    return states, SchedulerError.exit_code if unknown else 0


@click.command("status")
@_JOBS
@click.option("--limit", "-n", type=click.IntRange(min=1), default=1, show_default=True, help="How many, newest first.")
@json_option
def status_command(jobs: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Show the state of jobs, or of the newest.

    Example: hpclaunch status 1234567 --json

    The exit code is 3 if no state is known because the scheduler does not answer.
    """
    chosen = registry.find(jobs) if jobs or limit == 1 else registry.newest_first()[:limit]
    for name in registry.unfinished():
        talk(f"a submission is not finished; use: hpclaunch submit --resume {name}")
    states, code = _ask(chosen)
    rows = list(zip(chosen, states, strict=True))
    if as_json:
        known = ((msgspec.to_builtins(run), msgspec.to_builtins(state), run.restarts[0]) for run, state in rows)
        echo_json([run | state | {"restarts": restarts} for run, state, restarts in known])
        raise SystemExit(code)
    for run, state in rows:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.submitted))
        size = f"{run.nodes} x {run.tasks_per_node}"
        ended = f" exit code {state.exit_code}" if state.exit_code else ""
        reason = f" ({state.reason})" if state.reason else ""
        count, out = run.restarts
        again = f" {counted(count, 'restart')}{', without ' if out else ''}{' '.join(out)}" if count else ""
        end = f"{ended}{reason}{again}"
        echo(f"{run.id:<12} {state.word:<9} {run.site} {run.partition} {size} {run.job_name} {when}{end}")
    raise SystemExit(code)


@click.command("jobs")
@click.option("--limit", "-n", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@json_option
@click.pass_context
def jobs_command(ctx: click.Context, /, limit: int, as_json: bool) -> None:
    """List my newest jobs on all sites: `status -n 20`."""
    ctx.invoke(status_command, jobs=(), limit=limit, as_json=as_json)


@click.command("logs")
@_JOB
@click.option("--follow", "-f", is_flag=True, help="Follow until the job ends.")
@click.option("--rank", type=click.IntRange(min=0), help="Only this rank.")
@click.option("--err", is_flag=True, help="Only stderr.")
def logs_command(job: str | None, follow: bool, rank: int | None, err: bool) -> None:
    """Show what the ranks wrote, identical lines once.

    Example: hpclaunch logs -f --rank 3
    """
    from hpclaunch.runs import logs

    (run,) = registry.find([job] if job else [])
    if run.host and not follow:
        try:
            mirror.refresh([run])
        except SchedulerError as error:
            talk(f"warning: {error}; these are the logs as they were")
    for line in logs.read(run, rank, Watch([run]).look if follow else None, err):
        echo(line)


@click.command("wait")
@_JOBS
def wait_command(jobs: tuple[str, ...]) -> None:
    """Wait until jobs have ended, or the newest.

    Example: hpclaunch wait && hpclaunch submit -- python evaluate.py

    The exit code is that of the first job that failed, 3 for one whose end cannot be known.
    """
    raise SystemExit(next(filter(None, wait(registry.find(jobs))), 0))


@click.command("cancel")
@_JOBS
def cancel_command(jobs: tuple[str, ...]) -> None:
    """Cancel jobs, or the newest."""
    chosen = registry.find(jobs)
    errors = []
    for (name, host, _), mine in schedulers.groups(chosen).items():
        try:
            with mirror.reached(mine) if host else nullcontext():
                schedulers.scheduler(name).cancel(mine)
        except HpclaunchError as error:
            errors.append(f"{' '.join(run.id for run in mine)}: not cancelled: {error}")
    if errors:
        raise SchedulerError(*errors)


@click.command("why")
@_JOB
def why_command(job: str | None) -> None:
    """Explain why a job waits or failed, and what may help."""
    from hpclaunch.runs import why

    (run,) = registry.find([job] if job else [])
    (state,), code = _ask([run])
    site = None
    with suppress(HpclaunchError):  # the profile may be gone by now
        site = load_site(run.site).site.messages
    for line in why.explain(run, state, site):
        echo(line)
    raise SystemExit(code)


def wait(chosen: Sequence[Run]) -> list[int]:
    """Wait until all of `chosen` have ended; return their exit codes in order, 3 for one that is not known."""
    watch = Watch(chosen)
    while not watch.look():
        time.sleep(POLL_SECONDS)
    states = [watch.states[run.site, run.id] for run in chosen]
    for run, state in zip(chosen, states, strict=True):
        if not state.ended:
            talk(
                f"{run.id}: {run.scheduler} does not know this job (any more), and {run.folder} records no end; if it "
                "runs on another cluster, wait there"
            )
    return [state.shell_code if state.ended else SchedulerError.exit_code for state in states]
