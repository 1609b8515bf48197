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
BACKENDS = ("nccl", "gloo", "mpi", "ucc", "xccl")
LOCAL_BYTES = 64 * 1024**2  # well above any cache; less where --max-bytes is less


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


def variable(name: str, default: int) -> int:
    """Return a number of the launch contract."""
    return int(os.environ.get(name) or default)


def choose_backend(asked: str | None) -> str:
    """Return nccl if each rank of this node has a GPU, else gloo. Raises ValueError if torch does not have it."""
    per_node, gpus = variable("LOCAL_WORLD_SIZE", 1), torch.cuda.device_count()
    if asked is None:
        if 0 < gpus < per_node and variable("LOCAL_RANK", 0) == 0:  # a rank that sees only its own GPU looks like this
            seen = f"{per_node} ranks on this node, but each sees {gpus} GPU(s)"
            print(f"allreduce.py: {HOST}: {seen}: using gloo on the CPU; --backend nccl uses the GPUs", file=sys.stderr)
        return "nccl" if gpus >= per_node else "gloo"
    if not dist.is_backend_available(asked):
        raise ValueError(f"--backend {asked}: this torch has {', '.join(filter(dist.is_backend_available, BACKENDS))}")
    if asked == "nccl" and not gpus:
        raise ValueError(f"--backend nccl: no GPU on {HOST}; use --backend gloo")
    return asked


def meet(backend: str, seconds: float) -> torch.device:
    """Join the other ranks, or be the only one without a launcher; return this rank's device."""
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", variable("LOCAL_RANK", 0) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    timeout = timedelta(seconds=seconds)
    if (world_size := variable("WORLD_SIZE", 1)) == 1:
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1, timeout=timeout)
    elif "RANK" in os.environ:
        dist.init_process_group(backend, timeout=timeout)
    else:
        raise ValueError(f"WORLD_SIZE is {world_size}, RANK is not set: use a launcher that starts every rank, not one")
    return device


def timed(work: Callable[[], object], device: torch.device, repeats: int) -> list[float]:
    """Return the seconds of each repeat on this rank."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return times


def find_slowest(device: torch.device, size: int, repeats: int) -> dict[str, Any]:
    """Let all ranks do the same local work, and return the slowest rank."""
    total, part = torch.zeros(size // 4, device=device), torch.zeros(size // 4, device=device)
    timed(lambda: total.add_(part), device, 5)  # warm
    dist.all_reduce(part[:1])  # all begin together, since they share their host's memory
    own = statistics.median(timed(lambda: total.add_(part), device, repeats))
    reports: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(reports, (own, HOST))
    slowest = max(range(len(reports)), key=lambda rank: reports[rank][0])
    return {
        "rank": slowest,
        "host": reports[slowest][1],
        "bytes": size,
        "local_us": reports[slowest][0] * 1e6,
        "median_local_us": statistics.median(report[0] for report in reports) * 1e6,
        "hosts": len({report[1] for report in reports}),
    }


def measure(device: torch.device, size: int, repeats: int, most_seconds: float) -> dict[str, Any]:
    """Time all-reduces of `size` bytes. Raises ArithmeticError if a sum is wrong."""
    ranks = dist.get_world_size()
    buffer = torch.ones(size // 4, device=device)
    dist.all_reduce(buffer)
    if not bool((buffer == ranks).all()):
        raise ArithmeticError(f"all-reduce of {show_bytes(size)}: the sum of {ranks} ones is not {ranks}")
    buffer.zero_()
    warm = mean_over_ranks(timed(lambda: dist.all_reduce(buffer), device, 3), device)
    # A slow network needs fewer repeats; the mean is the same on all ranks.
    repeats = max(3, min(repeats, int(most_seconds / max(warm))))
    latency = statistics.median(mean_over_ranks(timed(lambda: dist.all_reduce(buffer), device, repeats), device))
    algbw = size / latency / 1e9
    return {
        "bytes": size,
        "repeats": repeats,
        "latency_us": latency * 1e6,
        "algbw_gb_per_s": algbw,
        "busbw_gb_per_s": algbw * 2 * (ranks - 1) / ranks,
    }


def mean_over_ranks(times: list[float], device: torch.device) -> list[float]:
    """Return each repeat's mean time, the same on all ranks to the last bit because rank 0 sends it."""
    means = torch.tensor(times, dtype=torch.float64, device=device)
    dist.all_reduce(means)
    dist.broadcast(means, src=0)
    mean: list[float] = (means / dist.get_world_size()).tolist()
    return mean


