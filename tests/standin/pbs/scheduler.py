"""The scheduler's cycle: lost jobs, jobs that can never run, jobs that can start."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path

from standin.pbs import nodes, sessions
from standin.pbs.server import Job, Server, stamp

from hpclaunch.rehearsal.processes import command

NEVER = "Can Never Run: Not enough total nodes available"
LATER = "Not Running: Not enough free nodes available"


def cycle(server: Server) -> None:
    """Look at every job once and start what can start."""
    with server.locked():
        for job in server.live():
            if job.state in "RE" and not sessions.alive(job.mom, job.id):
                _lost(server, job)
            elif job.doomed and job.state == "Q":
                # OpenPBS 23.06, seen: "Job rejected by all possible destinations"; qsub had printed an id all the same.
                server.forget(job)
        deleted = True
        while deleted:  # what is deleted now may be what another waits for
            waiting = [job for job in server.live() if job.depend and job.state == "H"]
            deleted = True in {_release(server, job) for job in waiting}
        jobs = server.live()
        running = [job for job in jobs if job.state in "RE"]
        for job in jobs:
            if job.state == "Q" and not job.is_array and (started := _start(server, job, running)):
                running.append(started)
        for job in server.live():
            if job.is_array and job.state in "QB":
                _account(server, job)


def _lost(server: Server, job: Job) -> None:
    """Requeue a job whose first node died, under the same id, or end it (OpenPBS 23.06, seen)."""
    nodes.clear(server, job)
    if job.shown["Rerunable"] == "True" and not job.ending:
        again = job.show(job_state="Q", substate=10, exec_host=None, stime=None, comment=None)
        server.save(replace(again, hosts=[], mom=0, session=0))
    else:
        comment = f"{job.shown.get('comment', '')} and failed"
        server.save(job.show(job_state=over(job), substate=93, Exit_status=-20, obittime=stamp(), comment=comment))


def over(job: Job) -> str:
    """Return the state of what has ended: a subjob reads X until its array is done."""
    return "X" if job.array else "F"


def _release(server: Server, job: Job) -> bool:
    """Let a job go when what it depends on allows it; tell whether it was deleted instead."""
    verdicts = [_verdict(server, kind, other) for kind, *others in job.depend for other in others]
    if "never" in verdicts:
        # OpenPBS 23.06, seen: there is no message, no Exit_status and no comment.
        server.save(job.show(job_state="F", substate=92, Hold_Types="n", depend=None))
        for subjob in server.subjobs(job.id):
            server.save(subjob.show(job_state="F", substate=92))
        return True
    if "wait" not in verdicts and job.shown["Hold_Types"] == "s":
        server.save(job.show(job_state="Q", substate=10, Hold_Types="n", etime=stamp()))
    return False


def _verdict(server: Server, kind: str, job_id: str) -> str:
    """Return go, wait or never; an array is judged by its parent, whose Exit_status is 0 whatever its subjobs did."""
    job = server.find(job_id)
    if not job:
        return "never"
    if kind == "after":
        return "go" if "stime" in job.shown or job.state in "RBEF" else "wait"
    if job.state != "F":
        return "wait"
    if kind == "afterany":
        return "go"
    status = job.shown.get("Exit_status")
    return "go" if status is not None and (status == 0) == (kind == "afterok") else "never"


def _start(server: Server, job: Job, running: list[Job]) -> Job | None:
    """Start a job if there is room for it; else its comment says why it waits."""
    if job.array:
        parent = server.find(job.array)
        beside = [other for other in running if other.array == job.array]
        if not parent or parent.state not in "QB" or (parent.most and len(beside) >= parent.most):
            return None
    hosts = nodes.place(server, job, [host for other in running for host in other.hosts])
    if not hosts:
        comment = LATER if nodes.place(server, job, []) else NEVER
        if job.shown.get("comment") != comment:
            server.save(job.show(comment=comment))
        return None
    pairs = list(zip(hosts, job.chunks, strict=True))
    where = "+".join(f"({host}:ncpus={chunk.ncpus})" for host, chunk in pairs)
    started = job.show(
        job_state="R",
        substate=42,
        stime=stamp(),
        exec_host="+".join(f"{short(host)}/0*{chunk.ncpus}" for host, chunk in pairs),
        exec_vnode=where,
        run_count=int(job.shown.get("run_count", 0)) + 1,
        comment=f"Job run at {stamp()[:-8]} on {where}",
        Exit_status=None,
    )
    with (server.folder / "mom.log").open("a") as log:
        mom = subprocess.Popen(
            [*command("standin.pbs.mom", Path(__file__).parents[2]), str(server.folder), job.id],
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    while not Path(f"/proc/{mom.pid}/cmdline").read_bytes() and mom.poll() is None:
        time.sleep(0.001)  # a program that has just started has no name yet, and would pass for a lost one
    return server.save(replace(started, hosts=hosts, mom=mom.pid))


def short(host: str) -> str:
    """Return a host's name without its domain, as in exec_host; an address stays as it is."""
    return host if host.replace(".", "").isdigit() else host.partition(".")[0]


def _account(server: Server, array: Job) -> None:
    """Let an array begin with its first subjob, and end with its last: with 0, but substate 93 if one failed (seen)."""
    subjobs = server.subjobs(array.id)
    if array.state == "Q" and any(subjob.state not in "QH" for subjob in subjobs):
        array = server.save(array.show(job_state="B", comment=f"Job Array Began at {stamp()[:-8]}", stime=stamp()))
    if array.state == "B" and all(subjob.state in "XF" for subjob in subjobs):
        for subjob in subjobs:
            server.save(subjob.show(job_state="F"))
        failed = any(subjob.shown.get("Exit_status") != 0 for subjob in subjobs)
        comment = f"{array.shown['comment']} and {'failed' if failed else 'finished'}"
        server.save(
            array.show(job_state="F", Exit_status=0, substate=93 if failed else 92, obittime=stamp(), comment=comment)
        )
