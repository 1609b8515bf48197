"""Print lines that hold text of jobs, schedulers or file names: safe on a terminal, unchanged into a pipe."""

from __future__ import annotations

import re
import sys

import click

from hpclaunch.errors import printable

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def echo(line: str, err: bool = False) -> None:
    """Print a line; on a terminal, spell its control characters and leave its colours out."""
    data = line.encode(errors="surrogateescape")
    if (sys.stderr if err else sys.stdout).isatty():
        data = printable(_COLOUR.sub("", data.decode(errors="replace"))).replace("\n", r"\n").encode()
    click.echo(data, err=err)
