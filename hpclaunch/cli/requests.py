"""From options and the config file to a request, the profile of its site, and its script.

Profiles and templates that are not shipped with hpclaunch are named on stderr.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from hpclaunch import paths
from hpclaunch.cli.echo import talk
from hpclaunch.cli.options import SIZES
from hpclaunch.errors import NOT_SHIPPED
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request, make_request, quote
from hpclaunch.profile import search
from hpclaunch.profile.yamlfile import Document, convert
from hpclaunch.schedulers import SCHEDULERS, scheduler

# What belongs to a cluster: on this machine, and for another site, it counts only when typed.
_OF_A_SITE = (
    "partition", "account", "qos", "gpus_per_node", "jobfs_gb", "module", "container", "network", "storage",
    "directive", "template",
)  # fmt: skip
# What a script has itself; its directives give way to the other options, as to those of qsub and sbatch.
_OF_A_SCRIPT = (
    "command", "module", "setup", "teardown", "venv", "container", "stage_in", "stage_out", "env", "storage",
    "directive", "workload",
)  # fmt: skip


def config_file() -> Path | None:
    """Return the config file: ./hpclaunch.yaml, or else the user's."""
    return next(filter(Path.is_file, (Path("hpclaunch.yaml"), paths.user_config() / "hpclaunch.yaml")), None)


def config_defaults(several: Iterable[str] = ()) -> dict[str, Any]:
    """Return the config file's values as options; those of `several` as lists. Raises ProfileError."""
    path = config_file()
    values: dict[str, Any] = msgspec.to_builtins(convert([Document.read(path)], Request)) if path else {}
    env = [f"{name}={value}" for name, value in values.pop("env", {}).items()] + values.pop("pass_env", [])
    return values | ({"env": env} if env else {}) | {name: [values[name]] for name in several if name in values}


def announce(files: Iterable[str]) -> None:
    """Name on stderr the profiles and templates that are not shipped: they may belong to a cloned repository."""
    if named := " ".join(map(quote, files)):
        talk(f"{NOT_SHIPPED} {named}")


def load_site(name: str) -> search.Profile:
    """Load the profile `name` and announce those of its files that are not shipped."""
    profile = search.load(name)
    announce(profile.foreign)
    return profile


def rendered(plan: Plan) -> tuple[str, list[Path]]:
    """Render the job script; announce the templates that are not shipped, and return them too."""
    from hpclaunch.job.render import Cache, render

    script, templates = render(plan, Cache(paths.user_cache()))
    announce(map(paths.shown, templates))
    return script, templates


def planned_request(
    ctx: click.Context,
    values: dict[str, Any],
    here: bool = False,
    starts: bool = False,
    mistaken: list[tuple[str, str]] | None = None,
    there: str = "",
) -> tuple[Request, search.Profile]:
    """Return the request that the options make, its site settled, and that site's profile.

    With `here` the site is this machine unless the command line names one. With `starts` the command starts from this
    folder, not from another machine's. If that is `there`, on another machine, paths of this one mean nothing.
    `mistaken` is make_request's.
    """
    from hpclaunch.job.machine import follow_links, look_up_files, look_up_folders, look_up_program, with_links

    if here and not _typed(ctx, "site"):
        values["site"] = "local"
    values["site"] = values["site"] or search.match_host() or _generic() or search.site_of_this_host()
    profile = load_site(values["site"])
    if scheduler(profile.site.scheduler).here:
        values |= _untyped(ctx, _OF_A_SITE)
    request = _request(ctx, values, mistaken)
    if there:
        return look_up_program(profile.site, with_links(profile.site, request, {".": there}), starts), profile
    request = follow_links(profile.site, request, here)
    for look_up in (look_up_folders, look_up_files, look_up_program):
        request = look_up(profile.site, request, starts)
    return request, profile


def _generic() -> str | None:
    """Return the profile of the scheduler whose commands are here, announced on stderr, or None if there is none."""
    from shutil import which  # only here: it takes time to import

    name = next((name for name in SCHEDULERS if any(map(which, scheduler(name).needs[:1]))), None)
    if name:
        what = f"{scheduler(name).needs[0]} is here: using --site {name}, which knows no limits"
        talk(f"no profile knows this host; {what}; `hpclaunch site new NAME --detect` describes it")
    return name


def compared_request(ctx: click.Context, values: dict[str, Any], several: bool, sized: bool) -> Request:
    """Return the request to compare, its site and partition left open.

    At several sites, values that belong to one of them count only when typed; with `sized` (--gpus) so do the sizes.
    """
    sizes = ("nodes", "gpus_per_node") if sized else ()
    if any(_typed(ctx, name) for name in sizes):
        raise click.UsageError("--gpus excludes --nodes and --gpus-per-node: give one of them", ctx)
    values |= _untyped(ctx, (*(_OF_A_SITE if several else ()), *sizes))
    return _request(ctx, values)


def launch_request(ctx: click.Context, values: dict[str, Any], kind: str) -> tuple[Request, search.Profile]:
    """Return the request of a launch, and the profile of the site, or of any site with the scheduler `kind`.

    Sizes that are not typed are the allocation's.
    """
    from hpclaunch.job.machine import look_up_program

    values |= _untyped(ctx, SIZES)
    name = values["site"] or search.match_host() or kind
    if search.load(name).site.scheduler != kind:
        name = kind
    values["site"], profile = name, load_site(name)
    return look_up_program(profile.site, _request(ctx, values), starts=True), profile


def script_options(ctx: click.Context, values: dict[str, Any]) -> dict[str, Any]:
    """Return the typed options, which win over a script's. Raises click.UsageError for one that cannot."""
    typed = {name: value for name, value in values.items() if name != "site" and _typed(ctx, name)}
    if other := next((name for name in typed if name in _OF_A_SCRIPT), None):
        raise click.UsageError(f"{other} does not go with --script: the script has its own", ctx)
    # The user's own limit counts wherever it is set.
    return typed | {"max_cost": values["max_cost"], "force": list(typed.get("force", ()))}


def _request(ctx: click.Context, values: dict[str, Any], mistaken: list[tuple[str, str]] | None = None) -> Request:
    """Return the request that the options make; of COMMAND and --workload the nearer one counts."""
    if nearer(ctx, "command", "workload"):
        values["workload"] = None
    elif nearer(ctx, "workload", "command"):
        values["command"] = None
    values["pass_env"] = [setting for setting in values["env"] if "=" not in setting]
    values["env"] = dict(setting.split("=", 1) for setting in values["env"] if "=" in setting)
    return make_request({**values, "command": list(values["command"] or ())}, mistaken)


def nearer(ctx: click.Context, one: str, other: str) -> bool:
    """Return whether `one` is set nearer than `other`: typed, in the environment, the config file, not at all."""
    near = [getattr(ParameterSource, name) for name in ("COMMANDLINE", "ENVIRONMENT", "DEFAULT_MAP", "DEFAULT")]
    first, second = (near.index(ctx.get_parameter_source(name)) for name in (one, other))
    return first < second


def _typed(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _untyped(ctx: click.Context, names: Iterable[str]) -> dict[str, None]:
    """Return the values that leave open those of `names` that are not typed."""
    return {name: None for name in names if not _typed(ctx, name)}
