"""The command that submits a run again."""

import json
import os
from typing import Any

import click

from hpclaunch.cli.config import Config, as_options
from hpclaunch.cli.help import Command
from hpclaunch.cli.options import JOB_IDS
from hpclaunch.cli.runs import ask
from hpclaunch.cli.submit import submit_command
from hpclaunch.cli.sweep import Jobs
from hpclaunch.errors import HpclaunchError
from hpclaunch.job.request import HIDDEN
from hpclaunch.runs import groups, snapshot
from hpclaunch.runs.registry import Run
from hpclaunch.schedulers.job import COMPLETED
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
    end = options.index("--") if "--" in options else len(options)
    failed |= "--failed" in options[:end]
    options = (*(one for one in options[:end] if one != "--failed"), *options[end:])
    run, request, jobs = _found(job, failed)
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


def _found(job: str, failed: bool) -> tuple[Run, dict[str, Any], Jobs | None]:
    """Return a run, its request and, of a sweep, the jobs to submit again. Raises HpclaunchError."""
    runs = groups.runs([job])
    group, elements = groups.find(job) or groups.of(runs) or (None, [])
    if group and group.kind == "sweep":
        states = zip(runs, ask(runs)[0] if failed else (), strict=failed)
        bad = {run.id for run, state in states if state.ended and state.word != COMPLETED}
        values = {one.number: one.values for one in elements if not failed or not one.ids or one.ids[-1] in bad}
        if not values:
            raise HpclaunchError(f"{job}: no job is known to have failed")
        return runs[0], dict(group.request), Jobs(values, group.at_most, group)
    if failed or len(runs) != 1:
        raise HpclaunchError(f"{job} is no sweep; use rerun with the id of one job, without --failed")
    try:
        return runs[0], json.loads((runs[0].path / PLAN).read_bytes())["request"], None
    except (OSError, ValueError, LookupError) as error:
        raise HpclaunchError(f"{job}: {runs[0].path / PLAN}, which has its request, cannot be read: {error}") from None
