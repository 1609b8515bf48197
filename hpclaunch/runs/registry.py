"""The registry of runs: what was submitted, from where, and where its folder is.

Each run is one small file in the user's state folder, written whole or not at all, so that submissions beside
each other lose nothing and a killed one leaves nothing half written. The run folder has a copy, run.json, which
still counts when the folder was moved.
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import msgspec

from hpclaunch import paths
from hpclaunch.errors import HpclaunchError
from hpclaunch.paths import write_whole
from hpclaunch.schedulers import run_folder
from hpclaunch.schedulers.job import Job, leading_number

SUBMISSION = "submission.json"


class Run(Job, frozen=True, kw_only=True):
    """One submitted job. `submitted` is in seconds since 1970, `poll` the seconds between two questions."""

    submitted: Annotated[float, msgspec.Meta(ge=0, le=1e11)]  # time.localtime takes no more
    partition: str = ""
    nodes: int = 1
    tasks_per_node: int = 1
    seconds: int = 0
    poll: int = 2


def register(run: Run) -> None:
    """Add `run` to the registry as the newest, even if the clock was ahead before.

    Raises OSError if the state folder cannot be written.
    """
    folder = paths.user_state() / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    number = max(time.time_ns(), leading_number(max((one.name for one in os.scandir(folder)), default="")) + 1)
    names = "-".join(quote(name, safe="", errors="surrogateescape") for name in (run.site, run.id))
    write_whole(folder / f"{number}-{names}.json", encode(run))


def encode(value: object, indent: int | None = None) -> bytes:
    """Return JSON that keeps paths and words which are not UTF-8: Python's surrogates are escaped in it."""
    text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=indent)
    return text.encode(errors="backslashreplace")


def newest_first() -> list[Run]:
    """Return the registered runs, the newest first; a file that is not a run's is named on stderr and skipped."""
    found = {path: read(path) for path in sorted((paths.user_state() / "runs").glob("[0-9]*.json"), reverse=True)}
    for path in (path for path, run in found.items() if run is None):
        sys.stderr.write(f"hpclaunch: {quote(str(path))}: not a run's file, skipped\n")
    return list(filter(None, found.values()))


def submissions(name: str = "") -> Path:
    """Return the folder of submissions on other hosts, or the one of this name; SUBMISSION is in it until its end."""
    return paths.user_state() / "remote" / name


def unfinished() -> list[str]:
    """Return the names of the submissions that have not ended."""
    return sorted(path.parent.name for path in submissions().glob(f"*/{SUBMISSION}"))


def find(names: Iterable[str], site: str = "") -> list[Run]:
    """Return the runs of these ids or run folders, at `site` if that is given; the newest run if none is named.

    An id may be shortened to the part before its first dot. Raises HpclaunchError for an unknown one.
    """
    known = newest_first()
    names = list(names)
    if not names:
        if not known:
            raise HpclaunchError("no runs yet: hpclaunch submit makes one")
        return known[:1]
    found = []
    for name in names:
        named = [run for run in known if name in (run.id, run.id.split(".")[0]) and site in ("", run.site)]
        run = next((run for run in named if run.path.is_dir()), None) or _moved(name) or next(iter(named), None)
        if run is None:
            raise HpclaunchError(f"no run {name!r}: `hpclaunch jobs` lists them, or use the path of a run folder")
        found.append(run)
    return found


def _moved(name: str) -> Run | None:
    """Return the run whose folder is at `name` now, or below ./hpclaunch-runs."""
    for folder in filter(os.path.isdir, (Path(name), Path(run_folder.RUNS, name))):
        # A job script that was submitted without hpclaunch has only written about.json.
        known = {"id": folder.absolute().name, "submitted": folder.stat().st_ctime, "folder": ""}
        if run := read(folder / run_folder.RUN) or read(folder / run_folder.ABOUT, known):
            return msgspec.structs.replace(run, folder=str(folder.absolute()))
    return None


def read(path: Path, known: Mapping[str, Any] = {}) -> Run | None:
    """Return the run of a registry's file or a run.json, with what else is `known`; None if it is not one."""
    try:
        run = msgspec.convert({**json.loads(path.read_bytes()), **known}, Run) if path.is_file() else None
        text = "".join(map(str, msgspec.structs.astuple(run) if run else ()))
        text.encode(errors="surrogateescape")  # else, and with a null byte, no name of a file
        return None if "\0" in text else run
    except (OSError, ValueError, TypeError, RecursionError, msgspec.ValidationError):
        return None
