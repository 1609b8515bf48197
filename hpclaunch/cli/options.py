"""The options that make a request: the same for every command that plans a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from click.core import ParameterSource

from hpclaunch import paths
from hpclaunch.cli.foreign import load_site
from hpclaunch.errors import HpclaunchError
from hpclaunch.job.request import Request, make_request
from hpclaunch.profile import model, search
from hpclaunch.profile.yamlfile import Document, convert

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
            self.fail(f"{text!r} is no variable's name: write NAME=VALUE, or NAME to pass its value on", param, ctx)
        return text


def _option(*names: str, **attributes: Any) -> tuple[str, Callable[[Any], Any]]:
    """Make an option that can come from HPCLAUNCH_<its first long name> too; return it with its name."""
    name = next(name for name in names if name.startswith("--")).removeprefix("--").replace("-", "_")
    return name, click.option(*names, name, envvar=f"HPCLAUNCH_{name.upper()}", **attributes)


def _complete_site(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in search.available() if name.startswith(incomplete)]


def _complete_partition(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    chosen = ctx.params.get("site")
    try:
        sites = [chosen] if isinstance(chosen, str) else list(chosen or [site_of_this_host()])
        partitions = {own: part for name in sites for own, part in search.load(name).site.partitions.items()}
    except HpclaunchError:
        return []
    names = [name for own, partition in partitions.items() for name in (own, *partition.aliases)]
    return [name for name in names if name.startswith(incomplete)]


def complete_workload(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Offer the workloads' names to the shell's completion."""
    return [name for name in paths.WORKLOADS if name.startswith(incomplete)]


