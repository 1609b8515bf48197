"""A stand-in for srun: starts the tasks of all nodes on this machine, each node with a TMPDIR of its own.

Variables that name a network interface of the site only are left out, as gloo and NCCL would fail.

As Slurm 22.05: a task does not get --cpus-per-task of the job but that of srun; with --kill-on-bad-exit the others are
ended when one fails; the exit code is the highest of the tasks'.
"""

import argparse
import os
import socket
import subprocess
import sys
from pathlib import Path

from hpclaunch.rehearsal.processes import MARK, run_together
from hpclaunch.rehearsal.slurm.environment import step_variables

# Options that change nothing here: where ranks are bound, and by what they meet.
_IGNORED = ("cpu-bind", "distribution", "export", "gpu-bind", "gpus-per-node", "gpus-per-task", "gres", "hint",
            "mem-bind", "mpi", "network", "threads-per-core")  # fmt: skip


def main() -> int:
    """Run a step."""
    parser = argparse.ArgumentParser(prog="srun", allow_abbrev=False)
    for name in _IGNORED:
        parser.add_argument(f"--{name}")
    parser.add_argument("--nodes", type=int, default=int(os.environ["SLURM_NNODES"]))
    parser.add_argument("--ntasks", type=int)
    parser.add_argument("--ntasks-per-node", type=int, default=int(os.environ["SLURM_NTASKS_PER_NODE"]))
    parser.add_argument("--cpus-per-task", type=int)
    parser.add_argument("--kill-on-bad-exit", type=int, default=0)
    parser.add_argument("--wait", type=int)
    for flag in ("--no-kill", "--overlap"):
        parser.add_argument(flag, action="store_true")
    for name in ("image", "mounts", "workdir"):  # of pyxis; the tasks run on this machine as they are
        parser.add_argument(f"--container-{name}")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    hosts = os.environ["SLURM_JOB_NODELIST"].split(",")[: options.nodes]
    per_node = options.ntasks_per_node
    tasks = [_start(options, hosts, per_node, rank) for rank in range(options.ntasks or len(hosts) * per_node)]
    codes = run_together(tasks, end_others=bool(options.kill_on_bad_exit))
    for rank, code in enumerate(codes):
        if code:
            print(f"srun: error: {hosts[rank // per_node]}: task {rank}: Exited with exit code {code}", file=sys.stderr)
    return max(codes)


def _start(options: argparse.Namespace, hosts: list[str], per_node: int, rank: int) -> subprocess.Popen[bytes]:
    node = rank // per_node
    scratch = Path(os.environ[MARK]) / f"tmp-{node}"
    scratch.mkdir(exist_ok=True)
    environment = step_variables(os.environ, hosts, per_node, options.cpus_per_task, rank) | {"TMPDIR": str(scratch)}
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        wanted = tuple(environment.get(name, "").split(","))
        if not any(interface.startswith(wanted) for _, interface in socket.if_nameindex()):
            del environment[name]
    return subprocess.Popen(options.command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
