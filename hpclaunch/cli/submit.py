"""The command submit, with the price before: what remains of the allocation, and the confirmation above a limit."""

import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from msgspec import to_builtins

from hpclaunch import paths
from hpclaunch.cli.echo import echo, echo_json, json_option, talk
from hpclaunch.cli.options import CONFIRM_ABOVE, HOST, INPUT, JOB_IDS, REMOTE_FOLDER, job_command
from hpclaunch.cli.requests import configured, planned_request, quiet_option, summarized, typed
from hpclaunch.cli.sweep import Sweep, planned, take_jobs
from hpclaunch.errors import HpclaunchError
from hpclaunch.job.consider import make_plan
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import quote
from hpclaunch.profile import search
from hpclaunch.profile.search import Profile
from hpclaunch.runs import groups, registry
from hpclaunch.schedulers import Scheduler, scheduler
from hpclaunch.schedulers.run_folder import RUNS

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask, whatever the price.")


def _resume(ctx: click.Context, _param: click.Parameter, name: str | None) -> None:
    if name is not None:
        from hpclaunch.runs import remote

        _go_on(remote.find(name))
        ctx.exit()


_AFTER = {"--after": "afterok", "--after-any": "afterany", "--after-failed": "afternotok"}
_JOBS = JOB_IDS | {"multiple": True, "metavar": "JOB"}
_HELP = "Go on with a submission by ssh that was interrupted."
_RESUME = click.option("--resume", metavar="NAME", callback=_resume, expose_value=False, is_eager=True, help=_HELP)


@job_command("submit", epilog="submit -N 2 -t 2h -- python train.py\nsubmit --after 1234 --follow -- python eval.py")
@CONFIRM_ABOVE
@yes_option
@click.option("--wait", "wait_for_end", is_flag=True, help="Wait for the end; the exit code is the job's.")
@click.option("--follow", is_flag=True, help="Show what the ranks write until then; implies --wait.")
@click.option("--after", **_JOBS, help="Start once this job succeeded (repeatable).")
@click.option("--after-any", **_JOBS, help="Start once this job ended, in any way (repeatable).")
@click.option("--after-failed", **_JOBS, help="Start once this job failed (repeatable).")
@click.option("--sweep", multiple=True, metavar="NAME=VALUES", help="A job for each of V1,V2 or A..B (repeatable).")
@click.option("--sweep-file", type=INPUT, help="A job for each row of a CSV; the first row has the names.")
@click.option("--array", metavar="INDICES", help="A job for each of 0-9, 0-9:2 or 1,3,7.")
@click.option("--at-most", type=click.IntRange(min=1), help="Jobs of the sweep that run at once.  [default: all]")
@click.option("--dry-run", is_flag=True, help="Print the script and submit nothing.")
@click.option("--script", type=INPUT, help="Submit this script as it is, instead of a COMMAND.")
@json_option
@HOST
@REMOTE_FOLDER
@_RESUME
@quiet_option
def submit_command(
    ctx: click.Context, /, yes: bool, dry_run: bool, script: Path | None, as_json: bool, quiet: bool, **values: Any
) -> None:
    """Submit COMMAND as a job and print only the job's id.

    Without a COMMAND, a bundled workload.
    """
    wait_for_end, follow = values.pop("wait_for_end"), values.pop("follow")
    named = [(option, word, job) for option, word in _AFTER.items() for job in values.pop(option[2:].replace("-", "_"))]
    jobs = take_jobs(values, ctx.obj and ctx.obj.jobs)
    host, below, real = _place(ctx, values)
    if jobs and (host or script):
        raise HpclaunchError(f"a sweep does not go with {f'--host {host}' if host else '--script'}; use COMMAND, here")
    # An earlier job may make the program.
    request, profile = planned_request(ctx, values, starts=not named, there=real, change=jobs.first if jobs else None)
    kind = scheduler(profile.site.scheduler)
    before = [f"{word}:{one}" for option, word, job in named for one in _before(option, job, kind, host)]
    if jobs:
        _wait(submit_sweep(planned(jobs, profile, request, quiet), profile, before, ctx.params), wait_for_end, follow)
        return
    if script is None:
        plan = make_plan(profile, request)
        text, name = summarized(plan, quiet), ""
    else:
        from hpclaunch.scripts import own

        if request.command or request.workload:
            raise HpclaunchError("COMMAND, --workload and --script exclude each other: give one of them")
        used = ("site", "max_cost", "confirm_above")
        if lost := [one.replace("_", "-") for one in values if typed(ctx, one) and one not in used]:
            raise HpclaunchError(f"--{', --'.join(lost)}: {script} is submitted as it is; use a directive in it")
        text, plan, name = own.read(script, profile)
    if dry_run:
        click.echo(text.encode(errors="surrogateescape"), nl=False)
        return
    if script is None:
        if not quiet and not host and at_terminal():
            show_remaining(plan, profile)
        confirm(plan, yes)
    elif (request.max_cost, request.confirm_above, plan.site.confirm_above) != (None, None, None):
        talk(f"warning: max_cost and confirm_above are not checked: the price of {script} is not known")
    if host:
        from hpclaunch.runs import remote

        _show_files(plan, f"{host}:{below}", yes, quiet)
        run = _go_on(remote.prepare(plan, text, host, below, before, name), plan, as_json)
    else:
        from hpclaunch.executors.script import ScriptExecutor

        # The id comes first: what fails after the scheduler's answer is a warning.
        submitted = partial(_print_id, plan, Path(RUNS), as_json)
        run = _warned(lambda: ScriptExecutor(plan).submit_script(text, before, name, submitted=submitted).run)
    _wait([run], wait_for_end, follow)


