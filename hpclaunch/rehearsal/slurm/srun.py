"""A stand-in for srun: starts the tasks of all nodes on this machine, each node with a TMPDIR of its own.

As Slurm 22.05: a task does not get --cpus-per-task of the job but that of srun; with --kill-on-bad-exit the others are
ended when one fails; the exit code is the highest of the tasks'.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from hpclaunch.rehearsal.programs import MARK, end

KILL_WAIT = 5.0


def main() -> int:
    """Run a step."""
    parser = argparse.ArgumentParser(prog="srun", allow_abbrev=False)
    parser.add_argument("--export", default="ALL")
    parser.add_argument("--cpus-per-task", type=int)
    parser.add_argument("--kill-on-bad-exit", type=int, default=0)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    hosts = os.environ["SLURM_JOB_NODELIST"].split(",")
    per_node = int(os.environ["SLURM_NTASKS_PER_NODE"])
    tasks = [_start(asked, hosts, per_node, rank) for rank in range(len(hosts) * per_node)]

    def alive() -> list[int]:
        return [-task.pid for task in tasks if task.poll() is None]  # a signal reaches all of a task's processes

    signal.signal(signal.SIGTERM, lambda *_: end(alive, KILL_WAIT))
    told = False
    while alive():
        if not told and asked.kill_on_bad_exit and any(task.poll() for task in tasks):
            told = True
            end(alive, KILL_WAIT)
        time.sleep(0.05)
    codes = [128 - task.returncode if task.returncode < 0 else task.returncode for task in tasks]
    for rank, code in enumerate(codes):
        if code:
            print(f"srun: error: {hosts[rank // per_node]}: task {rank}: Exited with exit code {code}", file=sys.stderr)
    return max(codes)


def _start(asked: argparse.Namespace, hosts: list[str], per_node: int, rank: int) -> subprocess.Popen[bytes]:
    node = rank // per_node
    scratch = Path(os.environ[MARK]) / f"tmp-{node}"
    scratch.mkdir(exist_ok=True)
    environment = os.environ | {
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank % per_node),
        "SLURM_NODEID": str(node),
        "SLURMD_NODENAME": hosts[node],
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(len(hosts) * per_node),
        "SLURM_STEP_NUM_NODES": str(len(hosts)),
        "SLURM_STEP_NODELIST": ",".join(hosts),
        "TMPDIR": str(scratch),
    }
    environment.pop("SLURM_CPUS_PER_TASK", None)
    if asked.cpus_per_task:
        environment["SLURM_CPUS_PER_TASK"] = str(asked.cpus_per_task)
    return subprocess.Popen(asked.command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
