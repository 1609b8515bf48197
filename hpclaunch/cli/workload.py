"""The commands workload list and workload copy."""

import shutil
from pathlib import Path

import click

from hpclaunch import paths
from hpclaunch.cli.echo import echo_json, echo_table, json_option, talk
from hpclaunch.cli.help import Group
from hpclaunch.cli.options import OUTPUT, WORKLOADS
from hpclaunch.errors import HpclaunchError, did_you_mean
from hpclaunch.job.request import quote


@click.group("workload", cls=Group, epilog="workload list\nworkload copy mnist train.py")
def workload_group() -> None:
    """List the bundled programs, or copy one to edit."""


@workload_group.command("list", epilog="workload list\nworkload list --json")
@json_option
def list_command(as_json: bool) -> None:
    """List the bundled programs that --workload takes."""
    # The first line of the docstring; importing a program would import torch.
    titles = {
        name: path.read_text(encoding="utf-8").split('"""')[1].partition("\n")[0]
        for name, path in paths.WORKLOADS.items()
    }
    if as_json:
        echo_json([{"name": name, "title": titles[name], "file": str(path)} for name, path in paths.WORKLOADS.items()])
    else:
        echo_table(("WORKLOAD", "PROGRAM"), titles.items())


@workload_group.command("copy", epilog="workload copy mnist train.py\nworkload copy resume")
@click.argument("name", **WORKLOADS)
@click.argument("file", type=OUTPUT, required=False)
def copy_command(name: str, file: Path | None) -> None:
    """Copy the workload NAME to FILE, or to NAME.py, with what it imports.

    "resume" is what any Lightning program may import to go on in the next attempt.

    FILE may be a folder. An existing file is never changed.
    """
    sources, file = paths.WORKLOADS | paths.MODULES, file or Path()
    file = file / f"{name}.py" if file.is_dir() else file
    if name not in sources:
        raise HpclaunchError(f"no workload {name!r}{did_you_mean(name, sources)}")
    program, beside = sources[name], paths.COMPANIONS.get(name, ())
    if file.name in beside:
        raise HpclaunchError(f"{file} is the name of a file that {name} imports; use another name")
    copies = {file: program} | {file.with_name(other): program.with_name(other) for other in beside}
    for target, source in copies.items():
        if target.exists() and not (target.is_file() and target.read_bytes() == source.read_bytes()):
            raise HpclaunchError(f"{target} exists and is not a copy of {name}'s; use another name or folder")
    for target, source in copies.items():
        if not target.exists():
            shutil.copyfile(source, target)
    click.echo(file)
    if beside:
        talk(f"keep what it imports beside it: {', '.join(beside)}")
    if name in paths.MODULES:
        talk(f"beside your program: from {file.stem} import SaveAndLeave, resume_path, trainer_places")
    else:
        talk(f"run it with: hpclaunch run --tasks-per-node 2 -- python {quote(str(file))}")
