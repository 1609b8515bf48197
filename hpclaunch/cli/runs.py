"""The commands about submitted jobs: status, jobs, logs, wait, cancel, why, fetch."""

import re
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any

import click
import msgspec

from hpclaunch import schedulers
from hpclaunch.cli.echo import coloured, echo, echo_json, echo_table, json_option, talk
from hpclaunch.cli.help import Command
from hpclaunch.cli.options import JOB_IDS
from hpclaunch.cli.progress import Progress
from hpclaunch.cli.requests import load_site
from hpclaunch.errors import HpclaunchError, SchedulerError, counted
from hpclaunch.runs import groups, registry
from hpclaunch.runs.registry import Run
from hpclaunch.schedulers import mirror, run_folder
from hpclaunch.schedulers.job import COMPLETED, UNKNOWN, State

POLL_SECONDS = 2.0  # between two looks at run folders; the site's `poll` limits how often its scheduler is asked
_JOBS = click.argument("jobs", nargs=-1, metavar="[JOB]...", **JOB_IDS)
_JOB = click.argument("job", required=False, **JOB_IDS)
_FAILED = click.option(
    "--failed", is_flag=True, expose_value=False, help="Of these, only the jobs that failed.",
    callback=lambda ctx, _, failed: ctx.meta.update(failed=failed),
)  # fmt: skip


def _chosen(*names: str | None) -> list[Run]:
    """Return the runs of these names; with --failed those that ended otherwise than well. Raises HpclaunchError."""
    runs = groups.runs([name for name in names if name is not None])
    if not click.get_current_context().meta.get("failed"):
        return runs
    return [run for run, state in zip(runs, ask(runs)[0], strict=True) if state.ended and state.word != COMPLETED]


def ask(chosen: Sequence[Run]) -> tuple[list[State], int]:
    """Return the states of `chosen` and an exit code, 3 if none is known; warn of schedulers that do not answer."""
    found, errors = schedulers.states(chosen)
    for message in dict.fromkeys("; ".join(str(error).splitlines()) for error in errors):
        talk(f"warning: {message}")
    states = [found[run.site, run.id] for run in chosen]
    unknown = errors and all(state.word == UNKNOWN for state in states)
    return states, SchedulerError.exit_code if unknown else 0


def _record(run: Run, state: State) -> dict[str, Any]:
    """Return what --json prints of a run."""
    return {**msgspec.to_builtins(run), **msgspec.to_builtins(state), "restarts": run_folder.restarts(run.path)[0]}


