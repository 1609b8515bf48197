"""How lines that jobs, schedulers and file names are in go out: harmless to a terminal, unchanged into a pipe."""

from __future__ import annotations

import re
import sys

import click

from hpclaunch.errors import printable

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def echo(line: str, err: bool = False) -> None:
    """Print a line; for a terminal, control characters in it are spelled and colours left out."""
    data = line.encode(errors="surrogateescape")
    if (sys.stderr if err else sys.stdout).isatty():
        data = printable(_COLOUR.sub("", data.decode(errors="replace"))).replace("\n", r"\n").encode()
    click.echo(data, err=err)
