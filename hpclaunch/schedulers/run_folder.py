"""The run folder: what job script, ranks and this package tell each other by files, each named here once.

docs/run-folder.md is the same for users. {} stands for a number. This module imports nothing of ours.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

RUNS = "hpclaunch-runs"  # below the folder of submission; the run folder in it has the job's id for a name

# Written by hpclaunch: submit, run, cancel.
SCRIPT = "job.sh"  # the job script, byte for byte; submitted again by PBS scripts, looked into by logs
RUN = "run.json"  # the registry's entry; read by commands that are given the folder
PLAN = "plan.json"  # the plan, for users
CANCELLED = "cancelled"  # empty, by cancel; read by status and wait

# Written by the job script.
ABOUT = "about.json"  # what run.json says but for id and times; read if there is no run.json, after a qsub by hand
FAILED = "failed"  # the first failure, EXIT_CODE LOG WHO; read by the head node and why
EXIT = "exit"  # the script's exit code, at its end; read by status, wait, why and PBS's next attempt
WARNED, NEW = "warned", "new.{}"  # empty, on Slurm: its time is when each rank warns its command; NEW until it has that
ACTIVE = "node-{}.active"  # empty, touched by a node whose ranks do something; read by all nodes with --hang-after
HUNG = "hung"  # empty, by the node that finds that all ranks hang; read by all nodes and the job script
FLIGHT = "flight-rank-{}"  # PyTorch's flight recorder of a rank, where it is on, with --hang-after; read by users
AGAIN = "again"  # empty, by a rank that saved and is not done; read by the script, which starts the next attempt
ATTEMPT = "attempt-{}"  # empty, by the attempt before: attempt N has something to do; read by PBS's attempts and status
ATTEMPTS = "attempts"  # the ids of PBS's further attempts, one a line, also by submit; read by status and cancel
NODE_SCRIPT = "node.sh"  # environment and functions of the job; read by the shells that pbsdsh starts
CODE = "code"  # a folder, with --snapshot: the code as it was at submission, in which the job runs
COMMIT, DIFF = "commit", "code.diff"  # of that code: git's commit, and the difference to it; read by users
PACKAGES = "packages.txt"  # NAME==VERSION of what the job's python has, with --snapshot; read by users
RANK_SCRIPT = "rank.sh"  # the same; read by the shells that mpirun starts
HEARTBEAT = "node-{}.heartbeat.{}"  # empty, the name is the message: a count, then end-CODE; by nodes, read by the head
STARTS = "node-{}.starts"  # GROUP_RANK NODES HOST for each start of its ranks, then finished; read by head and status

# Written with --preflight, before the ranks start.
PREFLIGHT = "preflight"  # which nodes are not fit and why, empty if all are; read by each node
FIT = "node-{}.fit"  # empty, by a fit node; read by its ranks, which then start
UNFIT = "node-{}.unfit"  # HOST REASON; read by node 0 and, on Slurm, by the script, which excludes the node

# Written by ranks and nodes, live, above 512 ranks in a folder for each node. Read by logs, why and users.
METRICS = "metrics.json"  # what the program measured, if it writes that; read by results and scale
RANK_LOG, RANK_ERR = "rank-{}.log", "rank-{}.err"  # what a rank wrote to stdout and to stderr
NODE_LOG, NODE_ERR = "node-{}.log", "node-{}.err"  # what a node's launcher wrote; with lightning, all of its ranks
NODE_FOLDER = "node-{}"
USAGE = "node-{}.usage"  # what the node uses, times of its ranks; by nodes, ranks, SaveAndLeave; read by report

# Written by the process that runs a script in the background on this machine.
STARTED = "started"  # empty, once the runs before it have ended; read by status
OUTPUT = "job.out"  # what the script printed; read by logs and why
PID, HOST = "pid", "host"  # of that process; read by status and cancel


class Failure(Struct, frozen=True):
    """The first failure of a run, as the job script recorded it."""

    code: int
    log: Path | None
    who: str

    @property
    def seen(self) -> bool:
        """Whether the job script saw it from outside: the code is then the script's own, not a command's."""
        return self.log is None and ", which " in self.who

    def __str__(self) -> str:
        if self.seen:  # "node n1, which is silent"
            return self.who.replace(", which ", " ", 1)
        if self.who.startswith(("rank ", "node ", "torchrun ")):
            return f"{self.who} exited with {self.code}"
        return f"{self.who}, exit code {self.code}"


def new_name(start: str) -> str:
    """Return a name for a run folder that no other has, such as `local-20260131-235900-1a2b`."""
    return f"{start}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


def listed(folder: Path, name: str) -> Path:
    """Return the path of a file after listing the folder, as NFS shows new files only then. Raises OSError."""
    os.listdir(folder)  # noqa: PTH208
    return folder / name


def read(folder: Path, name: str) -> str | None:
    """Return what is in a file of the run folder, or None if it cannot be read."""
    with suppress(OSError):
        return listed(folder, name).read_text(errors="replace")
    return None


def failure(folder: Path) -> Failure | None:
    """Return the recorded failure. Its log is None if it is not a file of the run folder."""
    with suppress(ValueError):
        code, log, who = (read(folder, FAILED) or "").split("\n")[0].split(" ", 2)
        path = folder / log
        return Failure(int(code), path if holds(folder, path) else None, who.strip().rstrip(","))
    return None


def restarts(folder: Path) -> tuple[int, list[str]]:
    """Return how often the ranks were started again inside the allocation, and the hosts that were left out since."""
    starts = 0
    last: list[tuple[float, int, int, str]] = []
    for path in folder.glob(STARTS.format("*")):
        with suppress(OSError, ValueError):
            lines = [line.split() for line in path.read_text().splitlines() if line != "finished"]
            starts += sum(rank == "0" for rank, _, _ in lines)
            last.append((path.stat().st_mtime, int(lines[-1][0]), int(lines[-1][1]), lines[-1][2]))
    nodes, ranks, out = None, set(), []
    for _, rank, of, host in sorted(last, reverse=True):  # the newest start first: what else has its rank is older
        nodes = nodes or of
        out += [host] if rank >= nodes or rank in ranks else []
        ranks.add(rank)
    return max(starts - 1, 0), sorted(out)


def holds(folder: Path, path: Path) -> bool:
    """Tell whether `path` is a file of the run folder, and not a link out of it."""
    return path.is_file() and path.resolve().is_relative_to(folder.resolve())


def logs(folder: Path, name: str, number: int | None = None) -> dict[int, Path]:
    """Return the logs of one kind by number and in its order; only one if its number is given."""
    start, end = name.split("{}")
    last = name.format("*" if number is None else number)
    found = {}
    for path in (*folder.glob(last), *folder.glob(f"{NODE_FOLDER.format('*')}/{last}")):
        middle = path.name[len(start) : len(path.name) - len(end)]
        if middle.isdecimal():
            found[int(middle)] = path
    return dict(sorted(found.items()))
