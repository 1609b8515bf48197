"""The commands init and config: write a config file, and show what counts."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import yaml
from click.core import ParameterSource

from hpclaunch.cli.config import NAME
from hpclaunch.cli.echo import echo, echo_json, json_option, talk
from hpclaunch.cli.explain import sources
from hpclaunch.cli.options import SITES, job_command
from hpclaunch.cli.requests import configured, generic, request_of, settled
from hpclaunch.cli.submit import at_terminal
from hpclaunch.errors import HpclaunchError, printable
from hpclaunch.job.request import Request, quote
from hpclaunch.profile import search
from hpclaunch.profile.yamlfile import Document, convert, place_of
from hpclaunch.schedulers import scheduler


@job_command("config")
@json_option
def config_command(ctx: click.Context, /, as_json: bool, **values: Any) -> None:
    """Show each setting and where it is from.

    Example: hpclaunch config --site gadi --preset debug
    """
    if configured(ctx, values)["site"] or search.match_host():
        values, _ = settled(ctx, values)
    else:
        values = configured(ctx, values)
    rows = list(_settings(ctx, request_of(ctx, values).hidden()))
    if as_json:
        echo_json([dict(zip(("name", "value", "source", "where"), row, strict=True)) for row in rows])
        return
    table = [(name, _words(value), where) for name, value, _, where in rows]
    first, second = (max(len(row[i]) for row in table) for i in (0, 1))
    for name, text, where in table:
        echo(printable(f"{name:<{first}}  {text:<{min(second, 50)}}  {where}"))


def _settings(ctx: click.Context, request: Request) -> Iterator[tuple[str, Any, str, str]]:
    """Yield name, value, kind of origin, and its place: FILE:LINE, an option, a variable."""
    found = sources(ctx)
    for name in request.__struct_fields__:
        value = getattr(request, name)
        if name in found and value not in (None, [], {}):
            for item in value if isinstance(value, dict) else [None]:
                source = found.get(f"{name}.{item}") or found[name]
                where = place_of(source.config, (name, item) if item else (name,)) or source.where
                yield (f"{name}.{item}", value[item], source.kind, where) if item else (name, value, source.kind, where)
    for option in ctx.command.params:
        said = re.search(r"\[default: ([^];]+)", getattr(option, "help", None) or "")
        unused = option.name == "workload" and request.command
        if said and not unused and ctx.get_parameter_source(option.name or "") is ParameterSource.DEFAULT:
            yield str(option.name), getattr(request, str(option.name)) or said[1], "default", "default"


def _words(value: Any) -> str:
    return " ".join(map(quote, value)) if isinstance(value, list) else str(value)


@click.command("init")
@click.option("--site", "-s", help="Profile's name.  [default: this host's, or local]", **SITES)
@click.option("--account", "-A", help="Account to charge.")
@click.option("--venv", help="Environment of Python of the jobs.")
def init_command(site: str | None, account: str | None, venv: str | None) -> None:
    """Write hpclaunch.yaml here, after three questions.

    Example: hpclaunch init --site gadi -A ab12 --venv .venv

    What an option answers is not asked; without a terminal nothing is. An existing file is never changed.
    """
    path = Path(NAME)
    if path.exists():
        raise HpclaunchError(f"{path} exists; edit it, or remove it first")
    site = _answer("Site", site, search.match_host() or generic() or "local")
    profile = search.load(site)
    values = {"site": site}
    if account or not scheduler(profile.site.scheduler).here:
        values["account"] = _answer("Account to charge, if one is needed", account, profile.site.account or "")
    active = (
        os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX") or (".venv" if Path(".venv").is_dir() else "")
    )
    values["venv"] = _answer("Environment of Python (venv, conda or uv), if any", venv, active)
    text = yaml.safe_dump({name: value for name, value in values.items() if value}, sort_keys=False)
    convert([Document.parse(path, text)], Request)
    with path.open("x", encoding="utf-8") as file:
        file.write(_STARTER.format(text=text))
    click.echo(path)
    talk("next: `hpclaunch check`, then `hpclaunch run` here or `hpclaunch submit`; -- COMMAND for a program of yours")


def _answer(question: str, given: str | None, default: str) -> str:
    if given is not None or not at_terminal():
        return default if given is None else given
    return str(click.prompt(question, default=default, show_default=bool(default), err=True))


_STARTER = """\
# Options for this folder and those below; `hpclaunch config` shows what counts, `hpclaunch submit --help` lists all.
{text}
# nodes: 2
# walltime: 10h
# command: [python, train.py]
# env: {{WANDB_MODE: offline}}
# snapshot: true  # jobs run the code as it was at submission
# presets: {{debug: {{nodes: 1, walltime: 30m}}}}  # for --preset debug
# sites: {{jean-zay: {{account: abc@v100}}}}  # for --site jean-zay
"""
