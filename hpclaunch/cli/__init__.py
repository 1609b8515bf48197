"""The command line: options become a request, one call does the work, the result is printed.

Three things keep the wait on a login node short (benchmarks/startup.py measures it): each command is imported when
called, the garbage collector starts late, and the interpreter is not taken apart at the end.
"""

from __future__ import annotations

import gc

gc.set_threshold(100_000)  # the imports below make no garbage: without it a render takes 5 % longer

import os  # noqa: E402
import sys  # noqa: E402
from importlib import import_module  # noqa: E402
from typing import Any  # noqa: E402

import click  # noqa: E402

from hpclaunch.cli.echo import talk  # noqa: E402
from hpclaunch.cli.help import VERSION, Group  # noqa: E402
from hpclaunch.errors import HpclaunchError  # noqa: E402

PIPE_CLOSED, INTERRUPTED = 141, 130  # what a shell shows of a program that died of SIGPIPE, of SIGINT

# Each command and its function in a module of this package.
COMMANDS = {
    "render": "render.render_command",
    "check": "check.check_command",
    "run": "launch.run_command",
    "submit": "submit.submit_command",
    "scale": "scale.scale_command",
    "rerun": "rerun.rerun_command",
    "launch": "launch.launch_command",
    "shell": "shell.shell_command",
    "compare": "compare.compare_command",
    "init": "settings.init_command",
    "config": "settings.config_command",
    "jobs": "runs.jobs_command",
    "status": "runs.status_command",
    "logs": "runs.logs_command",
    "wait": "runs.wait_command",
    "cancel": "runs.cancel_command",
    "why": "runs.why_command",
    "report": "report.report_command",
    "results": "runs.results_command",
    "fetch": "runs.fetch_command",
    "site": "site.site_group",
    "doctor": "doctor.doctor_command",
    "workload": "workload.workload_group",
    "completion": "completion.completion_command",
}


class _Group(Group):
    """The one place where an expected error becomes a message and an exit code."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(".")
        found: click.Command = getattr(import_module(f"hpclaunch.cli.{module}"), name)
        return found

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*args, **extra)
        except BrokenPipeError:  # --help and --version
            sys.exit(PIPE_CLOSED)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (HpclaunchError, KeyboardInterrupt) as error:
            for line in str(error).splitlines():
                talk(line)
            ctx.exit(error.exit_code if isinstance(error, HpclaunchError) else INTERRUPTED)
        except BrokenPipeError:  # `| head -1`
            ctx.exit(PIPE_CLOSED)
        except OSError as error:  # no current folder, a full disk behind stdout, a name that is too long
            talk(f"{error.filename or 'output'}: {error.strerror}")
            ctx.exit(1)


@click.group(
    cls=_Group,
    params=[VERSION],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="submit --site gadi --nodes 2 -A ab12 -- python train.py\nstatus",
)
def main() -> None:
    """Launch distributed PyTorch training on any supercomputer, or here.

    Options can also be set in the environment (HPCLAUNCH_NODES=2) and in config files (nodes: 2): hpclaunch.yaml here,
    in a folder above, or in the user's config folder. The command line wins over the environment, that over the files.
    """


def command_line() -> None:
    """Run the command and exit at once: taking the interpreter apart costs a tenth of a short command's time."""
    for number, name in (1, "stdout"), (2, "stderr"):
        if getattr(sys, name) is None:  # `>&-`
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            setattr(sys, name, os.fdopen(number, "w"))
    try:
        main(prog_name="hpclaunch")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else bool(end.code)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BrokenPipeError:
                code = code or PIPE_CLOSED
            except OSError:  # already reported
                pass
        os._exit(code)
