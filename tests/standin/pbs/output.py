"""The output of a job: in the spool while it runs, in its files after the end, else in `undelivered`."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import BinaryIO

from standin.pbs.server import Job, Server

KINDS = (("Output_Path", "OU"), ("Error_Path", "ER"))


def open_spool(server: Server, job: Job) -> tuple[BinaryIO, BinaryIO]:
    """Return open files for the job's output and errors, the same one if they are joined."""
    files = []
    for attribute, ending in KINDS:
        path = target(job, attribute, ending) if job.direct else _spooled(server, job, ending)
        if ending not in _ends(job):
            continue
        if not path.parent.is_dir():
            path = _spooled(server, job, ending)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        files.append(os.fdopen(descriptor, "ab", 0))
    return files[0], files[-1]


def deliver(server: Server, job: Job) -> None:
    """Move the output to its path, mode 0600.

    Where the folder is missing the job stays in E while PBS tries again, 30 s in reality (OpenPBS 23.06, seen).
    """
    for attribute, ending in KINDS:
        spooled, path = _spooled(server, job, ending), target(job, attribute, ending)
        if not spooled.exists():
            continue
        if not path.parent.is_dir():
            time.sleep(3 * server.settings.poll)
        try:
            draft = path.with_name(f".{path.name}.{job.id}")
            shutil.copyfile(spooled, draft)
            draft.chmod(0o600)
            draft.replace(path)
            spooled.unlink()
        except OSError:
            spooled.replace(server.folder / "undelivered" / spooled.name)


def target(job: Job, attribute: str, ending: str) -> Path:
    """Return the file of -o or -e; in a folder it is named after the job: 115.gadi-pbs.OU."""
    text = str(job.shown[attribute]).partition(":")[2]
    path = Path(text)
    return path / f"{job.id}.{ending}" if text.endswith("/") or path.is_dir() else path


def _ends(job: Job) -> tuple[str, ...]:
    return {"oe": ("OU",), "eo": ("ER",)}.get(str(job.shown["Join_Path"]), ("OU", "ER"))


def _spooled(server: Server, job: Job, ending: str) -> Path:
    return server.folder / "spool" / f"{job.id}.{ending}"