def submit_sweep(sweep: Sweep, profile: Profile, before: list[str], options: dict[str, Any]) -> list[registry.Run]:
    """Submit the jobs of a sweep, and return their runs; none with --dry-run. Raises HpclaunchError."""
    if options["dry_run"]:
        click.echo(sweep.scripts[0].encode(errors="surrogateescape"), nl=False)
        return []
    if not options["quiet"] and at_terminal():
        show_remaining(sweep.whole, profile)
    confirm(sweep.whole, options["yes"])
    group, runs = _warned(lambda: sweep.submit(before))
    about = {**sweep.whole.about, "price": sweep.whole.cost, "elements": group.elements}
    _print(group.id, about if options["as_json"] else {})
    return list(runs)


def _wait(runs: list[registry.Run], wait_for_end: bool, follow: bool) -> None:
    """Wait for the end of what was submitted if that was asked for, and exit with its code."""
    if not (runs and (wait_for_end or follow)):
        return
    from hpclaunch.cli.progress import Progress
    from hpclaunch.cli.runs import wait
    from hpclaunch.runs import logs

    for run in runs if follow else ():
        with Progress([run]) as progress:
            for line in logs.read(run, None, progress.look):
                progress.clear()
                echo(line, err=True)
    raise SystemExit(wait(runs)[1])


def _place(ctx: click.Context, values: dict[str, Any]) -> tuple[str, str, str]:
    """Return the host to submit on, the folder of runs there and where that leads; settle the site.

    The host, "" if the job is submitted here or the site is this machine, leaves `values`. Raises HpclaunchError.
    """
    asked = configured(ctx, values, configured(ctx, values)["site"] or "")
    del values["host"], values["remote_folder"]
    if not (host := asked["host"]):
        return "", "", ""
    from hpclaunch.runs import remote
    from hpclaunch.schedulers import ssh

    source = ctx.get_parameter_source("host")
    file = next((one.path for one in ctx.obj.used if "host" in one.data), None)
    if source is ParameterSource.DEFAULT_MAP and file and not paths.is_trusted(file):
        raise HpclaunchError(
            f"{quote(paths.shown(file))}: host {host} is not used: your files would be sent there",
            f"if it is yours, use --host {host}, or move the line to {paths.shown(paths.user_config())}/hpclaunch.yaml",
        )
    names = list(dict.fromkeys([host.rpartition("@")[2], ssh.settings(host).get("hostname", "")]))
    site = asked["site"] or search.match_host(*names) or next(filter(search.available().__contains__, names), None)
    if not site:
        raise HpclaunchError(f"which site is {' or '.join(names)}? No profile knows it; use --site")
    values["site"] = site
    if scheduler(search.load(site).site.scheduler).here:
        if source is ParameterSource.COMMANDLINE:
            raise HpclaunchError(f"--host {host}: {site} is this machine; use the --site of that host")
        return "", "", ""
    return host, *remote.root(host, asked["remote_folder"])


