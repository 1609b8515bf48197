"""Measure all-reduce between the ranks, and name the slowest: run this first on a new site.

    hpclaunch run --nodes 2 --tasks-per-node 2 --workload allreduce      two emulated nodes on this machine
    hpclaunch submit --site gadi --nodes 2 --workload allreduce          a job
    hpclaunch submit --site gadi --nodes 2 -- python allreduce.py --max-bytes 1G --json result.json
    torchrun --nproc-per-node 4 allreduce.py                             by hand

The time of one all-reduce is the mean over the ranks of what each measures around it, as in nccl-tests; the latency
is the median of the repeats. algbw is bytes / latency, busbw is algbw * 2 (n - 1) / n for n ranks, which can be
compared with the speed of the links (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). GB is 10^9
bytes.

The all-reduce does not show the slowest rank, because all wait for it. So each rank first adds up buffers of its own,
the all-reduce's local work, all ranks at the same time and none waiting for another: the slowest is the one with the
longest median. That shows a slow processor, GPU or memory; a slow link shows only in busbw.
"""

import argparse
import json
import os
import re
import socket
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

try:
    import torch
    import torch.distributed as dist
    from torch.distributed import HashStore  # type: ignore[attr-defined]
except ImportError as error:
    sys.exit(f"allreduce.py: {sys.executable}: {error}; load the site's module, or an environment that has torch")

HOST = socket.gethostname()
LOCAL_BYTES = 64 * 1024**2  # well above any cache; less if --max-bytes is less
REPEATS = 20


def parse_bytes(text: str) -> int:
    """Return the bytes that `256M` or `1024` mean; K, M and G are powers of 1024, as in nccl-tests."""
    found = re.fullmatch(r"(\d+)([KMG]?)B?", text.strip().upper())
    size: int = int(found[1]) * 1024 ** " KMG".index(found[2] or " ") if found else 0
    if not size or size % 4:  # of a float32
        raise argparse.ArgumentTypeError(f"{text!r} is not a multiple of 4 bytes; use 1024, 64K, 256M or 1G")
    return size


def show_bytes(size: int) -> str:
    """Return a size in the form that parse_bytes reads."""
    power = max(power for power in range(4) if size % 1024**power == 0)
    return f"{size // 1024**power} {' KMG'[power].strip()}B"


def meet(backend: str | None, seconds: float) -> torch.device:
    """Join the other ranks, or be the only one without a launcher; return this rank's device.

    The backend is nccl, on Intel's GPUs xccl, if each rank of this node has a GPU, else gloo.
    """
    kind, native = ("xpu", "xccl") if hasattr(torch, "xpu") and torch.xpu.is_available() else ("cuda", "nccl")
    gpus, per_node = getattr(torch, kind).device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    backend = backend or (native if gpus >= per_node else "gloo")
    if backend in ("nccl", "xccl") and not (gpus and backend == native):
        raise ValueError(f"--backend {backend}: no GPU for it on {HOST}; use --backend {native if gpus else 'gloo'}")
    device = torch.device("cpu")
    if backend == native:
        device = torch.device(kind, int(os.environ.get("LOCAL_RANK", "0")) % gpus)
        getattr(torch, kind).set_device(device)
    is_alone = os.environ.get("WORLD_SIZE", "1") == "1"
    alone: Any = {"store": HashStore(), "rank": 0, "world_size": 1} if is_alone else {}
    dist.init_process_group(backend, timeout=timedelta(seconds=seconds), **alone)
    return device


