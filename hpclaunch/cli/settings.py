"""The commands init and config: write a config file, and show what counts."""

import os
import re
from pathlib import Path
from typing import Any

import click
import yaml

from hpclaunch import paths
from hpclaunch.cli.config import NAME
from hpclaunch.cli.echo import echo, echo_json, json_option, talk
from hpclaunch.cli.explain import sources
from hpclaunch.cli.help import Command
from hpclaunch.cli.options import SITES, job_command
from hpclaunch.cli.requests import generic, planned_request
from hpclaunch.cli.submit import at_terminal
from hpclaunch.errors import HpclaunchError, printable
from hpclaunch.job.request import make_request, quote
from hpclaunch.profile import search
from hpclaunch.profile.yamlfile import place_of
from hpclaunch.schedulers import scheduler


@job_command("config", epilog="config\nconfig --site gadi --preset debug --json")
@json_option
def config_command(ctx: click.Context, /, as_json: bool, **values: Any) -> None:
    """Show each setting and where it is from."""
    request, found = planned_request(ctx, values)[0].hidden(), sources(ctx)
    rows: list[tuple[str, Any, str, str]] = []  # name, value, kind of origin, and its place
    for name in (name for name in request.__struct_fields__ if name in found):
        value = getattr(request, name)
        for item in value if isinstance(value, dict) else [None] * (value not in (None, [])):
            source = found.get(f"{name}.{item}") or found[name]
            where = place_of(source.config, (name, item) if item else (name,)) or source.where
            rows.append((f"{name}.{item}" if item else name, value[item] if item else value, source.kind, where))
    for option in ctx.command.params:
        said = re.search(r"\[default: ([^];]+)", getattr(option, "help", None) or "")
        if said and option.name not in found and not (option.name == "workload" and request.command):
            rows.append((str(option.name), getattr(request, str(option.name)) or said[1], "default", "default"))
    if as_json:
        echo_json([dict(zip(("name", "value", "source", "where"), row, strict=True)) for row in rows])
    for name, value, _, where in () if as_json else rows:
        text = " ".join(map(quote, value)) if isinstance(value, list) else value
        echo(printable(f"{name:<15} {text!s:<23} {where}"))


@click.command("init", cls=Command, epilog="init\ninit --site gadi -A ab12 --venv .venv")
@click.option("--site", "-s", help="Profile's name.  [default: this host's, or local]", **SITES)
@click.option("--account", "-A", help="Account to charge.")
@click.option("--venv", help="Environment of Python of the jobs.")
def init_command(**given: str | None) -> None:
    """Write hpclaunch.yaml here, after three questions.

    What an option answers is not asked; without a terminal nothing is. An existing file is never changed.
    """

    def answer(name: str, question: str, default: str) -> str:
        if given[name] is None and at_terminal():
            return str(click.prompt(question, default=default, show_default=bool(default), err=True))
        return given[name] or default

    path = Path(NAME)
    if path.exists():
        raise HpclaunchError(f"{path} exists; edit it, or remove it first")
    values = {"site": answer("site", "Site", given["site"] or search.match_host() or generic() or "local")}
    site = search.load(values["site"]).site
    if given["account"] or not scheduler(site.scheduler).here:
        values["account"] = answer("account", "Account to charge, if one is needed", site.account or "")
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX") or ".venv" * Path(".venv").is_dir()
    values["venv"] = answer("venv", "Environment of Python (venv, conda or uv), if any", active)
    make_request({name: value for name, value in values.items() if value})  # what it refuses is not written
    with path.open("x", encoding="utf-8") as file:
        file.write(yaml.safe_dump({name: value for name, value in values.items() if value}, sort_keys=False))
        file.write((paths.shipped("templates") / NAME).read_text(encoding="utf-8"))
    click.echo(path)
    talk("next: `hpclaunch check`, then `hpclaunch run` here or `hpclaunch submit`; -- COMMAND for a program of yours")
