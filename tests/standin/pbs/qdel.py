"""qdel: ends jobs. One that cannot be ended does not keep the others (OpenPBS 23.06, seen)."""

from __future__ import annotations

import getopt
import os
import re
import sys
from pathlib import Path

from standin.pbs import mom, scheduler
from standin.pbs.refusal import Refusal
from standin.pbs.server import Job, Server

from hpclaunch.rehearsal.processes import MARK

ID = re.compile(r"\d+(\[\d*\])?(\.[\w.-]+)?")


def main() -> int:
    """Delete the jobs named; return qdel's exit code, which is the last refusal's."""
    server = Server(Path(os.environ[MARK]))
    try:
        given, ids = getopt.getopt(sys.argv[1:], "W:x")
    except getopt.GetoptError:
        ids = []
    if not ids:
        print("usage: qdel [-W force|suppress_email=X] [-x] job_identifier...", file=sys.stderr)
        return 2
    scheduler.cycle(server)
    code = 0
    for job_id in ids:
        try:
            _delete(server, job_id, ("-W", "force") in given, ("-x", "") in given)
        except Refusal as error:
            print(f"qdel: {error}", file=sys.stderr)
            code = error.code
    scheduler.cycle(server)
    return code


def find(server: Server, job_id: str) -> Job:
    """Return the job of an id as a user wrote it.

    Raises Refusal: it is not an id (1), or it is unknown (153), also without the server's name: PBS may
    look that up under another (OpenPBS 23.06, seen).
    """
    if not ID.fullmatch(job_id):
        raise Refusal(f"illegally formed job identifier: {job_id}", 1)
    job = server.find(job_id)
    if not job:
        raise Refusal(f"Unknown Job Id {job_id}", 153)
    return job


def _delete(server: Server, job_id: str, force: bool, erase: bool) -> None:
    job = find(server, job_id)
    if job.state in "FX":
        if not erase:
            raise Refusal(f"Job has finished {job_id}", 35)
        server.forget(job)
        return
    for one in [*(server.subjobs(job.id) if job.is_array else []), job]:
        if one.state == "R":
            mom.end(server, one.id, "forced" if force else "deleted")
        elif one.state in "QH":
            _cancel(server, one, "X" if one.array and (one is job or job.state == "B") else "F")


def _cancel(server: Server, job: Job, state: str) -> None:
    """End a job that waits; it has no Exit_status."""
    with server.locked():
        latest = server.find(job.id)
        if latest and latest.state in "QH":
            comment = f"{latest.shown.get('comment', '')} and terminated".strip()
            server.save(latest.show(job_state=state, substate=91, comment=comment, Hold_Types="n"))
