"""The command that compares places."""

from __future__ import annotations

import difflib
import json
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import click

from hpclaunch.cli.foreign import load_site, rendered
from hpclaunch.cli.job import CONTEXT
from hpclaunch.cli.options import compare_options
from hpclaunch.cli.requests import compared_request, nearer
from hpclaunch.errors import printable
from hpclaunch.job import compare
from hpclaunch.job.compare import Column
from hpclaunch.job.machine import follow_links
from hpclaunch.profile import search

_LEAST = 26  # letters of a column: fewer, and words are torn


@click.command("compare", context_settings=CONTEXT)
@compare_options
@click.option("--gpus", type=click.IntRange(min=1), help="GPUs of the whole job, on as many nodes as that takes.")
@click.option("--diff", is_flag=True, help="Show how the scripts differ, each from the first that fits.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_context
def compare_command(ctx: click.Context, /, gpus: int | None, diff: bool, as_json: bool, **values: Any) -> None:
    """Show the same job on several sites or partitions: its size, the limits, the price, what is refused.

    --site and --partition may be given several times, a partition also as SITE:PARTITION; a site named alone is
    compared with itself, partition by partition. The exit code is 0 if the job fits somewhere.
    """
    sites, words = list(values.pop("site")), list(values.pop("partition"))
    if nearer(ctx, "site", "partition"):  # a config file's partition is one of its own site
        words = []
    pairs = [_pair(word, sites) for word in words]
    named = [at for at, _ in pairs if at is not None]
    sites = list(dict.fromkeys([*sites, *named])) or [search.site_of_this_host()]
    profiles = {name: load_site(name) for name in sites}
    request = compared_request(ctx, values, several=len(sites) > 1, sized=gpus is not None)
    found = compare.places(
        profiles,
        [(at, partition) for at, partition in pairs if at is not None],
        [partition for at, partition in pairs if at is None],
    )
    columns = [compare.column(place, follow_links(place.profile.site, request), gpus) for place in found]
    scripts = [rendered(one.plan.hidden()) if diff and one.plan and one.fits else None for one in columns]
    if as_json:
        told = [
            compare.facts(one) | ({"script": script} if diff else {})
            for one, script in zip(columns, scripts, strict=True)
        ]
        click.echo(json.dumps(told, indent=2))
    else:
        click.echo(printable("\n\n".join(_tables(columns))))
        for line in _differences(columns, scripts):
            click.echo(line)
    raise SystemExit(0 if any(one.fits for one in columns) else 1)


def _pair(word: str, sites: Sequence[str]) -> tuple[str | None, str]:
    """Split SITE:PARTITION where there is such a site; else the word is a partition."""
    at, colon, partition = word.rpartition(":")
    known = colon and (at in sites or at in search.available() or at.endswith((".yaml", ".yml")))
    return (at, partition) if known else (None, word)


def _tables(columns: Sequence[Column]) -> Iterator[str]:
    """Yield the columns side by side, as many as the terminal is wide, then the next ones."""
    width = max(shutil.get_terminal_size((120, 24)).columns, 40)
    label = max(map(len, compare.rows(columns))) + 2
    abreast = min(max((width - label) // (_LEAST + 2), 1), len(columns))
    for i in range(0, len(columns), abreast):
        yield _table(compare.rows(columns[i : i + abreast]), label, (width - label) // abreast - 2)


def _table(rows: dict[str, list[list[str]]], label: int, width: int) -> str:
    lines = []
    for name, cells in rows.items():
        wrap = partial(textwrap.wrap, width=width, subsequent_indent="  ", break_on_hyphens=False)
        wrapped = [[line for text in cell for line in wrap(text)] for cell in cells]
        for number, parts in enumerate(zip_longest(*wrapped, fillvalue="")):
            text = "  ".join(part.ljust(width) for part in parts)
            lines.append(f"{name if number == 0 else '':<{label}}{text}".rstrip())
    return "\n".join(lines)


def _differences(columns: Sequence[Column], scripts: Sequence[str | None]) -> Iterator[str]:
    """Yield the lines in which each script differs from the first."""
    made = [
        (f"{one.site} {one.partition}", script.splitlines())
        for one, script in zip(columns, scripts, strict=True)
        if script is not None
    ]
    for name, lines in made[1:]:
        yield ""
        yield from difflib.unified_diff(made[0][1], lines, made[0][0], name, n=1, lineterm="")
