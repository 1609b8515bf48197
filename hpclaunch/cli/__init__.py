"""The command line: options become a request, one call does the work, the result is printed."""

from __future__ import annotations

import gc

gc.disable()  # a command ends long before its garbage matters; the imports below make the most of it

import os  # noqa: E402
import sys  # noqa: E402
from importlib import import_module  # noqa: E402
from typing import Any  # noqa: E402

import click  # noqa: E402

from hpclaunch import __version__  # noqa: E402
from hpclaunch.cli.echo import echo  # noqa: E402
from hpclaunch.errors import HpclaunchError, printable  # noqa: E402

PIPE_CLOSED = 141  # what a shell shows of a program that died of SIGPIPE

# Each command and where it is; a command's module is imported when it is called.
COMMANDS = {
    "render": "job.render_command",
    "check": "check.check_command",
    "run": "job.run_command",
    "submit": "submit.submit_command",
    "launch": "job.launch_command",
    "compare": "compare.compare_command",
    "jobs": "runs.jobs_command",
    "status": "runs.status_command",
    "logs": "runs.logs_command",
    "wait": "runs.wait_command",
    "cancel": "runs.cancel_command",
    "why": "runs.why_command",
    "sites": "site.sites_command",
    "site": "site.site_group",
    "doctor": "doctor.doctor_command",
    "workloads": "workload.workloads_command",
    "workload": "workload.workload_group",
    "completion": "completion.completion_command",
}


class _Group(click.Group):
    """The one place where an expected error becomes a message and an exit code."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name].split(".")
        command: click.Command = getattr(import_module(f"hpclaunch.cli.{module}"), name)
        return command

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*args, **extra)
        except BrokenPipeError:  # of --help and --version
            sys.exit(PIPE_CLOSED)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HpclaunchError as error:
            for line in str(error).split("\n"):
                echo(f"hpclaunch: {printable(line)}", err=True)
            ctx.exit(error.exit_code)
        except BrokenPipeError:  # `| head -1` has read enough
            ctx.exit(PIPE_CLOSED)
        except FileExistsError:
            raise  # a bug
        except OSError as error:  # no current folder, a full disk behind stdout, a name that is too long
            click.echo(f"hpclaunch: {printable(str(error.filename or 'output'))}: {error.strerror}", err=True)
            ctx.exit(1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="hpclaunch")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Launch distributed PyTorch training on any supercomputer, or here.

    Every option can also come from the environment (HPCLAUNCH_NODES=2) and from a config file, ./hpclaunch.yaml or
    hpclaunch.yaml in the user's config folder (nodes: 2). The command line wins, then the environment.
    """
    if ctx.invoked_subcommand in ("render", "check", "run", "submit", "launch", "doctor"):
        from hpclaunch.cli.options import config_defaults

        ctx.default_map = {ctx.invoked_subcommand: config_defaults()}
    elif ctx.invoked_subcommand == "compare":
        from hpclaunch.cli.options import config_defaults

        ctx.default_map = {"compare": config_defaults(several=("site", "partition"))}


def command_line() -> None:
    """Run the command and end at once: to take the interpreter apart costs a tenth of a short command's time."""
    try:
        main(prog_name="hpclaunch")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else bool(end.code)
        for stream in filter(None, (sys.stdout, sys.stderr)):  # a daemon may have closed them
            try:
                stream.flush()
            except BrokenPipeError:
                code = code or PIPE_CLOSED
            except OSError:  # the command has said so already
                pass
        os._exit(code)
