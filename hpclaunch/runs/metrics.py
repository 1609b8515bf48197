"""What a program measured: metrics.json in its run folder, or the metrics.csv of Lightning's CSVLogger."""

from __future__ import annotations

import csv
import json
import re
from contextlib import suppress
from pathlib import Path

from hpclaunch.schedulers.run_folder import ABOUT, METRICS, RUN

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def read(folder: Path) -> dict[str, float | str]:
    """Return the metrics of a run by name, if any: of metrics.json, else the last of each column of the newest CSV."""
    with suppress(OSError, ValueError, TypeError, RecursionError):
        found = dict(json.loads((folder / METRICS).read_bytes(), parse_constant=str))
        texts = {
            name: value.encode(errors="replace").decode() for name, value in found.items() if isinstance(value, str)
        }
        return {name: value for name, value in found.items() if type(value) in (int, float)} | texts
    last: dict[str, str] = {}
    with suppress(OSError, ValueError, csv.Error):
        times = {path: path.stat().st_mtime for path in folder.rglob("metrics.csv")}
        begun = min((path.stat().st_mtime for name in (RUN, ABOUT) if (path := folder / name).exists()), default=0)
        newest = max((path for path in times if times[path] >= begun), key=times.__getitem__)  # others are its code's
        with newest.open(newline="", errors="replace") as file:
            for row in csv.DictReader(file):
                last |= {name: value for name, value in row.items() if name and value}
    return {name: float(value) if NUMBER.fullmatch(value) else value for name, value in last.items()}
