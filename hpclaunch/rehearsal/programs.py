"""The programs of a rehearsal: stand-ins for what only a cluster has, on PATH for that run alone."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

MARK = "HPCLAUNCH_REHEARSAL"  # the run's folder, in the environment of every process of it


def write_programs(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Write programs into `folder`/bin, by the modules of this package that they run, and return where they are found.

    The python that runs this comes right after them on PATH: a job's `python` is that one.
    """
    programs = folder / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    package = Path(__file__).parents[2]
    for name in names:  # run by bash, since dash drops the functions that bash exports
        code = (
            f"import sys; sys.path.insert(0, {str(package)!r}); "
            f"from hpclaunch.rehearsal.{name} import main; sys.path.pop(0); sys.exit(main())"
        )
        program = programs / name.rpartition(".")[2]
        words = shlex.join([sys.executable, "-c", code])
        program.write_text(f'#!/usr/bin/env bash\n{MARK}={shlex.quote(str(folder))} exec {words} "$@"\n')
        program.chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, MARK: str(folder)}


def processes(folder: Path) -> list[int]:
    """List the processes of the rehearsal in `folder`, by their environment, this one left out."""
    wanted = f"{MARK}={folder}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return [process for process in found if process != os.getpid()]


def end(find: Callable[[], list[int]], wait: float) -> None:
    """Send TERM to the processes, and KILL to those that are left after `wait` seconds."""
    deadline = time.monotonic() + wait
    send(find(), signal.SIGTERM)
    while (left := find()) and time.monotonic() < deadline:
        time.sleep(0.1)
    send(left, signal.SIGKILL)


def send(processes: Sequence[int], number: int) -> None:
    """Send a signal to processes, some of which may be gone."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)
