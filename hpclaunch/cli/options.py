"""The options that make a request: the same for every command that plans a job."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from hpclaunch import paths
from hpclaunch.cli.help import Command
from hpclaunch.errors import HpclaunchError
from hpclaunch.profile import search
from hpclaunch.profile.model import Partition
from hpclaunch.profile.types import LAUNCHERS


class _Line(click.types.StringParamType):
    """Text with blanks in it: a variable that holds several has one on each line."""

    name = "line"
    envvar_list_splitter = "\n"


class _File(click.ParamType[Path]):
    """A path, there or not: click.Path looks for translations of its name, which takes longer than most imports."""

    name = "path"

    def __init__(self, dash: str = "") -> None:
        self.dash = dash  # the file that - stands for, if any

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if value == "-" and not self.dash:
            self.fail("'-' is not stdout here; use the name of a file, or leave it out", param, ctx)
        return Path(self.dash if value == "-" else value)

    def shell_complete(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


INPUT, OUTPUT = _File("/dev/stdin"), _File()


class _Nodes(click.IntRange):
    """A number of nodes, or a range of them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; a range as it is."""
        return value if re.fullmatch("[1-9][0-9]*:[1-9][0-9]*", str(value)) else super().convert(value, param, ctx)


def completes(names: Callable[[click.Context], Iterable[str]]) -> dict[str, Any]:
    """Return what lets click complete `names`, or nothing if they cannot be read."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        with suppress(HpclaunchError):
            return [name for name in names(ctx) if name.startswith(incomplete)]
        return []

    return {"shell_complete": complete}


def _of_sites(ctx: click.Context) -> Iterator[tuple[list[str], Partition]]:
    """Yield the partitions of the sites that are typed, or of this one, each with its names."""
    sites = ctx.params.get("site") or search.site_of_this_host()
    for site in [sites] if isinstance(sites, str) else sites:
        for name, partition in search.load(site).site.partitions.items():
            yield [name, *partition.aliases], partition


def _qos(ctx: click.Context) -> Iterable[str]:
    typed = ctx.params.get("partition")
    found = [partition for names, partition in _of_sites(ctx) if not typed or typed in names]
    return dict.fromkeys(qos.name for partition in found for qos in partition.qos)


def _checks(ctx: click.Context) -> Iterable[str]:
    from hpclaunch.job.checks import CHECKS
    from hpclaunch.scripts.checks import SCRIPT_CHECKS

    return {**CHECKS, **SCRIPT_CHECKS} if ctx.params.get("script") else CHECKS


SITES = completes(lambda _: search.available())


def _jobs(_ctx: click.Context) -> list[str]:
    from hpclaunch.runs import registry

    return [run.id for run in registry.newest_first()]


