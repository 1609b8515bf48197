"""What a program measured: metrics.json in its run folder, or the metrics.csv of Lightning's CSVLogger."""

from __future__ import annotations

import csv
import json
import re
from contextlib import suppress
from pathlib import Path

from hpclaunch.schedulers.run_folder import METRICS

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def read(folder: Path) -> dict[str, float | str]:
    """Return the metrics of a run by name, if any: of metrics.json, else the last of each column of the newest CSV."""
    with suppress(OSError, ValueError, TypeError, RecursionError):
        found = json.loads((folder / METRICS).read_bytes())
        return {name: value for name, value in dict(found).items() if isinstance(value, int | float | str)}
    last: dict[str, str] = {}
    with suppress(OSError, ValueError, csv.Error):
        newest = max(folder.rglob("metrics.csv"), key=lambda path: path.stat().st_mtime)
        with newest.open(newline="", errors="replace") as file:
            for row in csv.DictReader(file):
                last |= {name: value for name, value in row.items() if name and value}
    return {name: float(value) if NUMBER.fullmatch(value) else value for name, value in last.items()}
