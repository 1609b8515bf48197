"""From options and the config file to a request, the profile of its site, and its script.

Profiles and templates that are not shipped with hpclaunch are named on stderr.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import permutations
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from msgspec import structs

from hpclaunch import paths
from hpclaunch.cli import config
from hpclaunch.cli.config import OF_A_SITE, OF_CLUSTERS
from hpclaunch.cli.echo import talk
from hpclaunch.cli.options import SIZES
from hpclaunch.errors import NOT_SHIPPED
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request, make_request, quote
from hpclaunch.profile import search
from hpclaunch.schedulers import SCHEDULERS, scheduler

# What a script has itself; its directives give way to the other options, as to those of qsub and sbatch.
_OF_A_SCRIPT = (
    "command", "module", "setup", "teardown", "venv", "container", "stage_in", "stage_out", "env", "storage",
    "directive", "workload",
)  # fmt: skip
quiet_option = click.option("--quiet", is_flag=True, help="No summary on stderr, only warnings.")


def configured(ctx: click.Context, values: dict[str, Any], site: str = "", cluster: bool = True) -> dict[str, Any]:
    """Return the options with what the config files say (Config.use) of those, and variables, that are not set."""
    values = {name: values[name] for name in values if name != "preset"}
    ctx.obj = ctx.obj or config.read(ctx.params.get("preset"))
    if ctx.obj.again is not None and ctx.params["preset"]:
        raise click.UsageError("--preset does not go with rerun: give its options", ctx)
    options = ctx.obj.use(site, cluster)
    for parameter in (one for one in ctx.command.params if one.name in values and one.name in options):
        name, value = str(parameter.name), options[str(parameter.name)]
        if not (typed(ctx, name) or (ctx.get_parameter_source(name) is ParameterSource.ENVIRONMENT and values[name])):
            several = isinstance(parameter, click.Option) and parameter.multiple and isinstance(value, str)
            values[name] = [value] if several else value
            ctx.set_parameter_source(name, ParameterSource.DEFAULT_MAP)
        elif name == "env":
            own = {one.partition("=")[0] for one in values[name]}
            values[name] = [*(one for one in value if one.partition("=")[0] not in own), *values[name]]
    return values


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
    from hpclaunch.job.render import render

    script, templates = render(plan)
    announce(map(paths.shown, templates))
    return script, templates


def summarized(plan: Plan, quiet: bool) -> str:
    """Return the script of a plan; print the summary unless `quiet`, and the warnings, on stderr."""
    script, _ = rendered(plan)
    if not quiet:
        if plan.chosen:
            talk(f"partition {plan.partition_name}: {plan.chosen}")
        talk(plan.summary())
    for warning in plan.warnings:
        talk(f"warning: {warning}")
    return script


def planned_request(
    ctx: click.Context,
    values: dict[str, Any],
    here: bool = False,
    starts: bool = False,
    mistaken: list[tuple[str, str]] | None = None,
    there: str = "",
    change: Callable[[Request], Request] | None = None,
) -> tuple[Request, search.Profile]:
    """Return the request that the options make, its site settled, and that site's profile.

    With `here` the site is this machine unless the command line names one. With `starts` the command starts from this
    folder, not from another machine's. If that is `there`, on another machine, paths of this one mean nothing.
    `mistaken` is make_request's. What `change` makes of the request is looked up.
    """
    from hpclaunch.job.machine import follow_links, look_up_files, look_up_folders, look_up_program, with_links

    site = "local" if here and not typed(ctx, "site") else configured(ctx, values)["site"]
    site = site or search.match_host() or generic() or search.site_of_this_host()
    profile = load_site(site)
    local = scheduler(profile.site.scheduler).here
    values = configured(ctx, values | _untyped(ctx, OF_CLUSTERS if local else ()), profile.name, not local)
    request = _request(ctx, values | {"site": site}, mistaken)
    request = change(request) if change else request
    if there:
        return look_up_program(profile.site, with_links(profile.site, request, {".": there}), starts), profile
    request, code = follow_links(profile.site, request, here), ctx.obj.code
    for look_up in (look_up_folders, look_up_files, look_up_program):
        request = look_up(profile.site, request, starts and not code)
    if request.snapshot and not (code or ctx.params.get("script")):
        from hpclaunch.runs.snapshot import MOST_BYTES_OF_A_FILE, look

        code, _, big = look()
        if big:
            talk(f"above {MOST_BYTES_OF_A_FILE // 10**6} MB, linked and not copied: {', '.join(big)}")
    return structs.replace(request, machine=structs.replace(request.machine, snapshot=code)), profile


def generic() -> str | None:
    """Return the profile of the scheduler whose commands are here, announced on stderr, or None if there is none."""
    from shutil import which  # only here: it takes time to import

    name = next((name for name in SCHEDULERS if any(map(which, scheduler(name).needs[:1]))), None)
    if name:
        what = f"{scheduler(name).needs[0]} is here: using --site {name}, which knows no limits"
        talk(f"no profile knows this host; {what}; `hpclaunch site new NAME --detect` describes it")
    return name


def compared_request(ctx: click.Context, values: dict[str, Any], site: str, several: bool, sized: bool) -> Request:
    """Return the request to compare at `site`, its site and partition left open.

    At several sites, values that belong to one of them count only when typed; with `sized` (--gpus) so do the sizes.
    """
    sizes = ("nodes", "gpus_per_node") if sized else ()
    if any(typed(ctx, name) for name in sizes):
        raise click.UsageError("--gpus excludes --nodes and --gpus-per-node: give one of them", ctx)
    values = configured(ctx, values | _untyped(ctx, OF_A_SITE if several else ()), site, not several)
    return _request(ctx, values | _untyped(ctx, sizes))


def launch_request(ctx: click.Context, values: dict[str, Any], kind: str) -> tuple[Request, search.Profile]:
    """Return the request of a launch, and the profile of the site, or of any site with the scheduler `kind`.

    Sizes that are not typed are the allocation's.
    """
    from hpclaunch.job.machine import look_up_program

    name = configured(ctx, values)["site"] or search.match_host() or kind
    name = name if search.load(name).site.scheduler == kind else kind
    profile = load_site(name)
    values = configured(ctx, values, profile.name) | _untyped(ctx, SIZES) | {"site": name}
    return look_up_program(profile.site, _request(ctx, values), starts=True), profile


def script_options(ctx: click.Context, values: dict[str, Any]) -> dict[str, Any]:
    """Return the typed options, which win over a script's; fill in the others. Raises UsageError if one cannot."""
    own = {name: value for name, value in values.items() if name not in ("site", "preset") and typed(ctx, name)}
    if other := next((name for name in own if name in _OF_A_SCRIPT), None):
        raise click.UsageError(f"{other} does not go with --script: the script has its own", ctx)
    values |= configured(ctx, values, configured(ctx, values)["site"])
    # The user's own limit counts wherever it is set.
    return own | {"max_cost": values["max_cost"], "force": list(own.get("force", ()))}


