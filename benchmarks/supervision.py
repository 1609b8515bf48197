"""Measure what watching many PBS nodes costs: python benchmarks/supervision.py [--nodes N] [--seconds S].

The job script that hpclaunch renders for N nodes runs here, its first node for real; the others are simulated: their
heartbeat files are renamed as often as a node would. Measured are the head's share of a core, with what it starts; the
metadata operations on the run folder, counted by strace (of the head, and of the first node times N; what `tail` asks
on a network file system, where nothing tells it of a change, is added); and the seconds until a node that dies is
noticed. Goals: at most 5 % of a core, at most 50 operations a second over all nodes, a dead node noticed in a minute.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import click

MOST_CORE, MOST_OPERATIONS, MOST_SECONDS = 5, 50, 60
TAIL = 4  # operations a second of a tail that polls two files
# The first node runs what it is given; the others last until they are told to end.
PBSDSH = '#!/bin/bash\nif [[ $2 == 0 ]]; then exec "${@:4}"; fi\nexec sleep 100000\n'


class Nodes(threading.Thread):
    """The heartbeats of all nodes but the first, spread over the interval."""

    def __init__(self, folder: Path, count: int, interval: int) -> None:
        super().__init__(daemon=True)
        self.folder, self.count, self.interval = folder, count, interval
        self.dead: set[int] = set()
        self.over = threading.Event()

    def run(self) -> None:
        """Rename each node's file once an interval; at the end say that all have ended."""
        state, began = dict.fromkeys(range(1, self.count), "0"), time.monotonic()
        turn = 0
        while not self.over.is_set():
            for node in range(1, self.count):
                due = began + self.interval * (turn + node / self.count)
                if self.over.wait(max(due - time.monotonic(), 0)):
                    break
                if node not in self.dead:
                    state[node] = self._rename(node, state[node], str(turn + 1))
            turn += 1
        for node, name in state.items():
            self._rename(node, name, "end-143")

    def _rename(self, node: int, old: str, new: str) -> str:
        start = self.folder / f"node-{node}.heartbeat"
        start.with_suffix(f".heartbeat.{old}").rename(start.with_suffix(f".heartbeat.{new}"))
        return new


def render(nodes: int) -> str:
    """Return the job script of `nodes` nodes with four ranks each."""
    words = ["--site", "pbs", "--nodes", str(nodes), "--tasks-per-node", "4", "--launcher", "tasks", "--quiet"]
    command = [sys.executable, "-m", "hpclaunch", "render", *words, "--force", "program", "--", "sleep", "100000"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def cpu_seconds(process: int) -> float:
    """Return the processor time of a process and of its children that have ended."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def operations(process: int, folder: Path, seconds: float) -> float:
    """Return the metadata operations a second of a process and its children on `folder`, counted by strace."""
    with tempfile.NamedTemporaryFile() as log:
        command = [
            "strace",
            "-f",
            "-q",
            "-s",
            "500",
            "-e",
            "trace=%file,getdents64",
            "-o",
            log.name,
            "-p",
            str(process),
        ]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as tracer:
            time.sleep(seconds)
            tracer.send_signal(signal.SIGINT)
        lines = Path(log.name).read_text().splitlines()
    found = [line for line in lines if str(folder) in line or "getdents64(" in line]
    return sum("execve(" not in line for line in found) / seconds


def child(process: int, word: str) -> int:
    """Return a child of `process` whose command line has `word` in it."""
    for number in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        if word in Path(f"/proc/{number}/cmdline").read_text():
            return int(number)
    raise click.ClickException(f"process {process} has no child with {word} in its command line")


def wait_until(condition: Callable[[], object], seconds: float) -> float:
    """Return how long it took until `condition()` held, infinity where it did not."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            return float("inf")
        time.sleep(0.05)
    return time.monotonic() - began


def verdict(goal: str, value: float, most: float) -> None:
    """Print whether a goal is met."""
    print(f"goal: {goal} ({value:.1f}): {'met' if value <= most else 'missed'}")


@click.command(help=__doc__)
@click.option("--nodes", default=512, show_default=True, type=click.IntRange(min=2))
@click.option("--seconds", default=60.0, show_default=True, help="How long each measurement lasts.")
def main(nodes: int, seconds: float) -> None:
    """Run the script, measure, let a node die, print."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name).resolve()
        script = render(nodes)
        (work / "job.sh").write_text(script)
        (work / "nodefile").write_text("".join(f"127.1.{node // 250}.{node % 250 + 1}\n" for node in range(nodes)))
        (work / "bin").mkdir()
        (work / "bin" / "pbsdsh").write_text(PBSDSH)
        (work / "bin" / "pbsdsh").chmod(0o755)
        interval = int(re.findall(r"sleep (\d+) \{guard\}", script)[0])
        folder = work / "hpclaunch-runs" / "1.bench"
        environment = os.environ | {
            "PATH": f"{work / 'bin'}:{os.environ['PATH']}", "PBS_JOBID": "1.bench", "PBS_O_WORKDIR": str(work),
            "PBS_NODEFILE": str(work / "nodefile"),
        }  # fmt: skip
        with (work / "out").open("w") as out:
            head = subprocess.Popen(["bash", "job.sh"], cwd=work, env=environment, stdout=out, stderr=out)
        simulated = Nodes(folder, nodes, interval)
        try:
            measure(head, simulated, seconds)
        finally:
            simulated.over.set()
            head.terminate()
            head.wait(60)
            print((work / "out").read_text(), file=sys.stderr)


def measure(head: subprocess.Popen[bytes], simulated: Nodes, seconds: float) -> None:
    """Print what the head costs while all is well, then how soon it notices a dead node."""
    folder, nodes = simulated.folder, simulated.count
    wait_until(lambda: [*folder.glob("node-0.heartbeat.[1-9]*")], 60)
    simulated.start()
    time.sleep(10)  # all are started
    before = cpu_seconds(head.pid)
    time.sleep(seconds)
    core = 100 * (cpu_seconds(head.pid) - before) / seconds
    print(f"{nodes} nodes, a heartbeat each {simulated.interval} s")
    print(f"the head: {core:.2f} % of a core")
    if shutil.which("strace"):
        watched = operations(head.pid, folder, seconds)
        node = operations(child(head.pid, "node.sh"), folder, max(seconds, 3 * simulated.interval))
        total = watched + TAIL + nodes * node
        print(f"metadata operations a second: {watched:.1f} of the head, {TAIL} of tail, {nodes} x {node:.3f} of nodes")
    else:
        total = float("inf")
        print("metadata operations: not counted, strace is not installed")
    simulated.dead.add(nodes - 1)
    noticed = wait_until((folder / "failed").exists, 120)
    print(f"a dead node is noticed after {noticed:.1f} s")
    verdict(f"at most {MOST_CORE} % of a core", core, MOST_CORE)
    verdict(f"at most {MOST_OPERATIONS} metadata operations a second", total, MOST_OPERATIONS)
    verdict(f"a dead node noticed within {MOST_SECONDS} s", noticed, MOST_SECONDS)


if __name__ == "__main__":
    main()
