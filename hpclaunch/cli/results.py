"""The command results, and the table of a group's elements."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import click

from hpclaunch import schedulers
from hpclaunch.cli.echo import echo_json, echo_table, json_option, talk
from hpclaunch.cli.help import Command
from hpclaunch.cli.options import JOB_IDS
from hpclaunch.errors import HpclaunchError
from hpclaunch.runs import groups, metrics
from hpclaunch.runs.groups import Element
from hpclaunch.runs.registry import Run
from hpclaunch.schedulers.job import State


@click.command("results", cls=Command, epilog="results\nresults 1234567 --csv")
@click.argument("sweep", required=False, **JOB_IDS)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@json_option
def results_command(sweep: str | None, as_csv: bool, as_json: bool) -> None:
    """Show the values of each job of a sweep, or of the newest, with its metrics.

    These are the metrics.json or the last values of the metrics.csv in its run folder, HPCLAUNCH_RUN_DIR.
    """
    runs = groups.runs([sweep] if sweep else [])
    if (found := groups.of(runs)) is None:
        raise HpclaunchError(f"{sweep or 'the newest job'} is no sweep; `submit --sweep` prints the id of one")
    answers, errors = schedulers.states(runs)
    for error in errors:
        talk(f"warning: {error}")
    states = [answers[run.site, run.id] for run in runs]
    echo_elements(found[1], runs, states, "json" if as_json else "csv" if as_csv else "", measured=True)


def echo_elements(
    elements: Sequence[Element], runs: Sequence[Run], states: Sequence[State], form: str = "", measured: bool = False
) -> None:
    """Print the elements of these runs as a table, or in the `form` csv or json: their values, metrics and states."""
    pairs = zip(runs, states, strict=True)
    known = {run.id: (state, metrics.read(run.path) if measured else {}) for run, state in pairs}
    records: list[Any] = []
    for one in elements:
        job = one.ids[-1] if one.ids else ""
        state, found = known.get(job, (State("not submitted"), {}))
        end = {"state": state.word, "exit_code": state.exit_code, "job": job, "note": state.reason}
        records.append(({"element": one.number}, one.values, found, end))
    names = list(dict.fromkeys(name for part in zip(*records, strict=True) for cells in part for name in cells))
    merged = [{**number, **found, **values, **end} for number, values, found, end in records]
    rows = [["" if row.get(name) is None else row[name] for name in names] for row in merged]
    if form == "json":
        echo_json([{**number, "values": values, "metrics": found, **end} for number, values, found, end in records])
    elif form == "csv":
        csv.writer(text := io.StringIO(), lineterminator="\n").writerows([names, *rows])
        click.echo(text.getvalue().encode(errors="surrogateescape"), nl=False)
    else:
        echo_table(names, [[f"{cell:.5g}" if isinstance(cell, float) else cell for cell in row] for row in rows])
