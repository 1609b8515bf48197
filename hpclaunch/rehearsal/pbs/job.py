"""A PBS job on its nodes: what its script and its tasks start with, as seen on OpenPBS 23.06."""

from __future__ import annotations

import json
import os
import platform
import pwd
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
TASK_PATH = "/bin:/usr/bin"  # `pbsdsh -- PROGRAM` looks for a bare name there


def user() -> str:
    """Return the name of the user who runs this."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container
        return str(os.getuid())


def submission_variables(queue: str) -> dict[str, str]:
    """Return the PBS_O_ variables, which describe the shell that calls qsub."""
    defaults = {"HOME": "/", "LANG": "C.UTF-8", "LOGNAME": user(), "SHELL": "/bin/bash", "PATH": SYSTEM_PATH}
    return {f"PBS_O_{name}": os.environ.get(name, value) for name, value in defaults.items()} | {
        "PBS_O_WORKDIR": str(Path.cwd()),
        "PBS_O_SYSTEM": "Linux",
        "PBS_O_HOST": platform.node(),
        "PBS_O_QUEUE": queue,
    }


@dataclass(frozen=True)
class Node:
    """A host of a job, and how often its name is in the nodefile."""

    host: str
    ncpus: int
    lines: int


@dataclass(frozen=True)
class Job:
    """A job that runs; `room` is a folder, named after the job, for what exists only while it does."""

    id: str
    name: str
    queue: str
    variables: Mapping[str, str]  # its Variable_List: the submission's, those of qsub -v and of the site's hook
    nodes: Sequence[Node]
    room: Path
    path: str  # the programs, for the front of the script's PATH

    @property
    def home(self) -> str:
        """The folder in which script and tasks start."""
        return self.variables["PBS_O_HOME"]

    def set_up(self) -> None:
        """Write the nodefile, and what pbsdsh needs to start tasks."""
        (self.room / "tasks").mkdir(parents=True)
        for node in range(len(self.nodes)):
            (self.room / f"jobfs-{node}").mkdir(mode=0o700)
        (self.room / "nodefile").write_text("".join(f"{node.host}\n" * node.lines for node in self.nodes))
        environments = [self._task_variables(node) for node in range(len(self.nodes))]
        (self.room / "environments.json").write_text(json.dumps(environments))

    def script_variables(self) -> dict[str, str]:
        """Return what the job's login shell starts with: nothing of the submission that qsub does not pass on."""
        own = {"USER": user(), "LOGNAME": user(), "SHELL": "/bin/bash", "LANG": self.variables["PBS_O_LANG"]}
        path = {"PATH": f"{self.path}:{SYSTEM_PATH}", "PBS_NODEFILE": str(self.room / "nodefile"), "PBS_TASKNUM": "1"}
        return {**own, **path, **self.variables, **self._node_variables(0)}

    def _task_variables(self, node: int) -> dict[str, str]:
        """Return what a task of pbsdsh starts with: nothing that the script exports, no nodefile on the first node."""
        nodefile = {"PBS_NODEFILE": str(self.room / "nodefile")} if node else {}
        return {"PATH": TASK_PATH, **self.variables, **self._node_variables(node), **nodefile}

    def _node_variables(self, node: int) -> dict[str, str]:
        ncpus = str(self.nodes[node].ncpus)
        return {
            "HOME": self.home,
            "TMPDIR": str(self.room / f"jobfs-{node}"),
            "NCPUS": ncpus,
            "OMP_NUM_THREADS": ncpus,
            "ENVIRONMENT": "BATCH",
            "PBS_ENVIRONMENT": "PBS_BATCH",
            "PBS_JOBID": self.id,
            "PBS_JOBNAME": self.name,
            "PBS_JOBDIR": self.home,
            "PBS_JOBCOOKIE": "0" * 32,
            "PBS_QUEUE": self.queue,
            "PBS_MOMPORT": "15003",
            "PBS_NODENUM": str(node),
        }

    def start(self, script: Path, folder: str, output: int, error: int, umask: int = 0o077) -> subprocess.Popen[bytes]:
        """Start the login shell, which gets the name of the script on its stdin and runs it as a command."""
        shell = subprocess.Popen(
            ["-bash"], executable="/bin/bash", env=self.script_variables(), cwd=folder, umask=umask,
            stdin=subprocess.PIPE, stdout=output, stderr=error, start_new_session=True,
        )  # fmt: skip
        assert shell.stdin is not None  # noqa: S101 - it is a pipe
        # /etc/profile may have set a PATH without the programs.
        line = f'PATH={shlex.quote(self.path)}:"$PATH" {shlex.quote(str(script))}\n'
        with suppress(BrokenPipeError), shell.stdin:
            shell.stdin.write(os.fsencode(line))
        return shell

    def tasks(self, node: int | None = None) -> list[int]:
        """Return the sessions of the tasks that pbsdsh started, on one node or on all."""
        found = []
        for path in (self.room / "tasks").glob("*" if node is None else f"{node}-*"):
            with suppress(ValueError, OSError):
                found.append(int(path.read_text()))
        return found
