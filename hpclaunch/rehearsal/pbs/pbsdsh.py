"""pbsdsh: starts a program on nodes of the job it is called in, and returns 0 whatever the program does.

OpenPBS 23.06, seen: what the script exports does not arrive, stdin is empty, the folder is $HOME, what tasks print goes
to the job's output rather than to pbsdsh's, and an argument ends at its first newline.
"""

import getopt
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from hpclaunch.rehearsal.pbs.job import ENVIRONMENTS, ERROR, NODEFILE, OUTPUT
from hpclaunch.rehearsal.processes import MARK, marked, restore_signals, send


def main() -> int:
    """Start the program, on the node of line -n of the nodefile or for each line, and wait for it."""
    given, program = getopt.getopt(sys.argv[1:], "n:")
    room = Path(os.environ[MARK], "run", os.environ["PBS_JOBID"])
    number = f"PBS_TASKNUM={os.getpid():08X}"

    def relay(signal_number: int, _: object) -> None:
        """Pass the signal on to all tasks and leave at once, while they may still be busy with it."""
        send(signal_number, marked(os.environ[MARK], number))
        os._exit(1)

    signal.signal(signal.SIGTERM, relay)
    lines = (room / NODEFILE).read_text().split()
    nodes = [*dict.fromkeys(lines)]
    wanted = [int(value) for _, value in given] or range(len(lines))
    for task in [_start(room, nodes.index(lines[line]), number, program) for line in wanted]:
        if code := task.wait():
            print(f"pbsdsh: exit status {code}", flush=True)
    return 0


def _start(room: Path, node: int, number: str, program: list[str]) -> subprocess.Popen[bytes]:
    """Start one task, a session of its own with the environment of its node."""
    variables = json.loads((room / ENVIRONMENTS).read_text())[node] | dict([number.split("=")])
    with (room / OUTPUT).open("ab", 0) as out, (room / ERROR).open("ab", 0) as error:
        return subprocess.Popen(
            [word.partition("\n")[0] for word in program], env=variables, cwd=variables["HOME"], umask=0o077,
            stdin=subprocess.DEVNULL, stdout=out, stderr=error, start_new_session=True,
            preexec_fn=restore_signals,  # noqa: PLW1509 (no threads here)
        )  # fmt: skip
