"""What the benchmarks of the bundled workload share: processes with the launch contract, the machine's name."""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
MNIST = ROOT / "hpclaunch" / "workloads" / "mnist.py"
FOREIGN = ("HPCLAUNCH_", "SLURM_", "PBS_", "TORCHELASTIC_", "MNIST_DIR", "MASTER_", "WORLD_SIZE", "RANK", "LOCAL_RANK")


def free_port() -> str:
    """Return a port that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def run_ranks(words: list[str], world_size: int, seconds: float = 1800, **variables: str) -> None:
    """Run `python WORDS` as all ranks of one node and wait for their end, in an empty folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    contract = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "NODE_RANK": "0",
        "PYTHONWARNINGS": "ignore",
    }
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / f"rank-{rank}.log" for rank in range(world_size)]
        processes = []
        for rank, log in enumerate(logs):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "BEGAN": repr(time.time())}
            with log.open("w") as output:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, *words],
                        cwd=folder,
                        env=kept | contract | variables | place,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                )
        try:
            wait(processes, logs, seconds)
        finally:
            for process in processes:
                process.kill()
                process.wait()


def wait(processes: list[subprocess.Popen[bytes]], logs: list[Path], seconds: float) -> None:
    """Wait until all have ended well; the first that has not ends the benchmark with its last lines."""
    end = time.monotonic() + seconds
    while True:
        codes = [process.poll() for process in processes]
        for rank, code in enumerate(codes):
            if code:
                last = "\n".join(logs[rank].read_text(errors="replace").splitlines()[-15:])
                raise click.ClickException(f"rank {rank} left with exit code {code}:\n{last}")
        if None not in codes:
            return
        if time.monotonic() > end:
            raise click.ClickException(f"the ranks had not ended after {seconds:.0f} s")
        time.sleep(0.05)


def machine() -> str:
    """Name what the figures were measured on, and how busy it was."""
    import torch

    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else []
    device = f"{os.cpu_count()} cores of {names[0].strip() if names else platform.machine()}"
    if torch.cuda.is_available():
        device = f"{torch.cuda.device_count()} {torch.cuda.get_device_name()}, {device}"
    load = os.getloadavg()[0]
    return f"{device}, torch {torch.__version__}, load average {load:.1f} at the start"


def verdict(met: bool) -> str:
    """Say whether a goal is met."""
    return "met" if met else "missed"
