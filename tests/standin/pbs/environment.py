"""The variables of a job, and the job as it is on its nodes (OpenPBS 23.06, seen)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from standin.pbs.resources import Chunk
from standin.pbs.server import Job, Server

from hpclaunch.rehearsal.pbs import job as on_nodes


def everything() -> dict[str, str]:
    """Return what qsub -V passes on: all, but what makes this a stand-in and what belongs to another job."""
    own = ("PBS_", "BASH_FUNC_")
    return {name: value for name, value in os.environ.items() if not name.startswith(own) and name != "_"}


def listed(server: Server, queue: str, asked: Mapping[str, str], chunks: list[Chunk]) -> dict[str, str]:
    """Return the Variable_List: where the job was submitted, and what Gadi's hook puts there."""
    return on_nodes.submission_variables(queue) | {
        "PBS_NCPUS": str(sum(chunk.ncpus for chunk in chunks)),
        "PBS_NGPUS": str(sum(chunk.ngpus for chunk in chunks)),
        "PBS_NNODES": str(len(chunks)),
        "PBS_NCI_NCPUS_PER_NODE": str(server.settings.queues[queue].cores_per_node),
        "PBS_NCI_WD": "1" if "wd" in asked else "0",
    }


def running(server: Server, job: Job) -> on_nodes.Job:
    """Return the job as it is on its nodes; chunks that share a host are one node."""
    pairs = list(zip(job.hosts, job.chunks, strict=True)) if job.hosts else []
    chunks = {host: [chunk for other, chunk in pairs if other == host] for host in job.nodes}
    subjob = {"PBS_ARRAY_ID": job.array, "PBS_ARRAY_INDEX": str(job.index)} if job.array else {}
    return on_nodes.Job(
        job.id,
        str(job.shown["Job_Name"]),
        str(job.shown["queue"]),
        job.shown["Variable_List"] | subjob,
        [on_nodes.Node(host, own[0].ncpus, sum(chunk.lines for chunk in own)) for host, own in chunks.items()],
        room=server.folder / "run" / job.id,
        path=f"{server.folder / 'bin'}:{Path(sys.executable).parent}",
    )