def timed(work: Callable[[], object], device: torch.device, repeats: int) -> list[float]:
    """Return the seconds of each repeat on this rank."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        if device.type != "cpu":
            getattr(torch, device.type).synchronize()
        times.append(time.perf_counter() - start)
    return times


def find_slowest(device: torch.device, size: int) -> tuple[str, int]:
    """Let all ranks do the same local work; return a line about the slowest one, and the number of hosts."""
    total, part = torch.zeros(size // 4, device=device), torch.zeros(size // 4, device=device)
    timed(lambda: total.add_(part), device, 5)  # warm
    dist.all_reduce(part[:1])  # all begin together, since they share their host's memory
    own = 1e6 * statistics.median(timed(lambda: total.add_(part), device, REPEATS))
    reports: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(reports, (own, dist.get_rank(), HOST))
    longest, rank, host = max(reports)
    ratio = longest / statistics.median(report[0] for report in reports)
    took = f"{longest:.1f} us to add {show_bytes(size)} of its own, {ratio:.2f} x the median rank"
    return f"slowest rank: {rank} on {host}, {took}", len({report[2] for report in reports})


def measure(device: torch.device, size: int) -> tuple[int, float]:
    """Return how often an all-reduce of `size` bytes was timed, and its seconds, the same on all ranks.

    Raises ArithmeticError if a sum is wrong.
    """
    buffer = torch.ones(size // 4, device=device)
    dist.all_reduce(buffer)
    if not bool((buffer == dist.get_world_size()).all()):
        raise ArithmeticError(f"all-reduce of {show_bytes(size)}: the sum of {dist.get_world_size()} ones is wrong")
    buffer.zero_()

    def means(repeats: int) -> list[float]:
        own = timed(lambda: dist.all_reduce(buffer), device, repeats)
        times = torch.tensor(own, dtype=torch.float64, device=device)
        dist.all_reduce(times)
        dist.broadcast(times, src=0)  # the same to the last bit
        mean: list[float] = (times / dist.get_world_size()).tolist()
        return mean

    repeats = max(3, min(REPEATS, int(3 / max(means(4)[1:]))))  # a slow network needs fewer, 3 seconds' worth
    return repeats, statistics.median(means(repeats))


def run(args: argparse.Namespace) -> None:
    """Measure all sizes; rank 0 prints a line for each as it is done."""
    device = meet(args.backend, args.seconds)
    ranks = dist.get_world_size()

    def say(text: str) -> None:
        if dist.get_rank() == 0:
            print(text, flush=True)

    slowest, hosts = find_slowest(device, min(args.max_bytes, LOCAL_BYTES))
    where = f"world size {ranks} on {hosts} {'host' if hosts == 1 else 'hosts'}"
    name = "cpu" if device.type == "cpu" else getattr(torch, device.type).get_device_name(device)
    say(f"all-reduce of float32 by {dist.get_backend()}: {where}, {name}, torch {torch.__version__}")
    say(f"{'size':>8}  {'repeats':>7}  {'latency us':>11}  {'algbw GB/s':>10}  {'busbw GB/s':>10}")
    size, rows = 1024, []
    while size <= args.max_bytes:
        repeats, latency = measure(device, size)
        algbw = size / latency / 1e9
        busbw = algbw * 2 * (ranks - 1) / ranks
        say(f"{show_bytes(size):>8}  {repeats:>7}  {latency * 1e6:>11.1f}  {algbw:>10.3f}  {busbw:>10.3f}")
        row = {"bytes": size, "repeats": repeats, "latency_us": latency * 1e6}
        rows.append(row | {"algbw_gb_per_s": algbw, "busbw_gb_per_s": busbw})
        size *= 4
    say(slowest)
    if args.json and dist.get_rank() == 0:
        result = {"world_size": ranks, "backend": dist.get_backend(), "device": name, "slowest": slowest, "sizes": rows}
        args.json.write_text(json.dumps(result, indent=2) + "\n")
    dist.all_reduce(torch.zeros(1, device=device))  # the first to leave would have the launcher end the others
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure all-reduce between the ranks, and name the slowest.")
    backends = ("nccl", "gloo", "mpi", "ucc", "xccl")
    parser.add_argument("--backend", choices=backends, help="(nccl or xccl if each rank has a GPU, else gloo)")
    parser.add_argument(
        "--max-bytes", type=parse_bytes, default="256M", metavar="SIZE", help="from 1 KB to this size (%(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=120, help="how long to wait for other ranks (%(default)g)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to FILE too")
    args = parser.parse_args()
    code = 0
    try:
        run(args)
    except (OSError, ValueError, RuntimeError, ArithmeticError) as error:
        print(f"allreduce.py: rank {os.environ.get('RANK', '0')} on {HOST}: {error}", file=sys.stderr)
        code = 1
    # A normal end sometimes aborts after all is done (torch 2.13, gloo: "terminate called without an active
    # exception"), and the launcher takes the job for a failed one.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
