"""The programs of a rehearsal, first on PATH, and its processes, found by a mark in their environment."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

KILL_WAIT = 5.0  # seconds between TERM and KILL, as KillWait in slurm.conf
MARK = "HPCLAUNCH_REHEARSAL"  # the rehearsal's folder, in the environment of every process of it


def command(module: str, *paths: Path) -> list[str]:
    """Return the command that runs a module's `main`; `paths` are where it is imported from besides this package.

    Python runs it without site packages and settings of the environment: it starts sooner, and anywhere.
    """
    known = [str(path) for path in (Path(__file__).parents[2], *paths)]
    code = f"import sys; sys.path += {known}; from {module} import main; sys.exit(main())"
    return [sys.executable, "-IS", "-c", code]


def write_programs(folder: Path, modules: Sequence[str], *paths: Path) -> dict[str, str]:
    """Write programs that run `modules` to `folder`/bin; return the variables with which a shell finds them.

    The python that runs this comes right after them on PATH, so that it is a job's `python`.
    """
    programs = folder / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    for module in modules:  # run by bash, since dash drops the functions that bash exports
        program = programs / module.rpartition(".")[2]
        words = shlex.join(command(module, *paths))
        program.write_text(f'#!/usr/bin/env bash\n{MARK}={shlex.quote(str(folder))} exec {words} "$@"\n')
        program.chmod(0o755)
    (programs / "module").write_text('#!/bin/sh\necho "rehearsal: module $*" >&2\n')  # the software is this machine's
    (programs / "module").chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, MARK: str(folder)}


def marked(folder: Path | str, *variables: str) -> list[int]:
    """Return the processes of the rehearsal in `folder` that have the `variables` NAME=VALUE, without this one."""
    wanted = {word.encode() for word in (f"{MARK}={folder}", *variables)}
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted <= {*(process / "environ").read_bytes().split(b"\0")}:
                found.append(int(process.name))
    return [process for process in found if process != os.getpid()]


def send(number: int, processes: Collection[int]) -> None:
    """Send a signal to processes, some of which may be gone."""
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def kill(find: Callable[[], Collection[int]], seconds: float = 5) -> None:
    """Kill the processes that `find` returns until there are none, not even what they started meanwhile."""
    deadline = time.monotonic() + seconds
    while (left := find()) and time.monotonic() < deadline:
        send(signal.SIGKILL, left)
        time.sleep(0.02)


def end(find: Callable[[], Collection[int]], seconds: float) -> None:
    """Send TERM to the processes that `find` returns, and KILL to those that are left after `seconds`."""
    deadline = time.monotonic() + seconds
    send(signal.SIGTERM, find())
    while find() and time.monotonic() < deadline:
        time.sleep(0.1)
    kill(find)


def run_together(words: list[str], environments: Iterable[Mapping[str, str]], end_others: bool) -> list[int]:
    """Run a command in each of the environments, each time in a session of its own, and return the exit codes.

    TERM ends all; with `end_others` so does the failure of one.
    """
    tasks = [
        subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
        for environment in environments
    ]

    def alive() -> list[int]:
        return [-task.pid for task in tasks if task.poll() is None]  # a signal reaches all of a task's processes

    signal.signal(signal.SIGTERM, lambda *_: end(alive, KILL_WAIT))
    while alive():
        if end_others and any(task.poll() for task in tasks):
            end_others = False
            end(alive, KILL_WAIT)
        time.sleep(0.05)
    return [128 - task.returncode if task.returncode < 0 else task.returncode for task in tasks]


def restore_signals() -> None:
    """Receive every signal again: a background job of a shell ignores some, and so do its children."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
