"""pbs_mom: runs one job on its first node, from its start to the delivery of its output."""

from __future__ import annotations

import contextlib
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from standin.pbs import environment, nodes, output, scheduler, sessions
from standin.pbs.demux import Demux
from standin.pbs.resources import clock
from standin.pbs.server import Job, Server, stamp

from hpclaunch.rehearsal.pbs import job as on_nodes
from hpclaunch.rehearsal.processes import restore_signals


def main() -> int:
    """Run the job; folder and id are the arguments."""
    restore_signals()
    server = Server(Path(sys.argv[1]))
    with server.locked():
        job = server.find(sys.argv[2])
    if job:
        _run(server, job)
        scheduler.cycle(server)
    return 0


def _run(server: Server, job: Job) -> None:
    nodes.clear(server, replace(job, session=0))
    room = server.room(job)
    variables = environment.set_up(server, job)
    out, error = output.open_spool(server, job)
    demux = Demux(room, out, error)
    demux.start()
    shell = _start(server, job, variables, out, error)
    with server.locked():
        job = server.save(replace(server.find(job.id) or job, session=shell.pid, begun=time.time()))
    if job.ending:  # deleted while it was starting
        sessions.send(signal.SIGTERM, [shell.pid])
    ending = _watch(server, job, shell, error)
    sessions.kill([shell.pid])
    sessions.kill(sessions.of_tasks(room))
    code = shell.wait()
    status = -29 if ending == "walltime" else code if code >= 0 else 256 - code
    if not job.program and not server.script(job).read_bytes().strip():
        status = 127  # of an empty script (OpenPBS 23.06, seen)
    demux.end()
    _finish(server, job, status)


def _start(
    server: Server, job: Job, variables: dict[str, str], out: BinaryIO, error: BinaryIO
) -> subprocess.Popen[bytes]:
    """Start the script; `qsub -- PROGRAM` needs no shell (seen)."""
    folder = variables["PBS_O_WORKDIR"] if "wd" in job.shown["Resource_List"] else variables["HOME"]
    if not job.program:
        return on_nodes.start(server.room(job), server.script(job), variables, folder, out, error, job.umask)
    return subprocess.Popen(
        job.program,
        env=variables,
        cwd=folder,
        umask=job.umask,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=error,
        start_new_session=True,
    )


def _watch(server: Server, job: Job, shell: subprocess.Popen[bytes], error: BinaryIO) -> str:
    """Wait for the end of the script, or until PBS has ended it; return how PBS did, "" if it did not.

    Walltime and deletions are looked at when polling. A deleted job lives as long as the script's session does,
    kill_delay at most (OpenPBS 23.06, seen).
    """
    settings = server.settings
    poll = time.monotonic()
    while True:
        poll += settings.poll
        with contextlib.suppress(subprocess.TimeoutExpired):
            shell.wait(timeout=max(0.0, poll - time.monotonic()))
        now = server.find(job.id) or job
        if shell.returncode is not None and now.ending in {"", "forced"}:
            return now.ending
        time.sleep(max(0.0, poll - time.monotonic()))
        now = server.find(job.id) or job
        used = int(time.time() - job.begun)
        if now.ending and (not sessions.in_sessions([shell.pid]) or time.time() - now.warned >= settings.kill_delay):
            return now.ending
        if not now.ending and job.limit is not None and used > job.limit:
            error.write(f"=>> PBS: job killed: walltime {used} exceeded limit {job.limit}\n".encode())
            end(server, job.id, "walltime")
        with server.locked():
            if latest := server.find(job.id):
                server.save(latest.show(resources_used=_used(server, latest)))
        orphans = [task for task in sessions.of_tasks(server.room(job)) if not sessions.alive(task, "")]
        sessions.kill(orphans, 1)


def end(server: Server, job_id: str, ending: str) -> None:
    """Send SIGTERM to the job on its first node only (OpenPBS 23.06, seen)."""
    with server.locked():
        job = server.find(job_id)
        if not job or job.state != "R":
            return
        job = server.save(replace(job, ending=ending, warned=job.warned or time.time()))
    number = signal.SIGKILL if ending == "forced" else signal.SIGTERM
    sessions.send(number, first_node(server, job))


def first_node(server: Server, job: Job) -> list[int]:
    """Return the job's sessions on its first node."""
    return [session for session in (job.session, *sessions.of_tasks(server.room(job), 0)) if session]


def _used(server: Server, job: Job) -> dict[str, object]:
    """Return what the processes of the job's sessions use, at most so far; at the end those that have ended count."""
    before = job.shown.get("resources_used", {"cput": "00:00:00", "mem": "0kb"})
    seconds, kb = sessions.usage([job.session, *sessions.of_tasks(server.room(job))])
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "cpupercent": 0,
        "cput": max(before["cput"], clock(max(seconds, ended.ru_utime + ended.ru_stime))),
        "mem": f"{max(int(before['mem'].removesuffix('kb')), kb)}kb",
        "ncpus": sum(chunk.ncpus for chunk in job.chunks),
        "walltime": clock(time.time() - job.begun),
    }


def _finish(server: Server, job: Job, status: int) -> None:
    with server.locked():
        job = server.find(job.id) or job
        server.save(job.show(job_state="E", substate=50, resources_used=_used(server, job)))
    output.deliver(server, job)
    time.sleep(server.settings.poll / 10)  # a second, in reality
    how = {
        "deleted": f"terminated by {environment.user()}",
        "forced": f"terminated by {environment.user()}",
        "walltime": "exceeded resource walltime",
    }.get(job.ending, "failed" if status else "finished")
    comment = f"{job.shown.get('comment', '')} and {how}"
    substate = 91 if job.ending in {"deleted", "forced"} else 93 if status else 92
    nodes.clear(server, job)
    with server.locked():
        latest = server.find(job.id) or job
        state = scheduler.over(job)
        server.save(
            latest.show(job_state=state, substate=substate, Exit_status=status, comment=comment, obittime=stamp())
        )
