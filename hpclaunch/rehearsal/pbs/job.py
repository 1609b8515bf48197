"""What the script and the tasks of a PBS job start with, as seen on OpenPBS 23.06.

A job that runs has a folder named after its id, its room, for what exists only while it runs.
"""

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
TASK_PATH = "/bin:/usr/bin"  # `pbsdsh -- PROGRAM` looks for a bare name there
NODEFILE, ENVIRONMENTS, OUTPUT, ERROR = "nodefile", "environments.json", "out", "err"  # in a job's room


def submission_variables() -> dict[str, str]:
    """Return the PBS_O_ variables, which describe the shell that calls qsub."""
    user = os.environ.get("USER", str(os.getuid()))
    defaults = {"HOME": "/", "LANG": "C.UTF-8", "LOGNAME": user, "SHELL": "/bin/bash", "PATH": SYSTEM_PATH}
    return {f"PBS_O_{name}": os.environ.get(name, value) for name, value in defaults.items()} | {
        "PBS_O_WORKDIR": str(Path.cwd()),
        "PBS_O_HOST": platform.node(),
    }


def set_up(room: Path, variables: Mapping[str, str], lines: Sequence[str], ncpus: Mapping[str, int]) -> dict[str, str]:
    """Write the nodefile, and what pbsdsh needs to start tasks; return what the script starts with.

    `variables` are those that qsub passes on and PBS_JOBID, PBS_JOBNAME and PBS_QUEUE. `lines` are the nodefile's, and
    `ncpus` are by host.
    """
    room.mkdir(parents=True, exist_ok=True)
    (room / NODEFILE).write_text("".join(f"{line}\n" for line in lines))
    nodefile = {"PBS_NODEFILE": str(room / NODEFILE)}
    tasks = []
    for node, host in enumerate(dict.fromkeys(lines)):
        scratch = room / f"jobfs-{node}"
        scratch.mkdir(mode=0o700)
        own = {
            "HOME": variables["PBS_O_HOME"],
            "TMPDIR": str(scratch),
            "NCPUS": str(ncpus[host]),
            "OMP_NUM_THREADS": str(ncpus[host]),
            "PBS_ENVIRONMENT": "PBS_BATCH",
            "PBS_NODENUM": str(node),
        }
        tasks.append({"PATH": TASK_PATH, **variables, **own, **(nodefile if node else {})})
    (room / ENVIRONMENTS).write_text(json.dumps(tasks))
    return {
        **tasks[0],
        **nodefile,
        "USER": variables["PBS_O_LOGNAME"],
        "LOGNAME": variables["PBS_O_LOGNAME"],
        "SHELL": "/bin/bash",
        "LANG": variables["PBS_O_LANG"],
        "PATH": variables.get("PATH", f"{_programs(room)}:{SYSTEM_PATH}"),
        "PBS_TASKNUM": "1",
    }


def start(
    room: Path,
    script: Path,
    environment: Mapping[str, str],
    folder: str,
    output: BinaryIO,
    error: BinaryIO,
    umask: int = 0o077,
) -> subprocess.Popen[bytes]:
    """Start the login shell, which gets the name of the script on its stdin and runs it as a command."""
    shell = subprocess.Popen(
        ["-bash"], executable="/bin/bash", env=environment, cwd=folder, umask=umask,
        stdin=subprocess.PIPE, stdout=output, stderr=error, start_new_session=True,
    )  # fmt: skip
    assert shell.stdin is not None  # noqa: S101 - it is a pipe
    line = f'PATH={shlex.quote(_programs(room))}:"$PATH" {shlex.quote(str(script))}\n'  # /etc/profile may set PATH
    with suppress(BrokenPipeError), shell.stdin:
        shell.stdin.write(os.fsencode(line))
    return shell


def _programs(room: Path) -> str:
    """Return the folders of the programs and of this python, which come first on the script's PATH."""
    return f"{room.parents[1] / 'bin'}:{Path(sys.executable).parent}"
