"""The command fetch: bring what a run on another host made."""

import sys

import click

from hpclaunch.cli.echo import echo, talk
from hpclaunch.cli.help import Command
from hpclaunch.cli.options import JOB_IDS
from hpclaunch.errors import HpclaunchError, counted
from hpclaunch.runs import registry


@click.command("fetch", cls=Command, epilog="fetch 1234567\nfetch 1234567 '*.ckpt' results")
@click.argument("job", **JOB_IDS)
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
def fetch_command(job: str, patterns: tuple[str, ...]) -> None:
    """Bring the files that a job on another host made or changed.

    They come into the current folder, at the same places; one that is newer here stays. A PATTERN is a file's name, its
    path, or a folder. What was interrupted goes on.
    """
    from hpclaunch.runs import remote, upload

    (run,) = registry.find([job])
    found = remote.results(run, patterns) if run.host else {}
    if not found:
        raise HpclaunchError(
            f"{run.id}: no new file{' fits' if patterns else ''} in {run.host}:{run.remote or run.folder}"
        )
    talk(f"{counted(len(found), 'file')}, {upload.megabytes(sum(found.values()))} from {run.host}:{run.remote}")
    remote.fetch(run, list(found), shown=sys.stderr.isatty())
    for name, size in found.items():
        echo(f"{upload.megabytes(size):>10}  {name}")