def _show_files(plan: Plan, where: str, yes: bool, quiet: bool) -> None:
    """Print what is sent, and warn of what the command names and is not. Raises HpclaunchError if it is too much."""
    from hpclaunch.runs import upload

    names = upload.files()
    size = upload.measured(names, yes)
    if not quiet:
        talk(f"{size} to {where}")
    for path in upload.stays(names, plan.request.command):
        talk(f"warning: {path} stays here: git ignores it, or it is hidden")


def _go_on(folder: Path, plan: Plan | None = None, as_json: bool = False) -> Any:
    from hpclaunch.runs import remote

    submitted = partial(_print_id, plan, folder / RUNS, as_json)
    try:
        return _warned(lambda: remote.finish(folder, submitted, plan))
    except KeyboardInterrupt:
        raise KeyboardInterrupt("\n".join(["interrupted", *remote.resume(folder)])) from None


def _warned(submit: Callable[[], Any]) -> Any:
    """Submit, and print what was warned of."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("ignore")  # Python's own
        warnings.simplefilter("always", UserWarning)
        run = submit()
    for warning in found:
        talk(f"warning: {warning.message}")
    return run


def _print_id(plan: Plan | None, runs: Path, as_json: bool, job_id: str) -> None:
    about = {"folder": str((runs / job_id).absolute()), **plan.about, "price": plan.cost} if plan and as_json else {}
    _print(job_id, about)


def _print(job_id: str, about: dict[str, Any]) -> None:
    try:
        echo_json(to_builtins({"id": job_id, **about})) if about else click.echo(job_id)
    except OSError as error:
        talk(f"warning: job {job_id} is submitted, but stdout: {error.strerror}")


def _before(option: str, job: str, kind: Scheduler, host: str) -> list[str]:
    """Return the ids to wait for: a run's, or `job` if it looks like one of `kind`. Raises HpclaunchError."""
    try:
        runs = groups.runs([job])
    except HpclaunchError as error:
        if job and re.fullmatch(kind.ids[0], job, re.ASCII):
            return [job]
        raise HpclaunchError(f"{option}: {error}{kind.ids[1]}") from None
    ids = [_last_attempt(option, run, kind, host) for run in runs]
    group, elements = groups.find(job) or (None, [])
    if group and not all(one.ids for one in elements):
        raise HpclaunchError(f"{option} {job}: not all jobs are submitted; use: hpclaunch rerun {group.id} --failed")
    return [group.id] if group and ids == group.array_ids(elements, kind) else ids


def _last_attempt(option: str, run: registry.Run, kind: Scheduler, host: str) -> str:
    """Return the id of the last job of `run`. Raises HpclaunchError if it is not submitted yet, or runs elsewhere."""
    if (run.host, run.scheduler) != (host, kind.name):
        raise HpclaunchError(f"{option} {run.id}: that job runs on {run.host or run.site}")
    if run.max_attempts > 1 and kind.resubmits:
        if len(run.further_ids) < run.max_attempts - 1:
            raise HpclaunchError(
                f"{option} {run.id}: that run may continue in further jobs, whose ids are not known yet",
                f"use: hpclaunch wait {run.id} && hpclaunch submit ...",
            )
        return run.further_ids[-1]
    return run.folder if kind.here else run.id


def show_remaining(plan: Plan, profile: Profile) -> None:
    """Print on stderr what remains of the allocation, by the site's own command, and warn if that is too little.

    A command named by a profile of the current folder is not run: that may be anybody's repository.
    """
    from hpclaunch.runs import budget

    for layer in profile.layers:
        if "allocation" in layer.data and not paths.is_trusted(layer.path):
            file, own = quote(layer.shown), paths.shown(paths.user_config() / "site_profiles")
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
    most = plan.site.confirm_above if plan.request.confirm_above is None else plan.request.confirm_above
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
