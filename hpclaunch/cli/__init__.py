"""The command line: options become a request, one call does the work, the result is printed."""

from __future__ import annotations

import gc
from typing import Any

import click

from hpclaunch import __version__
from hpclaunch.cli.job import render_command, run_command
from hpclaunch.cli.options import config_defaults
from hpclaunch.cli.runs import (
    cancel_command,
    jobs_command,
    logs_command,
    status_command,
    wait_command,
    why_command,
)
from hpclaunch.cli.site import site_group, sites_command
from hpclaunch.cli.submit import submit_command
from hpclaunch.errors import HpclaunchError

gc.disable()  # a command ends long before its garbage matters


class _Group(click.Group):
    """The one place where an expected error becomes a message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HpclaunchError as error:
            for line in str(error).splitlines():
                click.echo(f"hpclaunch: {line}", err=True)
            ctx.exit(error.exit_code)
        except (BrokenPipeError, FileExistsError):
            raise  # click's, and a bug
        except OSError as error:  # no current folder, a full disk behind stdout, a name that is too long
            click.echo(f"hpclaunch: {error.filename or 'output'}: {error.strerror}", err=True)
            ctx.exit(1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="hpclaunch")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Launch distributed PyTorch training on any supercomputer, or here.

    Every option can also come from the environment (HPCLAUNCH_NODES=2) and from a config file, ./hpclaunch.yaml or
    hpclaunch.yaml in the user's config folder (nodes: 2). The command line wins, then the environment.
    """
    if ctx.invoked_subcommand in ("render", "run", "submit"):
        ctx.default_map = {ctx.invoked_subcommand: config_defaults()}


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print what completes commands, sites, partitions and jobs in a shell: eval "$(hpclaunch completion bash)"."""
    from click.shell_completion import get_completion_class

    completion = get_completion_class(shell)
    assert completion is not None  # noqa: S101 - click knows these three
    click.echo(completion(main, {}, "hpclaunch", "_HPCLAUNCH_COMPLETE").source())


for command in (
    render_command,
    run_command,
    submit_command,
    jobs_command,
    status_command,
    logs_command,
    wait_command,
    cancel_command,
    why_command,
    completion_command,
    sites_command,
    site_group,
):
    main.add_command(command)
