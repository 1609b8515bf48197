"""Commands whose help reads well at 80 columns: options in groups, examples as they are typed, near names of commands.

The epilog of a command has its examples, one on each line, without `hpclaunch` in front.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from hpclaunch import __version__
from hpclaunch.errors import nearest

# The options of each group, by the names of their values; what is in none goes under the last heading.
_GROUPS = {
    "Resources": "site nodes partition account qos walltime gpus gpus_per_node tasks_per_node cpus_per_task mem_gb "
    "jobfs_gb job_name storage directive mail mail_on template preset",
    "Environment": "module setup teardown venv container env network stage_in stage_out snapshot",
    "Launch": "launcher workload preflight sweep sweep_file array at_most weak metric after after_any after_failed "
    "script debug_rank host remote_folder resume",
    "Survive": "max_attempts max_restarts min_nodes spares warn_before hang_after",
    "Money and checks": "max_cost confirm_above yes force dry_run",
    "Output": "output explain wait_for_end follow fix diff as_request as_json quiet help",
}
_WIDTH = 27  # of the options' names; a longer one has a line of its own


def _asked(names: str, text: str, answer: Callable[[click.Context], str]) -> click.Option:
    """Make an option that prints and exits; click's own look for translations, which takes longer than most imports."""

    def show(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:
        if asked and not ctx.resilient_parsing:
            click.echo(answer(ctx), color=ctx.color)
            ctx.exit()

    return click.Option(names.split(), is_flag=True, expose_value=False, is_eager=True, help=text, callback=show)


_HELP = _asked("-h --help", "Show this message and exit.", lambda ctx: ctx.get_help())
VERSION = _asked("--version", "Show the version and exit.", lambda _ctx: f"hpclaunch, version {__version__}")


class Command(click.Command):
    """A command with its options in groups."""

    def get_help_option(self, _ctx: click.Context) -> click.Option:
        """Return the option of all commands."""
        return _HELP

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, in groups if there are many."""
        rows: dict[str, list[tuple[str, str]]] = {}
        parameters = [parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)]
        for parameter in parameters:
            if record := parameter.get_help_record(ctx):
                group = next((group for group, names in _GROUPS.items() if parameter.name in names.split()), "Output")
                names = re.sub(r"(INTEGER|FLOAT) RANGE$", "N", record[0])
                row = f"{names:<{_WIDTH}}", re.sub(r"  \[x>=\d+]|; x>=\d+", "", record[1])
                rows.setdefault(group if len(parameters) > 12 else "Options", []).append(row)
        for group in filter(rows.get, [*_GROUPS, "Options"]):
            with formatter.section(group):
                formatter.write_dl(rows[group], _WIDTH)

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they are typed."""
        with formatter.section("Examples"):
            formatter.write("".join(f"  hpclaunch {line}\n" for line in (self.epilog or "").splitlines()))


class Group(click.Group, Command):
    """A command with commands below it."""

    command_class = Command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find a command. Raises click.UsageError with the nearest name if there is none."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {args[0]!r}{nearest(args[0], known)}.", ctx)
        return super().resolve_command(ctx, args)
