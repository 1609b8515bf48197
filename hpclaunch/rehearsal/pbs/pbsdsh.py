"""pbsdsh: starts a program on nodes of the job it is called in, and returns 0 whatever becomes of it.

OpenPBS 23.06, seen: what the script exports does not arrive, stdin is empty, the folder is $HOME, a dead node is never
noticed, what tasks print goes to the job's output rather than to pbsdsh's, and an argument ends at its first newline.
"""

from __future__ import annotations

import getopt
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpclaunch.rehearsal.pbs import environment, nodes, processes
from hpclaunch.rehearsal.pbs.demux import ERROR, OUTPUT, connect
from hpclaunch.rehearsal.pbs.refusal import Refusal
from hpclaunch.rehearsal.pbs.server import Job, Server

NEEDED = ("PBS_ENVIRONMENT", "PBS_JOBID", "PBS_JOBCOOKIE", "PBS_NODENUM", "PBS_TASKNUM", "PBS_MOMPORT")
USAGE = """usage: pbsdsh [-c copies][-s][-v][-o] -- program [args...]
       pbsdsh [-n nodenumber][-s][-v][-o] -- program [args...]
       pbsdsh [-h hostname][-v][-o] -- program [args...]"""
NOT_FOUND = 254


@dataclass
class Task:
    """A program on a node; no process at all where it could not be started, or the node is silent."""

    number: str
    host: str
    process: subprocess.Popen[bytes] | None
    status: int | None = None


def main() -> int:
    """Start the program where asked and wait for it; return pbsdsh's own exit code."""
    try:
        given, program = getopt.gnu_getopt(sys.argv[1:], "c:n:h:svo")
        options = dict(given)
        counts = [int(options[name]) for name in ("-n", "-c") if name in options]
    except getopt.GetoptError as error:
        print(f"pbsdsh: invalid option -- '{error.opt}'\n{USAGE}", file=sys.stderr)
        return 1
    except ValueError:
        counts, program = [-1], []
    if not program or min(counts, default=0) < 0:
        print(USAGE, file=sys.stderr)
        return 1
    try:
        session = Session.of_this_job()
        hosts = session.hosts(options)
    except Refusal as error:
        print(f"pbsdsh: {error}", file=sys.stderr)
        return error.code
    return _work(session, hosts, [word.partition("\n")[0] for word in program], options)


@dataclass(frozen=True)
class Session:
    """pbsdsh's ties to the job."""

    server: Server
    job: Job
    cookie: str

    @classmethod
    def of_this_job(cls) -> Session:
        """Return the session of the job this runs in; `env -i` breaks it.

        Raises Refusal: PBS's variables are not all there, or the job is not running.
        """
        server = Server(Path(os.environ["PBS_STANDIN"]))
        job = server.find(os.environ["PBS_JOBID"]) if all(name in os.environ for name in NEEDED) else None
        if not job or not (server.room(job) / "cookie").exists():
            raise Refusal("tm_init failed, rc = bad environment (17005)", 1)
        return cls(server, job, (server.room(job) / "cookie").read_text())

    def hosts(self, options: dict[str, str]) -> list[str]:
        """Return a host for each task; -n counts lines of the nodefile from 0 and wraps silently."""
        lines = (self.server.room(self.job) / "nodefile").read_text().split()
        if "-h" in options:
            if options["-h"] not in lines:
                raise Refusal(f"host {options['-h']} not found in the job's nodes", 1)
            return [options["-h"]]
        if "-n" in options:
            return [lines[int(options["-n"]) % len(lines)]]
        return [lines[copy % len(lines)] for copy in range(int(options.get("-c", len(lines))))]

    def start(self, host: str, program: list[str]) -> Task:
        """Start one task, a session of its own, child of nobody's environment."""
        node = self.job.nodes.index(host)
        number, record = self._number(node)
        if nodes.silent(self.server, host):
            return Task(number, host, None)
        variables = environment.of_task(self.server, self.job, node, number, self.cookie)
        room = self.server.room(self.job)
        with connect(room, OUTPUT) as out, connect(room, ERROR) as error:
            path = shutil.which(program[0], path=environment.TASK_PATH)
            if "/" in program[0]:
                path = str(Path(variables["HOME"], program[0]))
            if not path or not os.access(path, os.X_OK) or Path(path).is_dir():
                error.sendall(f"{program[0]}: No such file or directory\n".encode())
                return Task(number, host, None, NOT_FOUND)
            process = subprocess.Popen(
                program,
                executable=path,
                env=variables,
                cwd=variables["HOME"],
                stdin=subprocess.DEVNULL,
                stdout=out.fileno(),
                stderr=error.fileno(),
                start_new_session=True,
                # Written before the program runs, so that the job's end never misses one.
                preexec_fn=lambda: _note(record),  # noqa: PLW1509 (no threads here)
            )
        return Task(number, host, process)

    def _number(self, node: int) -> tuple[str, Path]:
        """Return a task's number, which is no rank, and the file that tells of its session."""
        count = 1 if node else 2  # the script is task 1 of the first node
        while True:
            number = f"{(node << 25) + count:08X}"
            path = self.server.room(self.job) / "tasks" / f"{node}-{number}"
            try:
                path.touch(exist_ok=False)
            except FileExistsError:
                count += 1
                continue
            return number, path


def _note(record: Path) -> None:
    """Make the process a task: mask and signals as the MoM gives them, its session written down."""
    os.umask(0o077)
    processes.listen()
    record.write_text(str(os.getpid()))


def _work(session: Session, hosts: list[str], program: list[str], options: dict[str, str]) -> int:
    tasks: list[Task] = []

    def relay(number: int, _: object) -> None:
        """Pass the signal on to all tasks and leave at once, while they may still be busy with it."""
        for task in tasks:
            if task.process and task.process.returncode is None:
                print(f"pbsdsh: killing task 0x{task.number} signal {number}", flush=True)
                processes.send(number, [task.process.pid])
        os._exit(1)

    signal.signal(signal.SIGTERM, relay)
    for host in hosts:
        tasks.append(session.start(host, program))
        if "-v" in options:
            print(f"pbsdsh: spawned task 0x{tasks[-1].number} on {host}", flush=True)
        if "-s" in options and "-o" not in options:
            _wait(session, tasks[-1:], "-v" in options)
    if "-o" not in options:
        _wait(session, tasks, "-v" in options)
    return 0


def _wait(session: Session, tasks: list[Task], verbose: bool) -> None:
    """Wait for tasks in the order in which they end, and tell of those that failed."""
    waiting = [task for task in tasks if not (task.process and task.status is not None)]
    while waiting:
        for task in list(waiting):
            if task.process and task.process.poll() is not None and not nodes.silent(session.server, task.host):
                code = task.process.returncode
                task.status = code if code >= 0 else 256 - code
                processes.kill([task.process.pid])  # what is left in its session
            if task.status is not None:
                waiting.remove(task)
                if task.status or verbose:
                    print(f"pbsdsh: task 0x{task.number} exit status {task.status}", flush=True)
        if waiting:
            with suppress(InterruptedError):
                time.sleep(0.05)
