"""What a program measured: metrics.json in its run folder, or the metrics.csv of Lightning's CSVLogger."""

from __future__ import annotations

import csv
import json
from contextlib import suppress
from pathlib import Path

from hpclaunch.schedulers.run_folder import METRICS


def read(folder: Path) -> dict[str, float | str]:
    """Return the metrics of a run by name: those of metrics.json, else the last of each column of the newest CSV.

    What is not there, or cannot be read, has none.
    """
    with suppress(OSError, ValueError, TypeError, RecursionError):
        found = json.loads((folder / METRICS).read_bytes())
        return {name: value for name, value in dict(found).items() if isinstance(value, int | float | str)}
    last: dict[str, str] = {}
    with suppress(OSError, ValueError, csv.Error):
        newest = max(folder.rglob("metrics.csv"), key=lambda path: path.stat().st_mtime)
        with newest.open(newline="", errors="replace") as file:
            for row in csv.DictReader(file):
                last |= {name: value for name, value in row.items() if name and value}
    return {name: number(value) for name, value in last.items()}


def number(text: str) -> float | str:
    """Return the number that a text is, or the text."""
    try:
        return float(text)
    except ValueError:
        return text
