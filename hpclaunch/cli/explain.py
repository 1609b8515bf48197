"""`render --explain`: how each option came in, and the table of lines and their origins."""

from __future__ import annotations

import json
import textwrap

import click
import msgspec
from click.core import ParameterSource

from hpclaunch.cli.requests import config_file
from hpclaunch.errors import printable
from hpclaunch.job.explain import Source, explain
from hpclaunch.job.plan import Plan
from hpclaunch.profile.search import Profile
from hpclaunch.profile.yamlfile import Document

_WIDTH = 120
_COLUMN = 25  # a longer name of a file moves its line to the right


def show(ctx: click.Context, plan: Plan, profile: Profile, script: str, as_json: bool) -> None:
    """Print each line of the script behind the template's line that made it, and below it why it is as it is."""
    lines = explain(plan, profile, script, sources(ctx))
    if as_json:
        rows = [{"line": i, "text": line.text, "origins": line.origins} for i, line in enumerate(lines, 1)]
        click.echo(json.dumps(msgspec.to_builtins(rows), indent=2))
        return
    printed = []
    for line in lines:
        place = line.templates[0].where if line.templates else ""
        click.echo(printable(f"{place:{_COLUMN}} {line.text}".rstrip()))
        for reason in line.reasons:
            if reason[0].kind != "template" or reason not in printed:  # a condition, printed where it first holds
                _note(list(map(str, reason)))
        printed += line.reasons


def _note(parts: list[str]) -> None:
    """Print the parts of a reason, as many on a line as there is room for."""
    room, lines = _WIDTH - _COLUMN - 6, [""]
    for part in [f"{part};" for part in parts[:-1]] + parts[-1:]:
        if lines[-1] and len(lines[-1]) + 1 + len(part) > room:
            lines.append("")
        *full, last = textwrap.wrap(f"{lines[-1]} {part}".strip(), room, break_on_hyphens=False) or [""]
        lines[-1:] = [*full, last]
    for number, line in enumerate(filter(None, lines)):
        click.echo(printable(f"{'':{_COLUMN}} {'    ' if number else '  <-'} {line}"))


def sources(ctx: click.Context) -> dict[str, Source]:
    """Return how each part of the request came in: on the command line, in the environment, by the config file."""
    path = config_file()
    config = Document.read(path) if path else None
    found = {}
    for parameter in ctx.command.params:
        name = parameter.name or ""
        given = ctx.get_parameter_source(name)
        if given is ParameterSource.COMMANDLINE:
            long = [option for option in parameter.opts if option.startswith("--")]
            found[name] = Source("option", long[0] if long else "COMMAND")
        elif given is ParameterSource.ENVIRONMENT:
            found[name] = Source("environment", f"HPCLAUNCH_{name.upper()}")
        elif given is ParameterSource.DEFAULT_MAP and config:
            found[name] = Source("config", name, config)
    if "env" in found:
        found["pass_env"] = found["env"]  # --env NAME
    return found