def _complete_check(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from hpclaunch.job.checks import CHECKS
    from hpclaunch.scripts.traps import TRAPS

    names = {**CHECKS, **TRAPS} if ctx.params.get("script") else CHECKS
    return [name for name in names if name.startswith(incomplete)]


_COUNT = click.IntRange(min=1)
_PRICE = click.FloatRange(min=0)
# The words of all schedulers: a person of any site types what they know.
_PARTITION = ("--partition", "-p", "--queue", "-q", "--constraint", "-C")
_OPTIONS = dict(
    [
        _option(
            "--site",
            "-s",
            shell_complete=_complete_site,
            help="Site profile, by name or file.  [default: the one that knows this host]",
        ),
        _option("--nodes", "-N", type=_COUNT, help="Nodes.  [default: 1; launch: all that are there]"),
        _option(
            *_PARTITION,
            shell_complete=_complete_partition,
            help="Partition, constraint or queue, by any of its names.",
        ),
        _option("--account", "-A", "--project", "-P", help="Whom to charge."),
        _option("--qos", help="Quality of service.  [default: the first that the job fits]"),
        _option("--walltime", "-t", "--time", help="HH:MM:SS, D-HH:MM:SS, 2h, 90m."),
        _option("--gpus-per-node", type=click.IntRange(min=0), help="GPUs on each node.  [default: all]"),
        _option("--tasks-per-node", type=_COUNT, help="Ranks on each node.  [default: one for each GPU]"),
        _option("--cpus-per-task", type=_COUNT, help="Cores for each rank.  [default: its share of the node]"),
        _option("--mem-gb", type=_COUNT, help="Memory per node in GB."),
        _option("--jobfs-gb", type=_COUNT, help="Node-local disk per node in GB."),
        _option("--job-name", "-J", help="[default: the script's name]"),
        _option("--launcher", type=click.Choice(model.LAUNCHERS), help="What starts the ranks on a node."),
        _option(
            "--module",
            multiple=True,
            type=_Line(),
            help="Module to load, instead of the profile's (repeatable); none: no module.",
        ),
        _option("--setup", multiple=True, type=_Line(), help="Line of shell to run before the command (repeatable)."),
        _option("--teardown", multiple=True, type=_Line(), help="Line of shell for the job's end (repeatable)."),
        _option("--venv", help="Python environment to activate."),
        _option(
            "--env",
            multiple=True,
            type=_Setting(),
            metavar="NAME[=VALUE]",
            help="Variable to set; NAME alone passes on the value that it has where the job is submitted (repeatable).",
        ),
        _option("--storage", multiple=True, help="File system that the job needs to see (repeatable)."),
        _option("--directive", multiple=True, type=_Line(), help="Directive as after #PBS or #SBATCH (repeatable)."),
        _option("--max-attempts", type=_COUNT, help="Go on past the walltime, up to so many attempts.  [default: 1]"),
        _option("--warn-before", help="How long before the walltime ranks are told to save.  [default: 2m]"),
        _option("--max-cost", type=_PRICE, help="Refuse what may cost more, in the site's own unit."),
        _option("--template", help="Template of the job script, by name or file."),
        _option(
            "--workload",
            shell_complete=complete_workload,
            help="Bundled program to run instead of a COMMAND.  [default: mnist]",
        ),
        _option(
            "--force",
            multiple=True,
            metavar="CHECK",
            shell_complete=_complete_check,
            help="Let this check warn and not refuse (repeatable).",
        ),
    ]
)
_COMMAND = click.argument("command", nargs=-1, type=click.UNPROCESSED)
# What belongs to a cluster: on this machine it counts from the command line alone.
_SITE_BOUND = (
    "partition",
    "account",
    "qos",
    "gpus_per_node",
    "jobfs_gb",
    "module",
    "storage",
    "directive",
    "template",
)

CONFIRM_ABOVE = _option("--confirm-above", type=_PRICE, help="Ask before submitting what may cost more.")[1]
_SIZES = ("nodes", "tasks_per_node", "gpus_per_node", "cpus_per_task")
# What counts where the nodes are there already.
_IN_AN_ALLOCATION = (
    "site",
    *_SIZES,
    "launcher",
    "module",
    "setup",
    "teardown",
    "venv",
    "env",
    "template",
    "workload",
    "force",
)


def request_options(command: Command) -> Command:
    """Give a click command the options of a request."""
    return _give(command, _OPTIONS)


def launch_options(command: Command) -> Command:
    """Give a click command those options of a request that count inside an allocation."""
    return _give(command, _IN_AN_ALLOCATION)


def compare_options(command: Command) -> Command:
    """Give a click command the options of a request, with as many sites and partitions as are to be compared."""
    several = [
        _option(
            "--site",
            "-s",
            multiple=True,
            shell_complete=_complete_site,
            help="Site profile, by name or file (repeatable).",
        ),
        _option(
            *_PARTITION,
            multiple=True,
            shell_complete=_complete_partition,
            help="Partition, or SITE:PARTITION (repeatable).",
        ),
    ]
    command = _give(command, [name for name in _OPTIONS if name not in dict(several)])
    for _, option in reversed(several):
        command = option(command)
    return command


def _give(command: Command, names: Iterable[str]) -> Command:
    command = _COMMAND(command)
    for name in reversed(list(names)):
        command = _OPTIONS[name](command)
    return command


def config_file() -> Path | None:
    """Return the config file, ./hpclaunch.yaml or else the user's."""
    return next(filter(Path.is_file, (Path("hpclaunch.yaml"), paths.user_config() / "hpclaunch.yaml")), None)


def config_defaults(several: Iterable[str] = ()) -> dict[str, Any]:
    """Return what the config file says; of `several` the command takes many. Raises ProfileError with every mistake."""
    path = config_file()
    values: dict[str, Any] = msgspec.to_builtins(convert([Document.read(path)], Request)) if path else {}
    if "env" in values:
        values["env"] = [f"{name}={value}" for name, value in values["env"].items()]
    if passed := values.pop("pass_env", None):
        values["env"] = [*values.get("env", ()), *passed]
    return values | {name: [values[name]] for name in several if name in values}


def planned_request(
    ctx: click.Context,
    values: dict[str, Any],
    here: bool = False,
    starts: bool = False,
    mistaken: list[tuple[str, str]] | None = None,
) -> tuple[Request, search.Profile]:
    """Return the request that the options make, its site settled, and that site's profile.

    With `here` the site is this machine unless the command line names one. The command `starts` from this folder, and
    not from another machine's. `mistaken` is make_request's.
    """
    from hpclaunch.job.links import followed
    from hpclaunch.job.program import looked_up

    if here and not _typed(ctx, "site"):
        values["site"] = "local"
    values["site"] = values["site"] or site_of_this_host()
    profile = load_site(values["site"])
    if profile.site.scheduler == "local":
        values |= {name: None for name in _SITE_BOUND if not _typed(ctx, name)}
    request = followed(profile.site, _request(ctx, values, mistaken), here)
    return looked_up(profile.site, request, starts), profile


def compared_request(ctx: click.Context, values: dict[str, Any], several: bool, sized: bool) -> Request:
    """Return the request that is to be compared, its site and partition left open.

    At several sites what belongs to one of them counts from the command line alone; `sized`, so do the sizes.
    """
    open_ones = (*(_SITE_BOUND if several else ()), *(("nodes", "gpus_per_node") if sized else ()))
    for name in ("nodes", "gpus_per_node"):
        if sized and _typed(ctx, name):
            raise click.UsageError(f"give --gpus, or --{name.replace('_', '-')}: one follows from the other", ctx)
    values |= {name: None for name in open_ones if name in values and not _typed(ctx, name)}
    return _request(ctx, values)


def _request(ctx: click.Context, values: dict[str, Any], mistaken: list[tuple[str, str]] | None = None) -> Request:
    """Return the request that the options make; of COMMAND and --workload the one from nearer by counts."""
    if nearer(ctx, "command", "workload"):
        values["workload"] = None
    elif nearer(ctx, "workload", "command"):
        values["command"] = None
    values["pass_env"] = [setting for setting in values["env"] if "=" not in setting]
    values["env"] = dict(setting.split("=", 1) for setting in values["env"] if "=" in setting)
    return make_request({**values, "command": list(values["command"] or ())}, mistaken)


def nearer(ctx: click.Context, one: str, other: str) -> bool:
    """Tell whether `one` of two options that are both given comes from nearer by: typed, environment, config file."""
    near = [ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP]
    sources = [ctx.get_parameter_source(name) for name in (one, other)]
    if not all(source in near for source in sources):
        return False
    first, second = (near.index(source) for source in sources if source)
    return first < second


def _typed(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def launch_request(ctx: click.Context, values: dict[str, Any], scheduler: str) -> tuple[Request, search.Profile]:
    """Return the request of a launch, and the profile of the site, or of any site with that scheduler.

    The sizes are the allocation's, where the command line does not say otherwise.
    """
    values |= {name: None for name in _SIZES if not _typed(ctx, name)}
    name = values["site"] or _matching_host()
    if name is None or search.load(name).site.scheduler != scheduler:
        name = scheduler
    from hpclaunch.job.program import looked_up

    profile = load_site(name)
    return looked_up(profile.site, _request(ctx, {**values, "site": name}), starts=True), profile


def script_options(ctx: click.Context, values: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the profile that knows this host, if one is needed, and what the command line says besides a script.

    Raises click.UsageError for what cannot win over the script.
    """
    from hpclaunch.cli.check_script import WINNING

    typed = {name: value for name, value in values.items() if name != "site" and _typed(ctx, name)}
    if other := next((name for name in typed if name not in WINNING), None):
        what = "a COMMAND" if other == "command" else f"--{other.replace('_', '-')}"
        raise click.UsageError(f"{what} does not go with --script: the script has its own", ctx)
    if values["max_cost"] is not None:  # a limit of one's own counts wherever it is said
        typed["max_cost"] = values["max_cost"]
    if "force" in typed:
        typed["force"] = list(typed["force"])
    return (None if values["site"] else _matching_host()), typed


def _matching_host() -> str | None:
    import socket

    hosts = dict.fromkeys((socket.gethostname(), socket.getfqdn()))
    return next(filter(None, map(search.match_host, hosts)), None)


def site_of_this_host() -> str:
    """Return the name of the profile that knows this host. Raises HpclaunchError where none does."""
    import socket

    if (name := _matching_host()) is None:
        hosts = dict.fromkeys((socket.gethostname(), socket.getfqdn()))
        raise HpclaunchError(
            f"which site? No profile knows this host, {' or '.join(hosts)}",
            "give --site, set HPCLAUNCH_SITE, or write `site:` into hpclaunch.yaml; "
            f"known: {', '.join(search.available())}",
        )
    return name
