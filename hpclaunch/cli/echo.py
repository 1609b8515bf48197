"""Print text of jobs, schedulers and files: safe on a terminal, unchanged into a pipe; tables, JSON, and messages."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import click

from hpclaunch.errors import printable

_COLOUR = r"\x1b\[[0-9;]*m"
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def echo(line: str, err: bool = False) -> None:
    """Print a line; on a terminal, spell its control characters and leave its colours out."""
    data = line.encode(errors="surrogateescape")
    if (sys.stderr if err else sys.stdout).isatty():
        data = printable(re.sub(_COLOUR, "", data.decode(errors="replace"))).replace("\n", r"\n").encode()
    click.echo(data, err=err)


def talk(text: object) -> None:
    """Print a message on stderr."""
    click.echo(f"hpclaunch: {printable(str(text))}", err=True)


def echo_json(value: Any) -> None:
    """Print JSON."""
    import json

    click.echo(json.dumps(value, indent=2))


def echo_table(rows: Sequence[tuple[str, str]]) -> None:
    """Print names, each with its text in lines beside it."""
    formatter = click.HelpFormatter(width=120)
    formatter.write_dl([(printable(name), printable(text)) for name, text in rows])
    click.echo(formatter.getvalue(), nl=False)
