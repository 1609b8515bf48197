"""The command that opens a shell on the nodes of an interactive job."""

import os
import sys
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from hpclaunch.cli.options import CONFIRM_ABOVE, SHELL, job_command
from hpclaunch.cli.requests import planned_request, quiet_option, summarized
from hpclaunch.cli.submit import at_terminal, confirm, show_remaining, yes_option
from hpclaunch.errors import HpclaunchError
from hpclaunch.job.consider import make_plan
from hpclaunch.paths import write_whole
from hpclaunch.schedulers import at_hand
from hpclaunch.schedulers.run_folder import RUNS, SCRIPT, new_name


@job_command("shell", SHELL, epilog="shell --site gadi -A ab12 --nodes 2 -t 30m\nshell --site local")
@CONFIRM_ABOVE
@yes_option
@click.option("--dry-run", is_flag=True, help="Print what the shell reads and start nothing.")
@quiet_option
def shell_command(ctx: click.Context, /, yes: bool, dry_run: bool, quiet: bool, **values: Any) -> None:
    """Open a shell on the nodes of an interactive job.

    It has the job's modules, venv and variables; `hpclaunch launch` in it starts ranks on all nodes. The exit code is
    the shell's, or that of the scheduler's command.
    """
    if here := at_hand(os.environ):
        raise HpclaunchError(f"shell: this is job {os.environ[here.job_variable]} already; use hpclaunch launch")
    request, profile = planned_request(ctx, {**values, "command": (), "workload": None})
    name = request.job_name or "shell"
    plan = make_plan(profile, structs.replace(request, command=["bash"], job_name=name, max_attempts=1))
    # The scheduler counts each rank, as `launch` asks for them, whatever starts them.
    plan = structs.replace(plan, launcher="tasks", interactive=sys.executable)
    text = summarized(plan, quiet)
    if dry_run:
        click.echo(text.encode(errors="surrogateescape"), nl=False)
        return
    if not quiet and at_terminal():
        show_remaining(plan, profile)
    confirm(plan, yes)
    script = Path(RUNS, new_name("shell"), SCRIPT).absolute()
    script.parent.mkdir(parents=True)
    write_whole(script, text.encode(errors="surrogateescape"))
    command = plan.scheduler.interactive(script)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise HpclaunchError(f"{command[0]}: {error.strerror}") from None
