"""A stand-in for srun: starts the tasks of all nodes on this machine, each node with a TMPDIR of its own.

Variables that name a network interface of the site only are left out, as gloo and NCCL would fail.

As Slurm 22.05: a task does not get --cpus-per-task of the job but that of srun; with --kill-on-bad-exit the others are
ended when one fails; the exit code is the highest of the tasks'.
"""

import argparse
import os
import socket
import sys
from pathlib import Path

from hpclaunch.rehearsal.processes import MARK, run_together
from hpclaunch.rehearsal.slurm.environment import step_variables

# Options that change nothing here: where ranks are bound, by what they meet, and the image of pyxis.
_IGNORED = ("container-image", "container-mounts", "container-workdir", "cpu-bind", "distribution", "export",
            "gpu-bind", "gpus-per-node", "gpus-per-task", "gres", "hint", "mem-bind", "mpi", "network",
            "threads-per-core", "wait")  # fmt: skip


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
    for flag in ("--no-kill", "--overlap"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    hosts = os.environ["SLURM_JOB_NODELIST"].split(",")[: options.nodes]
    per_node = options.ntasks_per_node
    ranks = range(options.ntasks or len(hosts) * per_node)
    environments = [_environment(hosts, per_node, options.cpus_per_task, rank) for rank in ranks]
    codes = run_together(options.command, environments, end_others=bool(options.kill_on_bad_exit))
    for rank, code in enumerate(codes):
        if code:
            print(f"srun: error: {hosts[rank // per_node]}: task {rank}: Exited with exit code {code}", file=sys.stderr)
    return max(codes)


def _environment(hosts: list[str], per_node: int, cpus: int | None, rank: int) -> dict[str, str]:
    scratch = Path(os.environ[MARK]) / f"tmp-{rank // per_node}"
    scratch.mkdir(exist_ok=True)
    environment = step_variables(os.environ, hosts, per_node, cpus, rank) | {"TMPDIR": str(scratch)}
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        wanted = tuple(environment.get(name, "").split(","))
        if not any(interface.startswith(wanted) for _, interface in socket.if_nameindex()):
            del environment[name]
    return environment
