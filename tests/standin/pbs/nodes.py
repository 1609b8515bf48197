"""The nodes: free ones, the placement of chunks, and dead ones."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterable
from contextlib import suppress

from standin.pbs import sessions
from standin.pbs.server import Job, Server

LAST = 254  # 127.0.0.254


def place(server: Server, job: Job, busy: Iterable[str]) -> list[str] | None:
    """Return a host for each chunk among those that no other job has, or None if they are too few."""
    down = {path.name for path in (server.folder / "down").iterdir()}
    everywhere = server.settings.hosts or [f"127.0.0.{number}" for number in range(1, LAST + 1)]
    return _fit(server, job, [host for host in everywhere if host not in down and host not in set(busy)])


def _fit(server: Server, job: Job, hosts: list[str]) -> list[str] | None:
    """Fill host after host; chunks that fit together share one, unless they are to be scattered (as seen)."""
    queue = server.settings.queues[job.shown["queue"].removesuffix("-exec")]
    placed: list[str] = []
    free = iter(hosts)
    cores = gpus = 0
    for chunk in job.chunks:
        if job.scatter or not placed or chunk.ncpus > cores or chunk.ngpus > gpus:
            host = next(free, None)
            cores, gpus = queue.cores_per_node, queue.gpus_per_node
            if host is None or chunk.ncpus > cores or chunk.ngpus > gpus:
                return None
        cores, gpus = cores - chunk.ncpus, gpus - chunk.ngpus
        placed.append(str(host))
    return placed


def lose(server: Server, host: str) -> None:
    """Kill what runs on a node and let it never answer again."""
    with server.locked():
        (server.folder / "down" / host).touch()
        for job in server.live():
            if host in job.nodes:
                node = job.nodes.index(host)
                if node == 0:
                    with suppress(ProcessLookupError):
                        os.kill(job.mom, signal.SIGKILL)
                    sessions.kill([job.session])
                sessions.kill(sessions.of_tasks(server.room(job), node))


def silent(server: Server, host: str) -> bool:
    """Tell whether a node never answers."""
    return any((server.folder / folder / host).exists() for folder in ("dead", "down"))


def clear(server: Server, job: Job) -> None:
    """Kill everything of a job on all of its nodes, without a warning, and take its files away."""
    sessions.kill([job.session] if job.session else [])
    sessions.kill(sessions.of_tasks(server.room(job)))
    shutil.rmtree(server.room(job), ignore_errors=True)


def stop(server: Server) -> None:
    """Kill every job and forget those that wait."""
    with server.locked():
        for job in server.live():
            if job.mom:
                with suppress(ProcessLookupError):
                    os.kill(job.mom, signal.SIGKILL)
                clear(server, server.find(job.id) or job)
            server.forget(job)
