"""The options of a command for mkdocs-click, which has no headings of options and no examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click
from mkdocs_click import _docs


class Tables(click.HelpFormatter):
    """Writes what a command's help has below its text as tables and code."""

    def section(self, name: str) -> AbstractContextManager[None]:
        """Begin a part."""
        self.buffer += [f"\n**{name}:**\n\n"]
        return nullcontext()

    def write_dl(self, rows: Sequence[tuple[str, str]], *_: Any, **__: Any) -> None:
        """Write options or commands."""
        self.buffer += ["| | |\n|---|---|\n"]
        self.buffer += ["| `{}` | {} |\n".format(name.strip(), text.replace("|", "\\|")) for name, text in rows]

    def write(self, string: str) -> None:
        """Write examples."""
        lines = [line.strip() for line in string.strip().splitlines()]
        self.buffer += ["```sh\n", *(f"{line}\n" for line in lines), "```\n"]

    def write_text(self, text: str) -> None:
        """Write a sentence."""
        self.buffer += [f"{text}\n"]


def options(ctx: click.Context, **_: Any) -> Iterator[str]:
    """Return the lines of a command's options and examples."""
    formatter = Tables()
    if isinstance(ctx.command, click.Group):  # its commands have parts of their own
        click.Command.format_options(ctx.command, ctx, formatter)
    else:
        ctx.command.format_options(ctx, formatter)
    if ctx.command.epilog:
        ctx.command.format_epilog(ctx, formatter)
    yield from "".join(formatter.buffer).splitlines()
    yield ""


_docs._make_plain_options = options  # of the release in constraints.txt
