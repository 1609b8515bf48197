"""The variables of a job: what qsub lists, what the script gets, what a task of pbsdsh gets (OpenPBS 23.06, seen)."""

from __future__ import annotations

import os
import platform
import pwd
from collections.abc import Mapping
from pathlib import Path

from hpclaunch.paths import home
from hpclaunch.rehearsal.pbs.resources import Chunk
from hpclaunch.rehearsal.pbs.server import Job, Server

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
TASK_PATH = "/bin:/usr/bin"  # the MoM's own; `pbsdsh -- PROGRAM` looks bare names up in it


def user() -> str:
    """Return the name of who runs this."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's
        return str(os.getuid())


def everything() -> dict[str, str]:
    """Return what qsub -V passes on: all, but what makes this a stand-in and what belongs to another job."""
    own = ("PBS_", "BASH_FUNC_")
    return {name: value for name, value in os.environ.items() if not name.startswith(own) and name != "_"}


def listed(server: Server, queue: str, asked: Mapping[str, str], chunks: list[Chunk]) -> dict[str, str]:
    """Return the Variable_List: where the job was submitted, and what Gadi's hook puts there."""
    outside = {
        "HOME": str(home()),
        "LANG": "C.UTF-8",
        "LOGNAME": user(),
        "SHELL": "/bin/bash",
        "PATH": SYSTEM_PATH,
    }
    return {f"PBS_O_{name}": os.environ.get(name, value) for name, value in outside.items()} | {
        "PBS_O_WORKDIR": str(Path.cwd()),
        "PBS_O_SYSTEM": "Linux",
        "PBS_O_HOST": platform.node(),
        "PBS_O_QUEUE": queue,
        "PBS_NCPUS": str(sum(chunk.ncpus for chunk in chunks)),
        "PBS_NGPUS": str(sum(chunk.ngpus for chunk in chunks)),
        "PBS_NNODES": str(len(chunks)),
        "PBS_NCI_NCPUS_PER_NODE": str(server.settings.queues[queue].cores_per_node),
        "PBS_NCI_WD": "1" if "wd" in asked else "0",
    }


def of_script(server: Server, job: Job, cookie: str) -> dict[str, str]:
    """Return what the job's login shell starts with."""
    room = server.room(job)
    variables: dict[str, str] = job.shown["Variable_List"]
    home = variables["PBS_O_HOME"]
    return {
        "HOME": home,
        "USER": user(),
        "LOGNAME": user(),
        "SHELL": "/bin/bash",
        "LANG": variables["PBS_O_LANG"],
        "PATH": f"{programs(server)}:{SYSTEM_PATH}",
        **variables,
        **_own(job, 0, cookie),
        "TMPDIR": str(room / "jobfs-0"),
        "PBS_JOBDIR": home,
        "PBS_NODEFILE": str(room / "nodefile"),
        "PBS_TASKNUM": "1",
    }


def programs(server: Server) -> str:
    """Return the head of a job's PATH: PBS's programs, and the Python that the person who set this up works with."""
    return f"{server.folder / 'bin'}:{Path(server.settings.python).parent}"


def of_task(server: Server, job: Job, node: int, number: str, cookie: str) -> dict[str, str]:
    """Return what a task of pbsdsh gets: nothing that the script exports, but all that qsub listed.

    PBS_NODEFILE is missing on the first node.
    """
    room = server.room(job)
    variables: dict[str, str] = job.shown["Variable_List"]
    return {
        "PATH": TASK_PATH,
        **variables,
        "HOME": variables["PBS_O_HOME"],
        **_own(job, node, cookie),
        "TMPDIR": str(room / f"jobfs-{node}"),
        "PBS_JOBDIR": variables["PBS_O_HOME"],
        "PBS_TASKNUM": number,
        **({"PBS_NODEFILE": str(room / "nodefile")} if node else {}),
    }


def _own(job: Job, node: int, cookie: str) -> dict[str, str]:
    host = job.nodes[node]
    ncpus = str(job.chunks[job.hosts.index(host)].ncpus)
    subjob = {"PBS_ARRAY_ID": job.array, "PBS_ARRAY_INDEX": str(job.index)} if job.array else {}
    return subjob | {
        "NCPUS": ncpus,
        "OMP_NUM_THREADS": ncpus,
        "ENVIRONMENT": "BATCH",
        "PBS_ENVIRONMENT": "PBS_BATCH",
        "PBS_JOBID": job.id,
        "PBS_JOBNAME": str(job.shown["Job_Name"]),
        "PBS_QUEUE": str(job.shown["queue"]),
        "PBS_JOBCOOKIE": cookie,
        "PBS_MOMPORT": "15003",
        "PBS_NODENUM": str(node),
    }
