"""pbsdsh: starts a program on nodes of the job it is called in, and returns 0 whatever the program does.

OpenPBS 23.06, seen: what the script exports does not arrive, stdin is empty, the folder is $HOME, a dead node is never
noticed, what tasks print goes to the job's output rather than to pbsdsh's, and an argument ends at its first newline.
"""

from __future__ import annotations

import getopt
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from standin.pbs import nodes
from standin.pbs.demux import ERROR, OUTPUT, PRINTED
from standin.pbs.server import Server
from standin.pbs.sessions import TASKS, in_sessions

from hpclaunch.rehearsal.pbs.job import ENVIRONMENTS, NODEFILE
from hpclaunch.rehearsal.processes import MARK, kill, restore_signals, send

NEEDED = ("PBS_ENVIRONMENT", "PBS_JOBID", "PBS_JOBCOOKIE", "PBS_NODENUM", "PBS_TASKNUM", "PBS_MOMPORT")
USAGE = "usage: pbsdsh [-c copies | -n nodenumber] [-o] [-v] -- program [args...]"


@dataclass
class Task:
    """A program on a node; without a process if it could not be started, or if the node is dead."""

    number: str
    host: str
    process: subprocess.Popen[bytes] | None = None
    status: int | None = None


def main() -> int:
    """Start the program on the nodes and wait for it; return pbsdsh's own exit code."""
    try:
        given, program = getopt.gnu_getopt(sys.argv[1:], "c:n:ov")
        options = {name: int(value or 0) for name, value in given}
    except (getopt.GetoptError, ValueError) as error:
        print(f"pbsdsh: invalid option -- '{getattr(error, 'opt', error)}'\n{USAGE}", file=sys.stderr)
        return 1
    if not program:
        print(USAGE, file=sys.stderr)
        return 1
    room = Path(os.environ[MARK], "run", os.environ.get("PBS_JOBID", ""))
    if not all(name in os.environ for name in NEEDED) or not (room / NODEFILE).exists():
        print("pbsdsh: tm_init failed, rc = bad environment (17005)", file=sys.stderr)
        return 1
    lines = (room / NODEFILE).read_text().split()
    wanted = [options["-n"]] if "-n" in options else range(options.get("-c", len(lines)))
    tasks: list[Task] = []

    def relay(number: int, _: object) -> None:
        """Pass the signal on to all tasks and leave at once, while they may still be busy with it."""
        for task in tasks:
            if task.process and task.process.returncode is None:
                os.write(1, f"pbsdsh: killing task 0x{task.number} signal {number}\n".encode())  # print may be at work
                send(number, in_sessions([task.process.pid]))
        os._exit(1)

    signal.signal(signal.SIGTERM, relay)
    for line in wanted:  # counts from 0, and wraps silently
        host = lines[line % len(lines)]
        tasks.append(_start(room, list(dict.fromkeys(lines)).index(host), host, program))
    if "-o" not in options:
        _wait(tasks)
    return 0


def _start(room: Path, node: int, host: str, program: list[str]) -> Task:
    """Start one task, a session of its own with the environment of its node."""
    number, record = _number(room, node)
    if _is_dead(host):
        return Task(number, host)
    variables = json.loads((room / ENVIRONMENTS).read_text())[node] | {"PBS_TASKNUM": number}

    def become_task() -> None:
        os.umask(0o077)
        restore_signals()
        record.write_text(str(os.getpid()))  # before the program runs, so that the job's end misses none

    printed = room / PRINTED / number
    with printed.with_suffix(OUTPUT).open("ab", 0) as out, printed.with_suffix(ERROR).open("ab", 0) as error:
        try:
            process = subprocess.Popen(
                [word.partition("\n")[0] for word in program], env=variables, cwd=variables["HOME"],
                stdin=subprocess.DEVNULL, stdout=out, stderr=error, start_new_session=True,
                preexec_fn=become_task,  # noqa: PLW1509 (no threads here)
            )  # fmt: skip
        except OSError:
            error.write(f"{program[0]}: No such file or directory\n".encode())
            return Task(number, host, status=254)
    return Task(number, host, process)


def _number(room: Path, node: int) -> tuple[str, Path]:
    """Return a task's number, which is no rank, and the file for its session."""
    for count in itertools.count(1 if node else 2):  # the script is task 1 of the first node
        number = f"{(node << 25) + count:08X}"
        path = room / TASKS / f"{node}-{number}"
        with suppress(FileExistsError):
            path.touch(exist_ok=False)
            break
    return number, path


def _wait(tasks: list[Task]) -> None:
    """Wait for tasks in the order in which they end, and print the status of those that failed."""
    waiting = list(tasks)
    while waiting:
        for task in list(waiting):
            if task.process and (code := task.process.poll()) is not None and not _is_dead(task.host):
                task.status = code if code >= 0 else 256 - code
                kill(partial(in_sessions, [task.process.pid]))  # what is left of it
            if task.status is not None:
                waiting.remove(task)
                if task.status:
                    print(f"pbsdsh: task 0x{task.number} exit status {task.status}", flush=True)
        if waiting:
            time.sleep(0.05)


def _is_dead(host: str) -> bool:
    """Tell whether a host no longer answers."""
    return nodes.silent(Server(Path(os.environ[MARK])), host)
