"""Test whether the nodes of a job are fit for a training: before its ranks with --preflight, or by itself.

    hpclaunch submit --site gadi --nodes 4 --preflight -- python train.py
    hpclaunch submit --site gadi --nodes 4 --workload preflight

One process on each node looks at its GPUs, memory, disk, clock, and the way to MASTER_ADDR. Then node 0 lets the nodes
do an all-reduce in pairs, each with at most 7 others, and together. If a node is not fit, all end with exit code 1;
the run folder has the sentence in `preflight`, and "HOST REASON" in node-N.unfit.
"""

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

HOST, FOLDER = socket.gethostname(), Path(os.environ.get("HPCLAUNCH_RUN_DIR", "."))
RANK = int(os.environ.get("NODE_RANK") or os.environ.get("GROUP_RANK", "0"))
COUNT = max(1, int(os.environ.get("WORLD_SIZE", "1")) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
PORT = int(os.environ.get("MASTER_PORT", "29500")) + ("TORCHELASTIC_RUN_ID" in os.environ)  # where torchrun listens
MASTER = os.environ.get("MASTER_ADDR", "127.0.0.1"), PORT
REACH, JOIN, SKEW = 30, 60, 5  # seconds: to reach node 0; until all have reported; between clocks
BYTES, REPEATS, LIMIT = 4 * 1000**2, 5, {"gloo": 5, "nccl": 10}  # of an all-reduce; seconds at most
SLOW, LEAST, PARTNERS, MIB = 4, 0.01, 7, 1024**2  # slow: times the median, and seconds above it
Results = dict[tuple[int, ...], float | str]  # of a group: the seconds of its all-reduce, or why there was none


def own_problems(gpus: int) -> Iterator[str]:
    """Yield what is wrong with this node by itself; the job has so many GPUs on it."""
    memory = {line.split(":")[0]: int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines()}
    if memory["MemAvailable"] < memory["MemTotal"] * 0.02:
        yield f"has {memory['MemAvailable'] // 1024} of {memory['MemTotal'] // 1024} MiB of memory free"
    for folder in {os.environ.get("TMPDIR", "/tmp"), os.environ.get("PBS_JOBFS", str(FOLDER)), str(FOLDER)}:  # noqa: S108
        probe = Path(folder, f".preflight-{HOST}-{os.getpid()}")
        try:
            probe.write_bytes(bytes(MIB))
            probe.unlink()
            if (free := shutil.disk_usage(folder).free) < 100 * MIB:
                yield f"has {free // MIB} MiB free in {folder}"
        except OSError as error:
            yield f"cannot write to {folder}: {error.strerror}"
    if not shutil.which("nvidia-smi"):
        return
    try:
        answer = subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, text=True, timeout=REACH, check=True)
        found = ElementTree.fromstring(answer.stdout).findall("gpu")  # noqa: S314 - the driver's own
    except (OSError, subprocess.SubprocessError, ElementTree.ParseError) as error:
        yield f"cannot query its GPUs: {error}"
        return
    if len(found) < gpus:
        yield f"has {len(found)} of {gpus} GPUs"
    bad = ("remapped_row_pending", "remapped_row_failure", "pending_retirement", "gpu_recovery_action")  # after an Xid
    for number, gpu in enumerate(found):
        for item in (*gpu.findall("ecc_errors/volatile//"), *(item for item in gpu.iter() if item.tag in bad)):
            text = (item.text or "").strip()
            if text not in ("", "0", "No", "None", "N/A") and (item.tag in bad or "uncorrectable" in item.tag):
                yield f"has errors in GPU {number}: {item.tag} {text}"


def reach() -> socket.socket:
    """Return a connection to node 0, which ends when node 0 has closed its port. Raises OSError with the reason."""
    end = time.monotonic() + REACH
    while True:
        try:
            return socket.create_connection(MASTER, timeout=5)
        except OSError as error:
            if time.monotonic() > end or isinstance(error, socket.gaierror):
                raise OSError(f"cannot reach MASTER_ADDR {MASTER[0]}, port {PORT}: {error}") from None
            time.sleep(0.2)


