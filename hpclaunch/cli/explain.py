"""`render --explain`: how each option came in, and the table of lines and their origins."""

import textwrap

import click
import msgspec
from click.core import ParameterSource

from hpclaunch.cli.echo import echo_json
from hpclaunch.errors import printable
from hpclaunch.job.explain import Source, explain
from hpclaunch.job.plan import Plan
from hpclaunch.profile.search import Profile

_WIDTH = 120
_COLUMN = 25  # a longer name of a file moves its line to the right


def show(ctx: click.Context, plan: Plan, profile: Profile, script: str, as_json: bool) -> None:
    """Print each line of the script behind the template's line that made it, and below it why it is as it is."""
    lines = explain(plan, profile, script, sources(ctx))
    if as_json:
        rows = [{"line": i, "text": line.text, "origins": line.origins} for i, line in enumerate(lines, 1)]
        echo_json(msgspec.to_builtins(rows))
        return
    room, before = _WIDTH - _COLUMN - 6, [""]
    for line in lines:
        places = [str(origin.where) for origin in line.origins if origin.kind == "template"]
        reasons = [str(origin) for origin in line.origins if origin.kind != "template"]
        click.echo(printable(f"{places[0] if places else '':{_COLUMN}} {line.text}".rstrip()))
        for reason in reasons if reasons != before else ():
            for number, part in enumerate(textwrap.wrap(reason, room, break_on_hyphens=False)):
                click.echo(printable(f"{'':{_COLUMN}} {'    ' if number else '  <-'} {part}"))
        before = reasons or before


def sources(ctx: click.Context) -> dict[str, Source]:
    """Return how each part of the request came in: on the command line, in the environment, by the config files."""
    config = ctx.obj.used
    found = {}
    for parameter in ctx.command.params:
        name = parameter.name or ""
        origin = ctx.get_parameter_source(name)
        if origin is ParameterSource.COMMANDLINE:
            long = [option for option in parameter.opts if option.startswith("--")]
            found[name] = Source("option", long[0] if long else "COMMAND")
        elif origin is ParameterSource.ENVIRONMENT:
            found[name] = Source("environment", f"HPCLAUNCH_{name.upper()}")
        elif origin is ParameterSource.DEFAULT_MAP:
            found[name] = Source("config", name, config)
    if given := found.get("env"):  # besides the config files' variables
        found |= {f"env.{setting.partition('=')[0]}": given for setting in ctx.params["env"]}
        for name in ("env", "pass_env"):  # the latter by --env NAME
            found[name] = Source("config", name, config) if any(name in one.data for one in config) else given
    return found
