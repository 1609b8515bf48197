"""The options that make a request: the same for every command that plans a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from hpclaunch import paths
from hpclaunch.errors import HpclaunchError
from hpclaunch.profile import model, search

Command = TypeVar("Command", bound=Callable[..., Any])


class _Line(click.types.StringParamType):
    """Text with blanks in it: a variable that holds several has one on each line."""

    name = "line"
    envvar_list_splitter = "\n"


class _Setting(_Line):
    name = "setting"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if "=" not in text and not (text.isascii() and text.isidentifier()):
            self.fail(f"{text!r} is no variable's name; use NAME=VALUE, or NAME to pass its value on", param, ctx)
        return text


def _option(*names: str, **attributes: Any) -> tuple[str, Callable[[Any], Any]]:
    """Make an option that HPCLAUNCH_<its first long name> can set too; return it with its name."""
    name = next(name for name in names if name.startswith("--")).removeprefix("--").replace("-", "_")
    return name, click.option(*names, name, envvar=f"HPCLAUNCH_{name.upper()}", **attributes)


def _complete_site(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in search.available() if name.startswith(incomplete)]


def _complete_partition(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from hpclaunch.cli.requests import site_of_this_host

    chosen = ctx.params.get("site")
    try:
        sites = [chosen] if isinstance(chosen, str) else list(chosen or [site_of_this_host()])
        partitions = {own: part for name in sites for own, part in search.load(name).site.partitions.items()}
    except HpclaunchError:
        return []
    names = [name for own, partition in partitions.items() for name in (own, *partition.aliases)]
    return [name for name in names if name.startswith(incomplete)]


def complete_workload(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a workload."""
    return [name for name in paths.WORKLOADS if name.startswith(incomplete)]


def _complete_check(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from hpclaunch.job.checks import CHECKS
    from hpclaunch.scripts.traps import TRAPS

    names = {**CHECKS, **TRAPS} if ctx.params.get("script") else CHECKS
    return [name for name in names if name.startswith(incomplete)]


_COUNT = click.IntRange(min=1)
_PRICE = click.FloatRange(min=0)
_LINES: dict[str, Any] = {"multiple": True, "type": _Line()}
# The words of all schedulers: users of any site type what they know.
_SITE = ("--site", "-s")
_PARTITION = ("--partition", "-p", "--queue", "-q", "--constraint", "-C")
_OPTIONS = dict(
    [
        _option(*_SITE, shell_complete=_complete_site, help="Profile's name or file.  [default: this host's]"),
        _option("--nodes", "-N", type=_COUNT, help="Nodes.  [default: 1; launch: all of the allocation]"),
        _option(*_PARTITION, shell_complete=_complete_partition, help="Partition, constraint or queue."),
        _option("--account", "-A", "--project", "-P", help="Account to charge."),
        _option("--qos", help="Quality of service.  [default: the first that the job fits]"),
        _option("--walltime", "-t", "--time", help="HH:MM:SS, D-HH:MM:SS, 2h, 90m."),
        _option("--gpus-per-node", type=click.IntRange(min=0), help="GPUs on each node.  [default: all]"),
        _option("--tasks-per-node", type=_COUNT, help="Ranks on each node.  [default: one for each GPU]"),
        _option("--cpus-per-task", type=_COUNT, help="Cores for each rank.  [default: its share of the node]"),
        _option("--mem-gb", type=_COUNT, help="Memory per node in GB."),
        _option("--jobfs-gb", type=_COUNT, help="Node-local disk per node in GB."),
        _option("--job-name", "-J", help="Name of the job.  [default: the script's name]"),
        _option("--launcher", type=click.Choice(model.LAUNCHERS), help="What starts the ranks on a node."),
        _option("--module", **_LINES, help="Module to load instead of the profile's, or none (repeatable)."),
        _option("--setup", **_LINES, help="Line of shell to run before COMMAND (repeatable)."),
        _option("--teardown", **_LINES, help="Line of shell to run when the job ends (repeatable)."),
        _option("--venv", help="Python environment to activate."),
        _option(
            "--env",
            multiple=True,
            type=_Setting(),
            metavar="NAME[=VALUE]",
            help="Variable to set; only NAME: pass its value on (repeatable).",
        ),
        _option("--storage", multiple=True, help="File system that the job uses (repeatable)."),
        _option("--directive", **_LINES, help="Directive, as after #PBS or #SBATCH (repeatable)."),
        _option("--max-attempts", type=_COUNT, help="Continue past the walltime, up to so many jobs.  [default: 1]"),
        _option("--warn-before", help="Warn ranks so long before the walltime.  [default: 2m]"),
        _option("--max-cost", type=_PRICE, help="Refuse a job that may cost more, in the site's unit."),
        _option("--template", help="Template of the job script, by name or file."),
        _option("--workload", shell_complete=complete_workload, help="Bundled program to run.  [default: mnist]"),
        _option(
            "--force",
            multiple=True,
            metavar="CHECK",
            shell_complete=_complete_check,
            help="Let this check warn, not refuse (repeatable).",
        ),
    ]
)
CONFIRM_ABOVE = _option("--confirm-above", type=_PRICE, help="Ask before submitting a job that may cost more.")[1]
SIZES = ("nodes", "tasks_per_node", "gpus_per_node", "cpus_per_task")
# The options of `launch`: what counts where the nodes are allocated already.
_LAUNCH = ("site", *SIZES, "launcher", "module", "setup", "teardown", "venv", "env", "template", "workload", "force")


def request_options(command: Command) -> Command:
    """Give a click command the options of a request."""
    return _give(command, _OPTIONS)


def launch_options(command: Command) -> Command:
    """Give a click command the options of a request that count inside an allocation."""
    return _give(command, _LAUNCH)


def compare_options(command: Command) -> Command:
    """Give a click command the options of a request, with several sites and partitions."""
    several = dict(
        [
            _option(*_SITE, multiple=True, shell_complete=_complete_site, help="Profile's name or file (repeatable)."),
            _option(
                *_PARTITION,
                multiple=True,
                shell_complete=_complete_partition,
                help="Partition, or SITE:PARTITION (repeatable).",
            ),
        ]
    )
    command = _give(command, [name for name in _OPTIONS if name not in several])
    for option in reversed(several.values()):
        command = option(command)
    return command


def _give(command: Command, names: Iterable[str]) -> Command:
    command = click.argument("command", nargs=-1, type=click.UNPROCESSED)(command)
    for name in reversed(list(names)):
        command = _OPTIONS[name](command)
    return command
