"""The command line: options become a request, one call does the work, the result is printed."""

from __future__ import annotations

import gc
from typing import Any

import click

from hpclaunch import __version__
from hpclaunch.cli.job import render_command, run_command
from hpclaunch.cli.options import config_defaults
from hpclaunch.cli.site import site_group, sites_command
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


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="hpclaunch")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Launch distributed PyTorch training on any supercomputer, or here.

    Every option can also come from the environment (HPCLAUNCH_NODES=2) and from a config file, ./hpclaunch.yaml or
    hpclaunch.yaml in the user's config folder (nodes: 2). The command line wins, then the environment.
    """
    if ctx.invoked_subcommand in ("render", "run"):
        ctx.default_map = {ctx.invoked_subcommand: config_defaults()}


main.add_command(render_command)
main.add_command(run_command)
main.add_command(sites_command)
main.add_command(site_group)
