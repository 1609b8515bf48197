"""The variables of a job, and the job as it is on its nodes (OpenPBS 23.06, seen)."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

from standin.pbs.demux import PRINTED
from standin.pbs.resources import Chunk
from standin.pbs.server import Job, Server
from standin.pbs.sessions import TASKS

from hpclaunch.rehearsal.pbs import job as on_nodes


def user() -> str:
    """Return the name of the user who runs this."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container
        return str(os.getuid())


def everything() -> dict[str, str]:
    """Return what qsub -V passes on: all, but what makes this a stand-in and what belongs to another job."""
    own = ("PBS_", "BASH_FUNC_")
    return {name: value for name, value in os.environ.items() if not name.startswith(own) and name != "_"}


def listed(server: Server, queue: str, asked: Mapping[str, str], chunks: list[Chunk]) -> dict[str, str]:
    """Return the Variable_List: where the job was submitted, and what Gadi's hook puts there."""
    return on_nodes.submission_variables() | {
        "PBS_O_QUEUE": queue,
        "PBS_NCPUS": str(sum(chunk.ncpus for chunk in chunks)),
        "PBS_NGPUS": str(sum(chunk.ngpus for chunk in chunks)),
        "PBS_NNODES": str(len(chunks)),
        "PBS_NCI_NCPUS_PER_NODE": str(server.settings.queues[queue].cores_per_node),
        "PBS_NCI_WD": "1" if "wd" in asked else "0",
    }


def set_up(server: Server, job: Job) -> dict[str, str]:
    """Set up the job on its nodes and return what its script starts with; chunks that share a host are one node."""
    for folder in (PRINTED, TASKS):
        (server.room(job) / folder).mkdir(parents=True)
    pairs = list(zip(job.hosts, job.chunks, strict=True))
    own = {"PBS_JOBID": job.id, "PBS_JOBNAME": str(job.shown["Job_Name"]), "PBS_QUEUE": str(job.shown["queue"])}
    mom = {"ENVIRONMENT": "BATCH", "PBS_JOBCOOKIE": "0" * 32, "PBS_MOMPORT": "15003"}
    subjob = {"PBS_ARRAY_ID": job.array, "PBS_ARRAY_INDEX": str(job.index)} if job.array else {}
    return on_nodes.set_up(
        server.room(job),
        job.shown["Variable_List"] | own | mom | subjob,
        [host for host, chunk in pairs for _ in range(chunk.lines)],
        {host: chunk.ncpus for host, chunk in reversed(pairs)},
    )