def _request(ctx: click.Context, values: dict[str, Any], mistaken: list[tuple[str, str]] | None = None) -> Request:
    """Return the request that the options make; of COMMAND, --workload and --script the nearest counts."""
    pairs = permutations([name for name in ("command", "workload", "script") if name in ctx.params], 2)
    values |= {other: None for one, other in pairs if other in values and nearer(ctx, one, other)}
    values["pass_env"] = [setting for setting in values["env"] if "=" not in setting]
    values["env"] = dict(setting.split("=", 1) for setting in values["env"] if "=" in setting)
    return make_request({**values, "command": list(values["command"] or ())}, mistaken)


def nearer(ctx: click.Context, one: str, other: str) -> bool:
    """Return whether `one` is set nearer than `other`: typed, in the environment, the config file, not at all."""
    near = [getattr(ParameterSource, name) for name in ("COMMANDLINE", "ENVIRONMENT", "DEFAULT_MAP", "DEFAULT")]
    first, second = (near.index(ctx.get_parameter_source(name) or near[-1]) for name in (one, other))
    return first < second


def typed(ctx: click.Context, name: str) -> bool:
    """Return whether an option stands on the command line."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _untyped(ctx: click.Context, names: Iterable[str]) -> dict[str, None]:
    """Return the values that leave open those of `names` that are not typed."""
    return {name: None for name in names if not typed(ctx, name)}
