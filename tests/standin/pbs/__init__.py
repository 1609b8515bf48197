"""A PBS that a laptop can run: `install` puts qsub, qstat, qdel, qsig and pbsdsh in a folder.

There is no daemon. Each program looks after the jobs when it is called, and each running job has a process of its own.
"""

from __future__ import annotations

import os
from pathlib import Path

from standin.pbs import nodes, settings
from standin.pbs.server import Server
from standin.pbs.settings import Settings

from hpclaunch.rehearsal.processes import write_programs

TESTS = Path(__file__).parents[2]
PROGRAMS = tuple(f"standin.pbs.{name}" for name in ("qsub", "qstat", "qdel", "qsig", "pbsdsh"))
FOLDERS = ("bin", "jobs", "history", "run", "spool", "undelivered", "down", "dead", "mom_priv/jobs")


def install(folder: Path, asked: Settings, *, dead: str | None = None, first_id: int = 1) -> dict[str, str]:
    """Set up a PBS in the folder and return the variables with which a shell finds it.

    `dead` is a host that swallows what pbsdsh starts there.
    """
    folder = folder.absolute()
    for name in FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    settings.write(asked, folder / "server.json")
    if not (folder / "next").exists():  # set up anew, a server goes on counting
        (folder / "next").write_text(str(first_id))
    if dead:
        (folder / "dead" / dead).touch()
    write_programs(folder, PROGRAMS, TESTS)
    return {"PATH": f"{folder / 'bin'}:{os.environ.get('PATH', os.defpath)}"}


def lose(folder: Path, host: str) -> None:
    """Let a node die: what runs on it is gone, without any message."""
    nodes.lose(Server(folder.absolute()), host)


def fail_qsub(folder: Path, times: int) -> None:
    """Let qsub fail so many times from now on."""
    (folder / "qsub-fails").write_text(str(times))


def stop(folder: Path) -> None:
    """End every job at once and forget those that wait; finished ones stay known."""
    nodes.stop(Server(folder.absolute()))
