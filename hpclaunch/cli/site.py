"""The commands site list, show, check, test, new and schema."""

import json
import re
import shutil
import sys
from functools import partial
from typing import Any

import click
import msgspec

from hpclaunch import paths
from hpclaunch.cli.echo import coloured, echo_json, echo_table, json_option, talk
from hpclaunch.cli.help import Group
from hpclaunch.errors import HpclaunchError, counted, printable
from hpclaunch.profile import search
from hpclaunch.profile.yamlfile import merged
from hpclaunch.schedulers import SCHEDULERS
from hpclaunch.schedulers.machine import Kind, Machine, Part, Value


@click.group("site", cls=Group, epilog="site list\nsite new mine --from gadi")
def site_group() -> None:
    """List, show, check and write site profiles."""


@site_group.command("list", epilog="site list\nsite list --json")
@json_option
def list_command(as_json: bool) -> None:
    """List the site profiles."""
    rows: list[dict[str, Any]] = []
    table: list[tuple[object, ...]] = []
    for name, path in search.available().items():
        pack = next((own for folder, own in paths.packs().items() if path.is_relative_to(folder)), None)
        rows.append({"name": name, "file": str(path), "pack": pack})
        try:
            profile = search.load(name)
        except HpclaunchError as error:
            rows[-1]["error"] = str(error)
            table.append((name, "broken", "", "", "", str(error).partition("\n")[0]))
            continue
        site = profile.site
        checked = site.checked and site.checked.isoformat()
        text = json.dumps(merged(profile.layers), default=str)
        lists = re.findall(r'"unconfirmed": \[([^\]]+)', text)
        share = sum(names.count(",") + 1 for names in lists) / (text.count('": ') - len(lists))
        rows[-1] |= {"title": site.title, "scheduler": site.scheduler, "checked": checked}
        rows[-1] |= {"partitions": list(site.partitions), "unconfirmed": round(share, 3)}
        sure = f"{min(round(100 - 100 * share), 99)} %" if share else "all" if checked else ""
        where = f"{site.title}; {f'{pack}, ' if pack else ''}{paths.shown(path)}"
        table.append((name, site.scheduler, len(site.partitions), checked or "", sure, where))
    if as_json:
        echo_json(rows)
    else:
        echo_table(("SITE", "SCHEDULER", "PARTITIONS", "CHECKED", "CONFIRMED", "TITLE, PROFILE"), table)


@site_group.command("show", epilog="site show gadi\nsite show jean-zay --json")
@click.argument("name")
@json_option
def show_command(name: str, as_json: bool) -> None:
    """Print the profile NAME with what it extends filled in."""
    profile = search.load(name)
    if as_json:
        echo_json(msgspec.to_builtins(profile.site))
        return
    import yaml

    data = merged(profile.layers)
    data.pop("extends", None)
    click.echo(printable(f"# {', which extends '.join(str(layer.path) for layer in profile.layers)}"))
    click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100), nl=False)


@site_group.command("check", epilog="site check\nsite check mine.yaml")
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...")
@json_option
def check_command(names: tuple[str, ...], as_json: bool) -> None:
    """Check profiles, all of them by default.

    The exit code is 1 if there are mistakes; each is printed with its file and line.
    """
    problems: list[str] = []
    rows: list[dict[str, Any]] = []
    for name in names or search.available():
        rows.append({"name": name, "file": None, "mistakes": []})
        try:
            profile = search.load(name)
        except HpclaunchError as error:
            problems.append(str(error))
            rows[-1]["mistakes"] = str(error).splitlines()
        else:
            rows[-1]["file"] = str(profile.layers[0].path)
            if not as_json:
                click.echo(f"{printable(rows[-1]['file'])}: {coloured('fine')}")
    if as_json:
        echo_json(rows)
        raise SystemExit(bool(problems))
    if problems:
        raise HpclaunchError(*problems)


@site_group.command("test", epilog="site test gadi\nsite test mine --rehearse")
@click.argument("name")
@click.option("--rehearse", is_flag=True, help="Train on two emulated nodes too; needs torch.")
@json_option
def test_command(name: str, rehearse: bool, as_json: bool) -> None:
    """Test the profile NAME: sources, scripts, limits, prices.

    Each partition is rendered with each launcher, and the script read back. The exit code is 1 if anything
    fails.
    """
    from hpclaunch.cli.doctor import print_results
    from hpclaunch.doctor import conformance

    profile = search.load(name)
    results = [*conformance.conform(profile), *([conformance.rehearse(profile)] if rehearse else [])]
    print_results(results, as_json)
    raise SystemExit(any(result.refuses for result in results))


@site_group.command("new", epilog="site new mine --from gadi\nsite new mine --detect")
@click.argument("name")
@click.option("--from", "parent", help="Profile to start from.")
@click.option("--detect", is_flag=True, help="Draft it from the scheduler's answers, on a login node.")
def new_command(name: str, parent: str | None, detect: bool) -> None:
    """Write a commented profile NAME to edit.

    It goes into the user's config folder. An existing one is never changed. Without --from and --detect it asks.
    """
    if (detect and parent) or not (detect or parent or sys.stdin.isatty()):
        raise click.UsageError("give either --from PROFILE, or --detect on a login node")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise HpclaunchError(f"{name!r}: a profile's name may only have letters, digits, - and _")
    path = paths.user_config() / "site_profiles" / f"{name}.yaml"
    if path.exists():  # before the scheduler is asked
        raise HpclaunchError(f"{path} exists; edit it, or use another name")
    if parent:
        title = json.dumps(f"{search.load(parent).site.title}, my way")
        text = (paths.shipped("templates") / "site.yaml").read_text().format(name=name, parent=parent, title=title)
    else:
        from hpclaunch.profile.draft import drafted

        text, machine = drafted(name, None if detect else _asked())
        left_out = sum(isinstance(part, str) for part in machine.partitions.values())
        talk(
            f"{machine.source}: {counted(len(machine.partitions) - left_out, 'partition')}, {left_out} left out; "
            f"decide {text.count('# Decide:')} lines, look for `Decide:`"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    shutil.copy(paths.shipped("site_profiles") / "site.schema.json", path.parent)
    click.echo(path)


def _asked() -> Machine:
    """Ask on the terminal for what a first profile needs."""
    ask: Any = partial(click.prompt, err=True)
    scheduler = ask("Scheduler", type=click.Choice(list(SCHEDULERS)))
    partition = ask("Partition or queue of your jobs")
    kind = Kind(ask("Cores of a node", type=click.IntRange(1)), ask("GPUs of a node", type=click.IntRange(0)))
    account = ask("Account to charge, if one is needed", default="", show_default=False)
    return Machine(
        scheduler=scheduler,
        source="your answers",
        default_partition=Value(partition),
        partitions={partition: Part(kind.values(""), [])},
        values={"account": Value(account)} if account else {},
    )


@site_group.command("schema", epilog="site schema\nsite schema >site.schema.json")
def schema_command() -> None:
    """Print the JSON Schema of a profile, for editors."""
    from hpclaunch.profile.schema import schema

    echo_json(schema())
