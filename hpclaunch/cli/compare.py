"""The command that compares places."""

import difflib
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import click
from msgspec import structs

from hpclaunch.cli.echo import coloured, echo_json, json_option
from hpclaunch.cli.options import job_command
from hpclaunch.cli.requests import compared_request, configured, load_site, nearer, rendered
from hpclaunch.errors import printable
from hpclaunch.job import compare
from hpclaunch.job.machine import follow_links
from hpclaunch.profile import search

_LEAST = 26  # letters of a column: fewer, and words are torn


@job_command("compare", several=("site", "partition"), epilog="compare --gpus 8\ncompare -s gadi -s lumi --gpus 8")
@click.option("--gpus", type=click.IntRange(min=1), help="GPUs of the whole job, on as many nodes as that takes.")
@click.option("--diff", is_flag=True, help="Show how the scripts differ, each from the first that fits.")
@json_option
def compare_command(ctx: click.Context, /, gpus: int | None, diff: bool, as_json: bool, **values: Any) -> None:
    """Compare the same job on several sites or partitions.

    It shows the size, the limits, the price and what is refused. --site and --partition may be given several times, a
    partition also as SITE:PARTITION; a site named alone is compared with itself, partition by partition. The exit code
    is 0 if the job fits somewhere.
    """
    general = configured(ctx, values)
    words = () if nearer(ctx, "site", "partition") else general["partition"]  # a config file's is its own site's
    pairs = [(at or None, name) for at, _, name in (word.rpartition(":") for word in words)]
    sites = dict.fromkeys([*general["site"], *(at for at, _ in pairs if at)]) or [search.site_of_this_host()]
    profiles = {name: load_site(name) for name in sites}
    del values["site"], values["partition"]
    requests = {name: compared_request(ctx, values, name, len(profiles) > 1, gpus is not None) for name in profiles}
    columns = []
    for site, partition in compare.places(profiles, pairs):
        own = structs.replace(follow_links(profiles[site].site, requests[site]), site=site, partition=partition)
        plan, facts = compare.compared(profiles[site], own, gpus)
        if diff:
            facts["script"] = rendered(plan.hidden())[0] if plan and facts["fits"] else None
        columns.append(facts)
    if as_json:
        echo_json(columns)
    else:
        click.echo("\n\n".join(_tables(columns)))
        for line in _differences(columns):
            click.echo(line)
    raise SystemExit(0 if any(facts["fits"] for facts in columns) else 1)


def _tables(columns: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the columns side by side, as many as the terminal is wide, then the next ones."""
    width = max(shutil.get_terminal_size((120, 24)).columns, 40)
    label = max(map(len, compare.table(columns))) + 2
    abreast = min(max((width - label) // (_LEAST + 2), 1), len(columns))
    for i in range(0, len(columns), abreast):
        yield _table(compare.table(columns[i : i + abreast]), label, (width - label) // abreast - 2)


def _table(rows: dict[str, list[list[str]]], label: int, width: int) -> str:
    lines = []
    for name, cells in rows.items():
        paint = coloured if name == "fits" else str.ljust
        wrap = partial(textwrap.wrap, width=width, subsequent_indent="  ", break_on_hyphens=False)
        wrapped = [[line for text in cell for line in wrap(printable(text))] for cell in cells]
        lines += [
            f"{title:<{label}}{'  '.join(paint(part, width) for part in parts)}".rstrip()
            for title, *parts in zip_longest([name], *wrapped, fillvalue="")
        ]
    return "\n".join(lines)


def _differences(columns: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines in which each script differs from the first."""
    made = [(f"{one['site']} {one['partition']}", one["script"].splitlines()) for one in columns if one.get("script")]
    for name, lines in made[1:]:
        yield ""
        yield from difflib.unified_diff(made[0][1], lines, made[0][0], name, n=1, lineterm="")
