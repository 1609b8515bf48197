"""The command fetch: bring what a run on another host made."""

import sys

import click

from hpclaunch.cli.echo import echo, talk
from hpclaunch.cli.options import completes
from hpclaunch.errors import HpclaunchError, counted
from hpclaunch.runs import registry


@click.command("fetch")
@click.argument("job", **completes(lambda _: [run.id for run in registry.newest_first() if run.host]))
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
def fetch_command(job: str, patterns: tuple[str, ...]) -> None:
    """Bring the files that a job on another host made or changed.

    Example: hpclaunch fetch 1234567 '*.ckpt' results

    They come into the current folder, at the same places, and are listed; one that is newer here stays. A PATTERN is a
    file's name, its path, or a folder. What was interrupted goes on.
    """
    from hpclaunch.runs import remote, upload

    (run,) = registry.find([job])
    if not run.host:
        raise HpclaunchError(f"{run.id} ran on this machine: its files are in {run.submitted_from}")
    found = remote.results(run, patterns)
    if not found:
        raise HpclaunchError(f"{run.id}: no new file{' fits' if patterns else ''} in {run.host}:{run.remote}")
    talk(f"{counted(len(found), 'file')}, {upload.megabytes(sum(found.values()))} from {run.host}:{run.remote}")
    remote.fetch(run, list(found), shown=sys.stderr.isatty())
    for name, size in found.items():
        echo(f"{upload.megabytes(size):>10}  {name}")
