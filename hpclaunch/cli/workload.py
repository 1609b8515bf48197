"""The commands workload list and workload copy."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import click

from hpclaunch import paths
from hpclaunch.cli.options import complete_workload
from hpclaunch.errors import HpclaunchError, did_you_mean
from hpclaunch.job.request import quote


@click.group("workload")
def workload_group() -> None:
    """List the bundled programs, or copy one to edit."""


@workload_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_command(as_json: bool) -> None:
    """List the bundled programs that --workload takes."""
    rows = [{"name": name, "title": _title(path), "file": str(path)} for name, path in paths.WORKLOADS.items()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    formatter = click.HelpFormatter(width=120)
    formatter.write_dl([(row["name"], row["title"]) for row in rows])
    click.echo(formatter.getvalue(), nl=False)


def _title(path: Path) -> str:
    """Return the first line of a program's docstring; it is not imported, since torch would come with it."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


@workload_group.command("copy")
@click.argument("name", shell_complete=complete_workload)
@click.argument("file", type=click.Path(path_type=Path))
def copy_command(name: str, file: Path) -> None:
    """Copy the workload NAME to FILE, with what it imports.

    Example: hpclaunch workload copy mnist train.py

    An existing file is never changed.
    """
    if name not in paths.WORKLOADS:
        raise HpclaunchError(f"no workload {name!r}{did_you_mean(name, paths.WORKLOADS)}")
    program = paths.WORKLOADS[name]
    beside = {file.with_name(other): program.with_name(other) for other in paths.COMPANIONS.get(name, ())}
    for target, source in beside.items():
        if target == file:
            raise HpclaunchError(f"{file} is the name of a file that {name} imports; use another name")
        if target.exists() and not (target.is_file() and target.read_bytes() == source.read_bytes()):
            raise HpclaunchError(f"{target} exists and is not the one that {name} imports; name another folder")
    _write_new(file, program)
    click.echo(file)
    for target, source in beside.items():
        if not target.exists():
            _write_new(target, source)
    if beside:
        names = ", ".join(target.name for target in beside)
        click.echo(f"hpclaunch: keep what it imports beside it: {names}", err=True)
    click.echo(f"hpclaunch: run it with: hpclaunch run --tasks-per-node 2 -- python {quote(str(file))}", err=True)


def _write_new(file: Path, source: Path) -> None:
    try:
        with file.open("x", encoding="utf-8") as copy:
            copy.write(source.read_text(encoding="utf-8"))
    except FileExistsError:
        raise HpclaunchError(f"{file} exists; name a new file") from None
    except OSError as error:
        raise HpclaunchError(f"{file}: cannot be written: {error.strerror}") from None
