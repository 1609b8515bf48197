"""The command results, and the table of a group's elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from hpclaunch import schedulers
from hpclaunch.cli.echo import echo_json, echo_table, json_option, talk
from hpclaunch.cli.help import Command
from hpclaunch.cli.options import JOB_IDS
from hpclaunch.errors import HpclaunchError
from hpclaunch.runs import groups, metrics
from hpclaunch.runs.groups import Element, Group
from hpclaunch.schedulers.job import State

NOT_SUBMITTED = State("not submitted")


@click.command("results", cls=Command, epilog="results\nresults 1234567 --csv")
@click.argument("sweep", required=False, **JOB_IDS)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@json_option
def results_command(sweep: str | None, as_csv: bool, as_json: bool) -> None:
    """Show the values of each job of a sweep, or of the newest, with its metrics.

    These are the metrics.json or the last values of the metrics.csv in its run folder, HPCLAUNCH_RUN_DIR.
    """
    newest = next(iter(groups.newest_first()), None) if sweep is None else None
    found = groups.find(sweep or (newest.id if newest else ""))
    if found is None:
        raise HpclaunchError(f"no sweep {sweep or ''!r}: `hpclaunch submit --sweep` prints its id")
    group, elements = found
    runs = groups.runs_of(group, elements)
    answers, errors = schedulers.states(list(runs.values()))
    for error in errors:
        talk(f"warning: {error}")
    states = {run.id: answers[run.site, run.id] for run in runs.values()}
    measured = {number: metrics.read(run.path) for number, run in runs.items()}
    if as_json:
        echo_json([{"element": one.number, "id": one.ids[-1] if one.ids else None, "values": one.values,
                    "metrics": measured.get(one.number, {}), "state": state.word, "exit_code": state.exit_code}
                   for one, state in _with_states(elements, states)])  # fmt: skip
        return
    names = list(dict.fromkeys(name for one in measured.values() for name in one))
    header = ["element", *group.names, *(f"metrics.{name}" if name in group.names else name for name in names)]
    rows = [
        [one.number, *_cells(group.names, one.values), *_cells(names, measured.get(one.number, {})), state.word,
         "" if state.exit_code is None else state.exit_code] for one, state in _with_states(elements, states)
    ]  # fmt: skip
    if as_csv:
        import csv
        import io

        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([[*header, "state", "exit_code"], *rows])
        click.echo(text.getvalue().encode(errors="surrogateescape"), nl=False)
    else:
        echo_table([*header, "STATE", "EXIT"], [[_short(cell) for cell in row] for row in rows])


def echo_elements(group: Group, elements: Sequence[Element], states: Mapping[str, State]) -> None:
    """Print a table of elements: values, state, exit code and job; `states` are by the ids of runs."""
    rows = [
        (one.number, *_cells(group.names, one.values), state.word, "" if state.exit_code is None else state.exit_code,
         one.ids[-1] if one.ids else "", state.reason) for one, state in _with_states(elements, states)
    ]  # fmt: skip
    echo_table(("ELEMENT", *group.names, "STATE", "EXIT", "JOB", "NOTE"), rows)


def _with_states(elements: Sequence[Element], states: Mapping[str, State]) -> Iterator[tuple[Element, State]]:
    yield from ((one, states[one.ids[-1]] if one.ids else NOT_SUBMITTED) for one in elements)


def _cells(names: Sequence[str], values: Mapping[str, Any]) -> list[Any]:
    return [values.get(name, "") for name in names]


def _short(cell: object) -> object:
    return f"{cell:.5g}" if isinstance(cell, float) else cell
