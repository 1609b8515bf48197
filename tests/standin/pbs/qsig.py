"""qsig: sends a signal to the script's session and to tasks on the first node, the login shell included."""

from __future__ import annotations

import getopt
import os
import signal
import sys
from pathlib import Path

from standin.pbs import mom, sessions
from standin.pbs.qdel import find
from standin.pbs.refusal import Refusal
from standin.pbs.server import Server

from hpclaunch.rehearsal.processes import MARK


def main() -> int:
    """Send a signal to the jobs named, TERM if no other; return qsig's exit code."""
    server = Server(Path(os.environ[MARK]))
    try:
        given, ids = getopt.getopt(sys.argv[1:], "s:")
    except getopt.GetoptError:
        ids = []
    if not ids:
        print("usage: qsig [-s signal] job_identifier...", file=sys.stderr)
        return 2
    code = 0
    for job_id in ids:
        try:
            job = find(server, job_id)
            number = _number(dict(given).get("-s", "TERM"))
            if number is None:
                raise Refusal(f"Unknown/illegal signal name {job_id}", 165)
            if job.state != "R":
                raise Refusal(f"Request invalid for state of job {job_id}", 168)
            sessions.send(number, mom.first_node(server, job))
        except Refusal as error:
            print(f"qsig: {error}", file=sys.stderr)
            code = error.code
    return code


def _number(name: str) -> int | None:
    names = {one.name.removeprefix("SIG"): int(one) for one in signal.Signals}
    return int(name) if name.isdigit() else names.get(name.removeprefix("SIG"))
