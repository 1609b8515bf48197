"""The commands site list, show, check, new and schema."""

from __future__ import annotations

import json
from typing import Any

import click
import msgspec

from hpclaunch import paths
from hpclaunch.errors import HpclaunchError, counted, printable
from hpclaunch.profile import search
from hpclaunch.profile.model import Site
from hpclaunch.profile.yamlfile import merged


@click.group("site")
def site_group() -> None:
    """List, show, check and write site profiles."""


@site_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_command(as_json: bool) -> None:
    """List the site profiles."""
    rows = []
    for name, path in search.available().items():
        row: dict[str, Any] = {"name": name, "file": str(path)}
        try:
            found = search.load(name).site
        except HpclaunchError as error:
            row["error"] = str(error)
        else:
            row |= {
                "title": found.title,
                "scheduler": found.scheduler,
                "checked": found.checked and found.checked.isoformat(),
                "partitions": list(found.partitions),
            }
        rows.append(row)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = []
    for row in rows:
        if "error" in row:
            text = "broken: " + row["error"].partition("\n")[0]
        else:
            count = counted(len(row["partitions"]), "partition")
            checked = f", checked {row['checked']}" if row["checked"] else ""
            text = f"{row['title']} ({row['scheduler']}), {count}{checked}; {row['file']}"
        table.append((printable(row["name"]), printable(text)))
    formatter = click.HelpFormatter(width=120)
    formatter.write_dl(table)
    click.echo(formatter.getvalue(), nl=False)


@site_group.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show_command(name: str, as_json: bool) -> None:
    """Print the profile NAME with what it extends filled in.

    Example: hpclaunch site show gadi
    """
    profile = search.load(name)
    data = merged(profile.layers)
    data.pop("extends", None)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(profile.site), indent=2))
        return
    import yaml

    click.echo(printable(f"# {', which extends '.join(str(layer.path) for layer in profile.layers)}"))
    click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100), nl=False)


@site_group.command("check")
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...")
def check_command(names: tuple[str, ...]) -> None:
    """Check profiles, all of them by default.

    Example: hpclaunch site check mine.yaml

    The exit code is 1 if there are mistakes; each is printed with its file and line.
    """
    problems = []
    for name in names or search.available():
        try:
            profile = search.load(name)
        except HpclaunchError as error:
            problems.append(str(error))
        else:
            click.echo(f"{printable(str(profile.layers[0].path))}: fine")
    if problems:
        raise HpclaunchError(*problems)


@site_group.command("new")
@click.argument("name")
@click.option("--from", "parent", help="Profile to start from.")
@click.option("--detect", is_flag=True, help="Draft it from the scheduler's answers, on a login node.")
def new_command(name: str, parent: str | None, detect: bool) -> None:
    """Write a commented profile NAME to edit.

    Example: hpclaunch site new mine --from gadi

    It goes into the user's config folder. An existing one is never changed.
    """
    if detect is (parent is not None):
        raise click.UsageError("give either --from PROFILE, or --detect on a login node")
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise HpclaunchError(f"{name!r}: a profile's name may only have letters, digits, - and _")
    folder = paths.user_config() / "site_profiles"
    schema, path = folder / "site.schema.json", folder / f"{name}.yaml"
    if path.exists():  # before the scheduler is asked
        raise HpclaunchError(_THERE.format(path))
    if parent:
        title = json.dumps(f"{search.load(parent).site.title}, my way")
        text = _STARTER.format(name=name, parent=parent, title=title)
    else:
        text = _draft(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        schema.write_text(_schema(), encoding="utf-8")
    except FileExistsError:
        raise HpclaunchError(_THERE.format(path)) from None
    except OSError as error:
        raise HpclaunchError(f"{error.filename}: cannot be written: {error.strerror}") from None
    click.echo(path)


def _draft(name: str) -> str:
    from hpclaunch.profile.draft import drafted

    text, machine = drafted(name)
    left_out = [why for why in machine.partitions.values() if isinstance(why, str)]
    click.echo(
        f"hpclaunch: {machine.source}: {counted(len(machine.partitions) - len(left_out), 'partition')}, "
        f"{len(left_out)} left out; "
        f"decide {text.count('# Decide:')} lines, look for `Decide:`",
        err=True,
    )
    return text


@site_group.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of a profile, for editors."""
    click.echo(_schema(), nl=False)


def _schema() -> str:
    schema = msgspec.json.schema(Site)
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2) + "\n"


_THERE = "{} exists; edit it, or use another name"
_STARTER = """\
# yaml-language-server: $schema=site.schema.json
# Your own site profile. What you set here wins, all else is as in {parent}: `hpclaunch site show {parent}`.
# Check it with `hpclaunch site check {name}`, use it with `hpclaunch render --site {name}`.
extends: {parent}
title: {title}

# The account to charge without --account.
# account: ab12

# The defaults of a job.
# default_partition: NAME
# default_walltime: "02:00:00"
# launcher: torchrun

# The environment of every job.
# modules: [NAME/1.0]
# setup:
#   - source ~/envs/train/bin/activate
# env:
#   HF_HOME: $HOME/.cache/huggingface

# A limit that has changed, or a missing partition; null removes a key.
# partitions:
#   NAME:
#     max_cores: 960
"""