JOB_IDS = completes(_jobs)
_PARTITIONS = completes(lambda ctx: (name for names, _ in _of_sites(ctx) for name in names))
WORKLOADS = completes(lambda _: paths.WORKLOADS)
_TEXT: dict[str, Any] = {}
_COUNT = {"type": click.IntRange(min=1)}
_PRICE = {"type": click.FloatRange(min=0)}
_TEXTS = {"multiple": True}
_LINES = {"multiple": True, "type": _Line()}
# The words of all schedulers: users of any site type what they know.
_ROWS = (
    ("--preset", _TEXT, "Preset of the config files."),
    ("--site -s", SITES, "Profile's name or file.  [default: this host's]"),
    ("--nodes -N", {"type": _Nodes(min=1)}, "Nodes; MIN:MAX: as many as are free (Slurm).  [default: 1; launch: all]"),
    ("--partition -p --queue -q --constraint -C", _PARTITIONS, "Partition, constraint or queue."),
    ("--account -A --project -P", _TEXT, "Account to charge."),
    ("--qos", completes(_qos), "Quality of service.  [default: the first that the job fits]"),
    ("--walltime -t --time", _TEXT, "HH:MM:SS, D-HH:MM:SS, 2h, 90m."),
    ("--gpus-per-node", {"type": click.IntRange(min=0)}, "GPUs on each node.  [default: all]"),
    ("--tasks-per-node", _COUNT, "Ranks on each node.  [default: one for each GPU]"),
    ("--cpus-per-task", _COUNT, "Cores for each rank.  [default: its share of the node]"),
    ("--mem-gb", _COUNT, "Memory per node in GB."),
    ("--jobfs-gb", _COUNT, "Node-local disk per node in GB."),
    ("--job-name -J", _TEXT, "Name of the job.  [default: the script's name]"),
    ("--launcher", {"type": click.Choice(LAUNCHERS)}, "What starts the ranks on a node."),
    ("--module", _LINES, "Module to load instead of the profile's, or none (repeatable)."),
    ("--setup", _LINES, "Line of shell to run before COMMAND (repeatable)."),
    ("--teardown", _LINES, "Line of shell to run when the job ends (repeatable)."),
    ("--venv", _TEXT, "Environment of Python to activate: venv, conda or uv."),
    ("--container", _TEXT, "Image to run COMMAND in, a file or a name."),
    ("--stage-in", _LINES | {"metavar": "SRC[:DEST]"}, "Copy to each node's own disk before COMMAND (repeatable)."),
    ("--stage-out", _LINES | {"metavar": "SRC[:DEST]"}, "Copy back from there at the job's end (repeatable)."),
    ("--env", _LINES | {"metavar": "NAME[=VALUE]"}, "Variable to set; only NAME: pass its value on (repeatable)."),
    ("--network", _TEXT, "Network variables of the profile, by name, or none."),
    ("--storage", _TEXTS, "File system that the job uses (repeatable)."),
    ("--directive", _LINES, "Directive, as after #PBS or #SBATCH (repeatable)."),
    ("--mail", _TEXT | {"metavar": "ADDRESS"}, "Have the scheduler send its mail of the job there."),
    ("--mail-on", _TEXT, "At which events, of begin,end,fail.  [default: end,fail]"),
    ("--max-attempts", _COUNT, "Continue past the walltime, up to so many jobs.  [default: 1]"),
    ("--max-restarts", _COUNT, "Start ranks again in the allocation, so often (torchrun)."),
    ("--min-nodes", _COUNT, "Go on with so many nodes if others die (torchrun)."),
    ("--spares", _COUNT, "Idle nodes, charged too, to replace dead ones (torchrun)."),
    ("--warn-before", _TEXT, "Warn ranks so long before the walltime.  [default: 2m]"),
    ("--hang-after", _TEXT, "End ranks that do nothing for so long, with their stacks."),
    ("--snapshot/--no-snapshot", {"default": None}, "Run the code as it is now, a copy of it."),
    ("--preflight/--no-preflight", {"default": None}, "Test the nodes before the ranks start."),
    ("--max-cost", _PRICE, "Refuse a job that may cost more, in the site's unit."),
    ("--template", _TEXT, "Template of the job script, by name or file."),
    ("--workload", WORKLOADS, "Bundled program to run.  [default: mnist]"),
    ("--force", _TEXTS | completes(_checks), "Let this check warn, not refuse (repeatable)."),
)
SIZES = ("nodes", "tasks_per_node", "gpus_per_node", "cpus_per_task")
# The options of `launch`: what counts where the nodes are allocated already.
LAUNCH = ("preset", "site", *SIZES, "launcher", "module", "setup", "teardown", "venv", "container", "env", "network",
          "template", "workload", "force", "preflight")  # fmt: skip
# The options of `shell`: what an interactive job has, which runs once and starts no ranks.
SHELL = ("preset", "site", "nodes", "partition", "account", "qos", "walltime", "gpus_per_node", "tasks_per_node",
         "cpus_per_task", "mem_gb", "jobfs_gb", "job_name", "module", "setup", "venv", "env", "network", "storage",
         "directive", "max_cost", "template", "force")  # fmt: skip


def _option(words: str, attributes: dict[str, Any], text: str) -> Callable[[Any], Any]:
    """Make an option that HPCLAUNCH_<its first name> can set too."""
    return click.option(*words.split(), envvar=f"HPCLAUNCH_{_name(words).upper()}", help=text, **attributes)


def _name(words: str) -> str:
    return re.split("[ /]", words)[0].removeprefix("--").replace("-", "_")


HOST = _option("--host", _TEXT, "Submit on this host by ssh, with the files of this folder, as me@gadi.nci.org.au.")
REMOTE_FOLDER = _option("--remote-folder", _TEXT, "Of the runs there.  [default: $SCRATCH/hpclaunch or ~/hpclaunch]")
CONFIRM_ABOVE = _option("--confirm-above", _PRICE, "Ask before submitting a job that may cost more.")


def _only_run(ctx: click.Context, _param: click.Parameter, rank: str | None) -> None:
    if rank is not None:
        raise click.UsageError("--debug-rank needs a terminal, which a job has not; use hpclaunch run", ctx)


def job_command(
    name: str, only: Iterable[str] = (), several: Iterable[str] = (), epilog: str = "", without: str = ""
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a click command that takes the context, COMMAND and the options of a request, or `only` some of them.

    It has no option `without`. The options `several` may be given repeatedly.
    """

    def make(function: Callable[..., None]) -> click.Command:
        command: Any = click.pass_context(function)
        if name != "shell":
            words: Any = {"nargs": -1, "type": click.UNPROCESSED, "shell_complete": INPUT.shell_complete}
            command = click.argument("command", **words)(command)
        if name in ("render", "submit", "launch"):
            command = click.option("--debug-rank", hidden=True, expose_value=False, callback=_only_run)(command)
        for words, attributes, text in reversed(_ROWS):
            if _name(words) in several:
                command = _option(words, attributes | _TEXTS, text.replace(".", " (repeatable).", 1))(command)
            elif (not only or _name(words) in only) and _name(words) != without:
                command = _option(words, attributes, text)(command)
        settings = {"allow_interspersed_args": False}
        return click.command(name, cls=Command, epilog=epilog, context_settings=settings)(command)

    return make
