"""The command that submits a run again."""

import json
import os

import click

from hpclaunch.cli.config import Config, as_options
from hpclaunch.cli.help import Command
from hpclaunch.cli.options import JOB_IDS
from hpclaunch.cli.submit import submit_command
from hpclaunch.errors import HpclaunchError
from hpclaunch.job.request import HIDDEN
from hpclaunch.runs import registry, snapshot
from hpclaunch.schedulers.run_folder import PLAN


@click.command(
    "rerun",
    cls=Command,
    epilog="rerun 1234567\nrerun 1234567 --nodes 4 --walltime 10h",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("job", **JOB_IDS)
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[OPTION]... [-- COMMAND]")
@click.pass_context
def rerun_command(ctx: click.Context, /, job: str, options: tuple[str, ...]) -> None:
    """Submit a run again, with its request and its code.

    The code is that of its snapshot; without one it is what is in the current folder now. The options are those of
    `hpclaunch submit`, and win.
    """
    (run,) = registry.find([job])
    try:
        request = json.loads((run.path / PLAN).read_bytes())["request"]
    except (OSError, ValueError, LookupError) as error:
        raise HpclaunchError(f"{job}: {run.path / PLAN}, which has its request, cannot be read: {error}") from None
    code = request.pop("machine", {}).get("snapshot", "")
    values = as_options(request | ({"host": run.host} if run.host else {}))
    values["env"] = [one.removesuffix(f"={HIDDEN}") for one in values.get("env", ())]  # from here: no file has it
    for option in submit_command.params:
        os.environ.pop(str(option.envvar), None)
    with submit_command.make_context("rerun", [*options], parent=ctx.parent) as inner:
        inner.obj = Config(again=values, code="" if inner.params["snapshot"] is not None else code)
        if inner.obj.code:
            os.chdir(run.submitted_from)
            if not (snapshot.FOLDER / code).is_dir():
                raise HpclaunchError(f"{job}: its code, {snapshot.FOLDER / code}, is gone; use --no-snapshot")
        submit_command.invoke(inner)
