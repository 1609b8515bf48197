"""How lines that jobs, schedulers and file names are in go out: harmless to a terminal, unchanged into a pipe."""

from __future__ import annotations

import re
import sys

import click

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# ASCII's and Latin-1's control characters but the tab, and what turns the direction of text.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def echo(line: str, err: bool = False) -> None:
    """Print a line; for a terminal, control characters in it are spelled and colours left out."""
    data = line.encode(errors="surrogateescape")
    if (sys.stderr if err else sys.stdout).isatty():
        text = _COLOUR.sub("", data.decode(errors="replace"))
        data = _CONTROL.sub(lambda found: repr(found[0])[1:-1], text).encode()
    click.echo(data, err=err)
