"""The command that submits a run again."""

import json
import os
from typing import Any

import click

from hpclaunch import schedulers
from hpclaunch.cli.config import Config, as_options
from hpclaunch.cli.help import Command
from hpclaunch.cli.options import JOB_IDS
from hpclaunch.cli.submit import submit_command
from hpclaunch.cli.sweep import Jobs
from hpclaunch.errors import HpclaunchError
from hpclaunch.job.request import HIDDEN
from hpclaunch.runs import groups, registry, snapshot
from hpclaunch.runs.registry import Run
from hpclaunch.schedulers.job import COMPLETED, ENDED
from hpclaunch.schedulers.run_folder import PLAN


@click.command(
    "rerun",
    cls=Command,
    epilog="rerun 1234567\nrerun 1234567 --nodes 4 --walltime 10h",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("--failed", is_flag=True, help="Of a sweep, only the jobs that failed.")
@click.argument("job", **JOB_IDS)
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[OPTION]... [-- COMMAND]")
@click.pass_context
def rerun_command(ctx: click.Context, /, failed: bool, job: str, options: tuple[str, ...]) -> None:
    """Submit a run again, with its request and its code.

    The code is that of its snapshot; without one it is what is in the current folder now. The options are those of
    `hpclaunch submit`, and win.
    """
    if options[:1] == ("--failed",):
        failed, options = True, options[1:]
    jobs, run, request = _of_group(job, failed) or (None, *_single(job, failed))
    code = request.pop("machine", {}).get("snapshot", "")
    values = as_options(request | ({"host": run.host} if run.host else {}))
    values["env"] = [one.removesuffix(f"={HIDDEN}") for one in values.get("env", ())]  # from here: no file has it
    for option in submit_command.params:
        os.environ.pop(str(option.envvar), None)
    with submit_command.make_context("rerun", [*options], parent=ctx.parent) as inner:
        inner.obj = Config(again=values, code="" if inner.params["snapshot"] is not None else code, jobs=jobs)
        if inner.obj.code:
            os.chdir(run.submitted_from)
            if not (snapshot.FOLDER / code).is_dir():
                raise HpclaunchError(f"{job}: its code, {snapshot.FOLDER / code}, is gone; use --no-snapshot")
        submit_command.invoke(inner)


def _single(job: str, failed: bool) -> tuple[Run, dict[str, Any]]:
    """Return the run of this name and its request. Raises HpclaunchError."""
    (run,) = registry.find([job])
    if failed:
        raise HpclaunchError(f"{job} is no sweep: --failed chooses among the jobs of one; leave it out")
    try:
        request: dict[str, Any] = json.loads((run.path / PLAN).read_bytes())["request"]
    except (OSError, ValueError, LookupError) as error:
        raise HpclaunchError(f"{job}: {run.path / PLAN}, which has its request, cannot be read: {error}") from None
    return run, request


def _of_group(job: str, failed: bool) -> tuple[Jobs, Run, dict[str, Any]] | None:
    """Return the jobs of a sweep to submit again, a run of it, and the request; None if it is none."""
    if (found := groups.find(job)) is None:
        (run,) = registry.find([job])
        found = groups.find(run.id, run.site)
        if found is None or found[0].kind != "sweep":
            return None
    group, elements = found
    runs = groups.runs_of(group, group.elements)
    if group.kind != "sweep":
        raise HpclaunchError(f"{job} is no sweep, but a {group.kind}; use rerun with the id of one of its jobs")
    if failed:
        states, errors = schedulers.states(list(runs.values()))
        if errors:
            raise errors[0]
        ended = {number for number, run in runs.items() if states[run.site, run.id].word in ENDED - {COMPLETED}}
        elements = [one for one in elements if one.number in ended or one.number not in runs]
        if not elements:
            raise HpclaunchError(f"{job}: no job failed")
    values = {one.number: one.values for one in elements}
    return Jobs(values, group.at_most, group), next(iter(runs.values())), dict(group.request)