def exchange(dist: Any, name: str, group: list[int], backend: str) -> float | str:
    """Return the least seconds of an all-reduce between the nodes of a group, or why there was none."""
    import torch

    result: list[float | str] = [f"no answer within {LIMIT[backend]} s"]

    def work() -> None:
        try:
            limit, times = timedelta(seconds=LIMIT[backend]), []
            store = dist.PrefixStore(name, dist.TCPStore(*MASTER, is_master=False, timeout=limit))
            make = dist.ProcessGroupNCCL if backend == "nccl" else dist.ProcessGroupGloo
            together = make(store, group.index(RANK), len(group), timeout=limit)
            buffer = torch.ones(BYTES // 4, device="cuda" if backend == "nccl" else "cpu")
            for _ in range(REPEATS + 1):
                start = time.perf_counter()
                together.allreduce([buffer]).wait()
                buffer[0].item()  # until a GPU is done
                times.append(time.perf_counter() - start)
            result[0] = min(times[1:])
        except Exception as error:  # whatever a library raises is the reason
            result[0] = re.sub(r"\[\S+:\d+\] ", "", str(error).partition("\n")[0])[:120]

    thread = threading.Thread(target=work, daemon=True)  # which may hang
    thread.start()
    thread.join(LIMIT[backend] + 2)
    return result[0]


def take_part(dist: Any, problems: list[str], backend: str) -> str:
    """Do what node 0 orders until it says which nodes are not fit, and return that."""
    store = dist.TCPStore(*MASTER, is_master=False, timeout=timedelta(seconds=2 * JOIN))
    answer: dict[str, Any] = {"host": HOST, "problems": problems, "backend": backend}
    for step in count():
        order = json.loads(store.get(f"go {step}"))
        answer["skew"] = time.time() - order["time"]
        for group in order["groups"]:
            if RANK in group:
                answer["result"] = exchange(dist, f"{step} {group[0]}", group, order["backend"])
        store.set(f"done {step} {RANK}", json.dumps(answer))
        if order["verdict"] is not None:
            return str(order["verdict"])
    raise AssertionError


def pairings(nodes: list[int]) -> Iterator[list[list[int]]]:
    """Yield rounds of pairs in which nobody meets twice."""
    ring = nodes + [-1] * (len(nodes) % 2)
    for _ in range(min(len(ring) - 1, PARTNERS)):
        half = len(ring) // 2
        yield [sorted(pair) for pair in zip(ring[:half], ring[: half - 1 : -1], strict=True) if -1 not in pair]
        ring = [ring[0], ring[-1], *ring[1:-1]]


def judged(results: Results) -> dict[int, str]:
    """Return what is wrong with which node, by the results of all pairs."""
    unfit: dict[int, str] = {}
    while cut := {pair: why for pair, why in results.items() if isinstance(why, str) and not unfit.keys() & set(pair)}:
        meets = Counter(node for pair in cut for node in pair)
        worst = max(meets, key=lambda node: (meets[node], node))
        others = {node: why for pair, why in cut.items() if worst in pair for node in pair if node != worst}
        unfit[worst] = f"has no all-reduce with node {', '.join(map(str, others))}: {next(iter(others.values()))}"
    times = {pair: seconds for pair, seconds in results.items() if isinstance(seconds, float)}
    best = {(node,): min(times[pair] for pair in times if node in pair) for pair in times for node in pair}
    for each in (best, times):
        usual = statistics.median(each.values()) if each and not unfit else sys.maxsize
        for (*other, node), seconds in each.items():
            if seconds > max(SLOW * usual, usual + LEAST):
                much = f"{seconds * 1000:.1f} ms for {BYTES // 1000**2} MB, the median {usual * 1000:.1f}"
                unfit[node] = f"is slow in an all-reduce with {f'node {other[0]}' if other else 'any other'}: {much}"
    return unfit


class Conductor:
    """Node 0's part: it lets the nodes answer, and finds out which are not fit and why."""

    def __init__(self, store: Any) -> None:
        self.store, self.steps, self.backend, self.results = store, count(), "gloo", Results()
        self.unfit: dict[int, str] = {}
        self.found = self.ask(range(COUNT), JOIN)
        self.hosts = {node: answer["host"] for node, answer in self.found.items()}

    def ask(self, nodes: Iterable[int], seconds: float, groups: Any = (), verdict: str | None = None) -> dict[int, Any]:
        """Return what the nodes answer in time; one that cannot may leave a note."""
        step, end, found, waiting = next(self.steps), time.monotonic() + seconds, {}, set(nodes)
        order = {"time": time.time(), "backend": self.backend, "groups": groups, "verdict": verdict}
        self.store.set(f"go {step}", json.dumps(order))
        while waiting and time.monotonic() < end:
            for node in [node for node in waiting if self.store.check([f"done {step} {node}"])]:
                found[node] = json.loads(self.store.get(f"done {step} {node}"))
            notes = {path.name for path in FOLDER.iterdir()}  # NFS shows new files to those who list a folder
            waiting -= {*found, *(node for node in waiting if f"node-{node}.unfit" in notes)}
            time.sleep(0.01)
        return found

    def call_roll(self) -> list[int]:
        """Return the nodes that came and have nothing wrong with them."""
        for node in set(range(COUNT)) - self.found.keys():
            self.hosts[node], self.unfit[node] = "?", f"did not report within {JOIN} s"
            with suppress(FileNotFoundError):
                words = (FOLDER / f"node-{node}.unfit").read_text()
                self.hosts[node], self.unfit[node] = words.strip().split(" ", 1)
        if len(self.unfit) == COUNT - 1 > 1:  # then it is not the others
            for node in self.unfit:
                (FOLDER / f"node-{node}.unfit").unlink(missing_ok=True)
            self.unfit = {0: f"no other node reaches: node 1 {self.unfit[1]}"}
        for node, answer in self.ask(self.found, LIMIT[self.backend]).items():
            skewed = [f"has a clock {answer['skew']:+.0f} s from node 0's"] * (abs(answer["skew"]) > SKEW)
            if problems := answer["problems"] + skewed:
                self.unfit[node] = " and ".join(problems)
        return [node for node in sorted(self.found) if node not in self.unfit]

    def measure(self, live: list[int], groups: list[list[int]]) -> bool:
        """Let each group do an all-reduce, and return whether there was one in all."""
        answers = self.ask(live, LIMIT[self.backend] + 5, groups)
        for group in map(tuple, groups):
            took = [answers.get(node, {}).get("result", "no answer") for node in group]
            failed = [why for why in took if isinstance(why, str)]
            self.results[group] = failed[0] if failed else min(max(took), float(self.results.get(group, "inf")))
        return not any(isinstance(self.results[tuple(group)], str) for group in groups)

    def conduct(self) -> str:
        """Lead the nodes through the test; return which are not fit and why, or ""."""
        live = self.call_roll()
        if {self.found[node]["backend"] for node in live} == {"nccl"} and len({*map(self.hosts.get, live)}) == len(
            live
        ):
            self.backend = "nccl"  # emulated nodes share their GPUs
        for _ in range(3):  # what is slow may have been so for a moment
            met = [self.measure(live, groups) for groups in pairings(live)]
            bad = judged(self.results)
            if not (bad and all(met)):
                break
        self.unfit |= bad
        if not self.unfit and COUNT > 2 and not self.measure(live, [live]):
            self.unfit[0] = f"has no all-reduce with all others at once: {self.results[tuple(live)]}"
        for node, why in self.unfit.items():
            (FOLDER / f"node-{node}.unfit").write_text(f"{self.hosts[node]} {why}\n")
        if not self.unfit:
            took = sorted(1000 * float(seconds) for seconds in self.results.values())
            text = f"an all-reduce of {BYTES // 1000**2} MB took {took[0]:.1f} to {took[-1]:.1f} ms"
            print(f"preflight: {COUNT} nodes are fit; {text}", flush=True)
        verdict = "; ".join(
            f"node {node} ({self.hosts[node]}), which {why}" for node, why in sorted(self.unfit.items())
        )
        conclude(verdict)
        self.ask(self.found, LIMIT["gloo"], verdict=verdict)
        return verdict


def conclude(verdict: str) -> None:
    """Leave the sentence for the job script, whole or not at all."""
    part = FOLDER / "preflight.part"
    part.write_text(f"{verdict}\n")
    part.replace(FOLDER / "preflight")


def test(gpus: int) -> str:
    """Return which nodes are not fit and why, or "". Raises OSError or RuntimeError about this one."""
    problems = list(own_problems(gpus))
    if COUNT == 1:
        if problems:
            raise OSError(" and ".join(problems))
        return ""
    if RANK == 0:
        server = socket.create_server(("", PORT), backlog=COUNT)  # before torch, whose import may take long
    line = reach()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    import torch
    import torch.distributed as dist

    part = (dist, problems, "nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo")
    if RANK == 0:
        made: Any = {"is_master": True, "wait_for_workers": False, "master_listen_fd": server.detach()}
        store = dist.TCPStore(*MASTER, **made)  # type: ignore[attr-defined]
        threading.Thread(target=take_part, args=part, daemon=True).start()
        return Conductor(store).conduct()
    verdict = take_part(*part)
    line.settimeout(LIMIT["nccl"])
    with suppress(OSError):
        line.recv(1)  # until node 0 has closed the port, which the ranks will use
    return verdict


def main() -> None:
    parser = argparse.ArgumentParser(description="Test whether the nodes of a job are fit for a training.")
    parser.add_argument("--gpus", type=int, default=0, help="of each node, at least (%(default)s)")
    args = parser.parse_args()
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return
    try:
        verdict = test(args.gpus)
    except (OSError, ImportError, RuntimeError) as error:
        why = ("" if isinstance(error, OSError) else "cannot take part: ") + str(error).partition("\n")[0]
        verdict = f"node {RANK} ({HOST}), which {why}"
        (FOLDER / f"node-{RANK}.unfit").write_text(f"{HOST} {why}\n")
        if RANK == 0:
            conclude(verdict)
        end = time.monotonic() + JOIN
        while FOLDER / "preflight" not in FOLDER.iterdir() and time.monotonic() < end:
            time.sleep(0.2)  # node 0 says whose fault it is
    if verdict:
        print(f"preflight.py: {verdict}", file=sys.stderr)
    sys.stdout.flush()
    os._exit(bool(verdict))  # whatever thread hangs


if __name__ == "__main__":
    main()
