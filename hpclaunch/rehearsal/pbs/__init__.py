"""A PBS that a laptop can run: `install` puts qsub, qstat, qdel, qsig and pbsdsh in a folder.

There is no daemon. Each program looks after the jobs when it is called, and each running job has a process of its own.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpclaunch.rehearsal.pbs import nodes, settings
from hpclaunch.rehearsal.pbs.server import Server
from hpclaunch.rehearsal.pbs.settings import Queue, Settings, queues_of
from hpclaunch.rehearsal.pbs.start import command

PROGRAMS = ("qsub", "qstat", "qdel", "qsig", "pbsdsh")
FOLDERS = ("bin", "jobs", "history", "run", "spool", "undelivered", "down", "dead", "mom_priv/jobs")


def install(
    folder: Path,
    *,
    hosts: Sequence[str] = (),
    queues: Mapping[str, Queue] | None = None,
    cores_per_node: int | None = None,
    lines: str = "cpu",
    server: str = "gadi-pbs",
    kill_delay: float = 10,
    poll: float = 10,
    refuse_qsub_in_jobs: bool = False,
    history: bool = True,
    arrays: bool = True,
    answers_one: bool = False,
    dead: str | None = None,
    first_id: int = 1,
) -> dict[str, str]:
    """Set up a PBS in the folder and return the variables that make it the one a shell finds.

    `hosts` are addresses of this machine, each a node; none means 127.0.0.1 and on, as many as jobs need. The nodefile
    has a line for every "cpu", "gpu" or "node" of a host. `kill_delay` and `poll` are seconds; walltimes are looked at
    when polling. With `answers_one`, qstat asked for several jobs as JSON answers for the first only, unless it has -E.
    `dead` is a host that swallows what pbsdsh starts there. Without `queues` there are those of the shipped profile of
    Gadi, with nodes of `cores_per_node`.

    Raises ValueError: `lines` is none of the three.
    """
    if lines not in {"cpu", "gpu", "node"}:
        raise ValueError(f"lines={lines!r}: it is one of cpu, gpu, node")
    folder = folder.absolute()
    for name in FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    if queues is None:
        from hpclaunch import paths, site

        queues = queues_of(site.load(str(paths.shipped("site_profiles") / "gadi.yaml")).site, cores_per_node)
    asked = Settings(
        python=sys.executable,
        server=server,
        hosts=tuple(hosts),
        lines=lines,
        kill_delay=kill_delay,
        poll=poll,
        refuse_qsub_in_jobs=refuse_qsub_in_jobs,
        history=history,
        arrays=arrays,
        answers_one=answers_one,
        queues=queues,
    )
    settings.write(asked, folder / "server.json")
    if not (folder / "next").exists():  # set up anew, a server goes on counting
        (folder / "next").write_text(str(first_id))
    if dead:
        (folder / "dead" / dead).touch()
    for program in PROGRAMS:
        path = folder / "bin" / program
        words = shlex.join(command(sys.executable, program))
        path.write_text(f'#!/bin/sh\nPBS_STANDIN={shlex.quote(str(folder))} exec {words} "$@"\n')
        path.chmod(0o755)
    return {"PATH": f"{folder / 'bin'}:{os.environ.get('PATH', os.defpath)}", "PBS_STANDIN": str(folder)}


def lose(folder: Path, host: str) -> None:
    """Let a node die: what runs on it is gone, and nobody is told."""
    nodes.lose(Server(folder.absolute()), host)


def fail_qsub(folder: Path, times: int) -> None:
    """Let qsub fail so many times from now on."""
    (folder / "qsub-fails").write_text(str(times))


def stop(folder: Path) -> None:
    """End every job at once and forget those that wait; what has finished stays known."""
    nodes.stop(Server(folder.absolute()))