@click.command("status", cls=Command, epilog="status\nstatus 1234567 --json")
@_JOBS
@_FAILED
@click.option("--limit", "-n", type=click.IntRange(min=1), default=1, show_default=True, help="How many, newest first.")
@json_option
def status_command(jobs: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Show the state of jobs, or of the newest.

    The exit code is 3 if no state is known because the scheduler does not answer.
    """
    chosen = _chosen(*jobs) if jobs or limit == 1 else registry.newest_first()[:limit]
    for name in registry.unfinished():
        talk(f"a submission is not finished; use: hpclaunch submit --resume {name}")
    states, code = ask(chosen)
    if as_json:
        echo_json([_record(run, state) for run, state in zip(chosen, states, strict=True)])
        raise SystemExit(code)
    if limit == 1 and (found := groups.of(chosen)):
        from hpclaunch.cli.sweep import echo_elements

        echo_elements(found[1], chosen, states)
        raise SystemExit(code)
    rows = []
    for run, state in zip(chosen, states, strict=True):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.submitted))
        count, out = run_folder.restarts(run.path)
        again = f"{counted(count, 'restart')}{', without ' if out else ''}{' '.join(out)}" if count else ""
        ended = f"exit code {state.exit_code}" if state.exit_code else ""
        note = " ".join(filter(None, [ended, f"({state.reason})" if state.reason else "", again]))
        size = f"{run.nodes} x {run.tasks_per_node}"
        rows.append((run.id, state.word, run.site, run.partition, size, run.job_name, when, note))
    if rows:
        echo_table(("JOB", "STATE", "SITE", "PARTITION", "SIZE", "NAME", "SUBMITTED", "NOTE"), rows)
    raise SystemExit(code)


@click.command("jobs", cls=Command, epilog="jobs\njobs -n 100 --json")
@click.option("--limit", "-n", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@json_option
@click.pass_context
def jobs_command(ctx: click.Context, /, limit: int, as_json: bool) -> None:
    """List my newest jobs on all sites: `status -n 20`."""
    ctx.invoke(status_command, jobs=(), limit=limit, as_json=as_json)


def pattern(text: str) -> re.Pattern[str]:
    """Return the value of an option that takes a regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{text!r} is no regular expression: {error}") from None


@click.command("logs", cls=Command, epilog="logs -f --rank 3\nlogs 1234567 --grep loss --tail 5")
@_JOB
@_FAILED
@click.option("--follow", "-f", is_flag=True, help="Follow until the job ends.")
@click.option("--rank", type=click.IntRange(min=0), help="Only this rank.")
@click.option("--err", is_flag=True, help="Only stderr.")
@click.option("--tail", type=click.IntRange(min=0), help="Only the last N lines of stdout and of stderr.")
@click.option("--grep", type=pattern, metavar="RE", help="Only lines in which this expression is found.")
def logs_command(
    job: str | None, follow: bool, rank: int | None, err: bool, tail: int | None, grep: re.Pattern[str] | None
) -> None:
    """Show what the ranks wrote, identical lines once."""
    from hpclaunch.runs import logs

    chosen = _chosen(job)
    if any(run.host for run in chosen) and not follow:
        try:
            mirror.refresh(chosen)
        except SchedulerError as error:
            talk(f"warning: {error}; these are the logs as they were")
    for run in chosen:
        if chosen[1:]:
            echo(f"==> {run.id} <==")
        with Progress([run]) as progress:
            for line in logs.read(run, rank, progress.look if follow else None, err, grep, tail):
                progress.clear()
                echo(line)


@click.command("wait", cls=Command, epilog="wait && hpclaunch submit -- python eval.py\nwait 1234567 1234568")
@_JOBS
@_FAILED
@json_option
def wait_command(jobs: tuple[str, ...], as_json: bool) -> None:
    """Wait until jobs have ended, or the newest.

    The exit code is that of the first job that failed, 3 for one whose end cannot be known. Ctrl-C ends only the
    waiting.
    """
    chosen = _chosen(*jobs)
    states, code = wait(chosen)
    if as_json:
        echo_json([_record(run, state) for run, state in zip(chosen, states, strict=True)])
    raise SystemExit(code)


@click.command("cancel", cls=Command, epilog="cancel\ncancel 1234567 1234568")
@_JOBS
@_FAILED
@json_option
def cancel_command(jobs: tuple[str, ...], as_json: bool) -> None:
    """Cancel jobs, or the newest.

    Each is printed with its state before.
    """
    chosen = _chosen(*jobs)
    before, _ = schedulers.states(chosen)
    errors, rows = [], []
    for (name, host, _), mine in schedulers.groups(chosen).items():
        try:
            with mirror.reached(mine) if host else nullcontext():
                kind, left = schedulers.scheduler(name), mine
                group, elements = groups.of(mine) or (None, [])
                if group and (ids := group.array_ids(elements, kind)):  # an array is cancelled at once
                    left = [msgspec.structs.replace(mine[0], id=group.id), *(run for run in mine if run.id not in ids)]
                kind.cancel(left)
        except HpclaunchError as error:
            errors.append(f"{' '.join(run.id for run in mine)}: not cancelled: {error}")
            continue
        rows += [(run, before[run.site, run.id]) for run in mine]
    if as_json:
        echo_json([_record(run, state) for run, state in rows])
    for run, state in () if as_json else rows:
        done = "had ended before," if state.ended else "cancelled, was"
        echo(f"{run.id} ({run.site}, {run.job_name}): {done} {state.word}")
    if errors:
        raise SchedulerError(*errors)


@click.command("results", cls=Command, epilog="results\nresults 1234567 --csv")
@click.argument("sweep", required=False, **JOB_IDS)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@json_option
def results_command(sweep: str | None, as_csv: bool, as_json: bool) -> None:
    """Show the values and metrics of the jobs of a sweep."""
    from hpclaunch.cli.sweep import echo_elements

    runs = groups.runs([] if sweep is None else [sweep])
    if (found := groups.of(runs)) is None:
        raise HpclaunchError(f"{sweep or 'the newest job'} is no sweep; `submit --sweep` prints the id of one")
    echo_elements(found[1], runs, ask(runs)[0], "json" if as_json else "csv" if as_csv else "table")


@click.command("why", cls=Command, epilog="why\nwhy 1234567")
@_JOB
@_FAILED
@json_option
def why_command(job: str | None, as_json: bool) -> None:
    """Explain why a job waits or failed, and what may help."""
    from hpclaunch.runs import why

    chosen = _chosen(job)
    states, code = ask(chosen)
    site, found = None, []
    for run, state in zip(chosen, states, strict=True):
        with suppress(HpclaunchError):  # the profile may be gone by now
            site = site or load_site(run.site).site.messages  # all are of one site
        lines = why.explain(run, state, site)
        found.append(_record(run, state) | {"explanation": lines})
        for line in () if as_json else lines:
            echo(line)
    if as_json:
        echo_json(found[0] if len(found) == 1 else found)
    raise SystemExit(code)


@click.command("fetch", cls=Command, epilog="fetch 1234567\nfetch 1234567 '*.ckpt' results")
@click.argument("job", **JOB_IDS)
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
def fetch_command(job: str, patterns: tuple[str, ...]) -> None:
    """Bring the files that a job on another host made or changed.

    They come into the current folder, at the same places; one that is newer here stays. A PATTERN is a file's name, its
    path, or a folder. What was interrupted goes on.
    """
    from hpclaunch.runs import remote, upload

    (run,) = registry.find([job])
    found = remote.results(run, patterns) if run.host else {}
    if not found:
        where = f"{run.host}:{run.remote or run.folder}"
        raise HpclaunchError(f"{run.id}: no new file{' fits' if patterns else ''} in {where}")
    talk(f"{counted(len(found), 'file')}, {upload.megabytes(sum(found.values()))} from {run.host}:{run.remote}")
    remote.fetch(run, list(found), shown=sys.stderr.isatty())
    for name, size in found.items():
        echo(f"{upload.megabytes(size):>10}  {name}")


def wait(chosen: Sequence[Run]) -> tuple[list[State], int]:
    """Wait until all of `chosen` have ended; return their states and an exit code.

    It is that of the first that failed, 3 for one whose end is not known, which is named on stderr.
    """
    with Progress(chosen) as progress:
        while not progress.look():
            time.sleep(POLL_SECONDS)
    states = [progress.watch.states[run.site, run.id] for run in chosen]
    for run, state in zip(chosen, states, strict=True):
        if not state.ended:
            talk(
                f"{run.id}: {run.scheduler} does not know this job (any more), and {run.folder} records no end; if it "
                "runs on another cluster, wait there"
            )
        elif progress.visible:
            click.echo(f"{run.id} {run.job_name} {coloured(state.word)}", err=True)
    codes = (state.shell_code if state.ended else SchedulerError.exit_code for state in states)
    return states, next(filter(None, codes), 0)