def describe(backend: str, device: torch.device) -> dict[str, Any]:
    """Return what is measured."""
    return {
        "world_size": dist.get_world_size(),
        "backend": backend,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
    }


def run(args: argparse.Namespace, backend: str) -> None:
    """Measure all sizes; rank 0 prints a line for each as it is done."""
    device = meet(backend, args.seconds)
    first = dist.get_rank() == 0
    out = sys.stderr if args.json == "-" else sys.stdout

    def say(text: str) -> None:
        if first:
            print(text, file=out, flush=True)

    slowest = find_slowest(device, min(args.max_bytes, LOCAL_BYTES), args.repeats)
    result = describe(backend, device) | {"hosts": slowest.pop("hosts"), "slowest": slowest, "sizes": []}
    hosts = f"{result['hosts']} {'host' if result['hosts'] == 1 else 'hosts'}"
    where = f"world size {result['world_size']} on {hosts}, {result['device']}"
    say(f"all-reduce of float32 by {backend}: {where}, torch {result['torch']}")
    say(f"{'size':>8}  {'repeats':>7}  {'latency us':>11}  {'algbw GB/s':>10}  {'busbw GB/s':>10}")
    size = args.min_bytes
    while size <= args.max_bytes:
        row = measure(device, size, args.repeats, most_seconds=3)
        result["sizes"].append(row)
        say(
            f"{show_bytes(size):>8}  {row['repeats']:>7}  {row['latency_us']:>11.1f}  "
            f"{row['algbw_gb_per_s']:>10.3f}  {row['busbw_gb_per_s']:>10.3f}"
        )
        size *= args.factor
    ratio = slowest["local_us"] / slowest["median_local_us"]
    took = f"{slowest['local_us']:.1f} us to add {show_bytes(slowest['bytes'])} of its own"
    say(f"slowest rank: {slowest['rank']} on {slowest['host']}, {took}, {ratio:.2f} x the median rank")
    if first and args.json:
        text = json.dumps(result, indent=2) + "\n"
        if args.json == "-":
            sys.stdout.write(text)
        else:
            Path(args.json).write_text(text)
    dist.all_reduce(torch.zeros(1, device=device))  # the first to leave would have the launcher end the others
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure all-reduce between the ranks, and name the slowest.")
    parser.add_argument("--backend", choices=BACKENDS, help="(nccl if each rank has a GPU, else gloo)")
    parser.add_argument("--min-bytes", type=parse_bytes, default="1K", metavar="SIZE", help="(%(default)s)")
    parser.add_argument("--max-bytes", type=parse_bytes, default="256M", metavar="SIZE", help="(%(default)s)")
    parser.add_argument("--factor", type=int, default=4, help="from one size to the next (%(default)s)")
    parser.add_argument(
        "--repeats", type=int, default=20, help="of each size at most, after 4 to warm up (%(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=120, help="how long to wait for other ranks (%(default)g)")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write the result to FILE, or to stdout")
    args = parser.parse_args()
    if args.factor < 2 or args.repeats < 3 or args.min_bytes > args.max_bytes:
        parser.error("--factor must be at least 2, --repeats at least 3, --max-bytes no less than --min-bytes")

    rank = os.environ.get("RANK", "0")
    who = f"allreduce.py: rank {rank} on {HOST}"
    try:
        if args.json not in (None, "-") and rank == "0":
            Path(args.json).touch()  # fail before the measurement
        run(args, choose_backend(args.backend))
        code = 0
    except OSError as error:
        print(f"{who}: {error.filename}: {error.strerror}", file=sys.stderr)
        code = 1
    except (ValueError, RuntimeError, ArithmeticError) as error:
        print(f"{who}: {error}", file=sys.stderr)
        code = 1
    # A normal end sometimes aborts after all is done (torch 2.13, gloo: "terminate called without an active
    # exception"), and the launcher takes the job for a failed one.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
