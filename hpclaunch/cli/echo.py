"""Print text of jobs, schedulers and files: safe on a terminal, unchanged into a pipe; tables, JSON, and messages."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from hpclaunch.errors import printable

_COLOUR = r"\x1b\[[0-9;]*m"
# Words that say how something is.
_COLOURS = {
    **dict.fromkeys(("COMPLETED", "RUNNING", "ok", "fine", "yes", "all"), "green"),
    **dict.fromkeys(("PENDING", "REQUEUED", "UNKNOWN", "CANCELLED", "warning"), "yellow"),
    **dict.fromkeys(("FAILED", "TIMEOUT", "refused", "problem", "error", "no", "broken"), "red"),
}
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


def coloured(word: str, width: int = 0) -> str:
    """Return a word, padded, in the colour of what it says. Into a pipe click.echo leaves colours out."""
    colour = None if os.environ.get("NO_COLOR") else _COLOURS.get(word)  # https://no-color.org
    return (click.style(word, fg=colour) if colour else word) + " " * (width - len(word))


def echo_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows below a header; on a terminal, fold the last column's text."""
    import shutil
    from textwrap import wrap

    cells = [[printable(str(cell), kept="") for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)][:-1]
    before = sum(widths) + 2 * len(widths)
    room = max(shutil.get_terminal_size().columns - before, 30) if sys.stdout.isatty() else 10**6
    fold = "\n" + " " * before
    for row in cells:
        first = "".join(f"{coloured(*cell)}  " for cell in zip(row, widths, strict=False))
        click.echo(f"{first}{fold.join(wrap(row[-1], room, break_on_hyphens=False))}".rstrip())
