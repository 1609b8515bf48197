"""What a job asks for with -l: values as the server checks them, and the chunks of nodes that they come to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from standin.pbs.refusal import Refusal
from standin.pbs.settings import Queue

# OpenPBS 23.06, seen: 4GB, 4gb and 4G are the same and 4 is four bytes; 1.5GB and 4GiB are refused.
SIZE = re.compile(r"\d+[kmgtp]?[bw]?", re.IGNORECASE)
WHOLE = re.compile(r"\d+")
TIME = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+)(?:\.(\d+))?")
TEXT = re.compile(r".+", re.DOTALL)
KNOWN = {
    "ncpus": WHOLE,
    "ngpus": WHOLE,
    "mpiprocs": WHOLE,
    "wd": WHOLE,  # a long, as Gadi's records show: `wd=true` is refused
    "mem": SIZE,
    "vmem": SIZE,
    "jobfs": SIZE,
    "walltime": TIME,
    "cput": TIME,
    "select": TEXT,
    "place": TEXT,
    "storage": TEXT,
    "software": TEXT,
    "other": TEXT,
}
PER_HOST = ("ncpus", "ngpus", "mem", "vmem", "jobfs", "mpiprocs")


@dataclass(frozen=True)
class Chunk:
    """A piece of one host, and its lines in the nodefile."""

    ncpus: int
    ngpus: int
    lines: int


def split(text: str) -> list[tuple[str, str]]:
    """Return the pairs of one -l option; a name without a value has the value "".

    Raises ValueError: an empty name, as after a trailing comma, or nothing after the equals sign.
    """
    pairs = []
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not re.fullmatch(r"[A-Za-z][\w-]*", name) or (equals and not value) or name != name.strip():
            raise ValueError(item)
        pairs.append((name, value))
    return pairs


def seconds(text: str) -> int | None:
    """Return a walltime in seconds: 48:00 is 48 minutes and 1.5 is 2 s (OpenPBS 23.06, seen); None is refused."""
    found = TIME.fullmatch(text)
    if not found:
        return None
    hours, minutes, rest, fraction = found.groups(default="0")
    return int(hours) * 3600 + int(minutes) * 60 + int(rest) + (int(fraction) > 0)


def clock(total: float) -> str:
    """Return seconds as HH:MM:SS."""
    return f"{int(total) // 3600:02}:{int(total) % 3600 // 60:02}:{int(total) % 60:02}"


def check(asked: Mapping[str, str]) -> None:
    """Raise Refusal as the server does for a value that a resource cannot have, and for chunks beside totals."""
    for name, value in asked.items():
        if name in KNOWN and not KNOWN[name].fullmatch(value):
            raise Refusal(f"Illegal attribute or resource value Resource_List.{name}", 166)
    if "select" in asked or "place" in asked:
        for name in PER_HOST:
            if name in asked:
                text = f'"-lresource=" cannot be used with "select" or "place", resource is: {name}'
                raise Refusal(text, 5)


def unknown(asked: Mapping[str, str]) -> bool:
    """Tell whether a resource that no queue has is requested, in a chunk or as a total."""
    inside = {item.partition("=")[0] for part in asked.get("select", "").split("+") for item in part.split(":")}
    return bool(({name for name in inside if name and not name.isdigit()} | set(asked)) - set(KNOWN))


def chunks(asked: Mapping[str, str], queue_name: str, queue: Queue, lines: str) -> list[Chunk]:
    """Return the chunks of a request, as PBS reads a select and as Gadi's hook reads totals.

    Raises Refusal: the hook rejects it, exit code 32.
    """
    found = _select(asked["select"]) if "select" in asked else _totals(asked, queue_name, queue, lines)
    total = sum(chunk.ncpus for chunk in found)
    _check_walltime(asked.get("walltime", "0"), total, queue_name, queue)
    return found


def _select(text: str) -> list[Chunk]:
    found = []
    for part in text.split("+"):
        count, _, rest = part.partition(":") if part[:1].isdigit() else ("1", "", part)
        pairs = dict(item.partition("=")[::2] for item in rest.split(":") if item)
        if not count.isdigit() or not all(KNOWN.get(name, TEXT).fullmatch(value) for name, value in pairs.items()):
            raise Refusal("Illegal attribute or resource value Resource_List.select", 166)
        chunk = Chunk(int(pairs.get("ncpus", 1)), int(pairs.get("ngpus", 0)), int(pairs.get("mpiprocs", 1)))
        found += [chunk] * int(count)
    return found


def _totals(asked: Mapping[str, str], name: str, queue: Queue, lines: str) -> list[Chunk]:
    ncpus, ngpus, cores = int(asked.get("ncpus", 1)), int(asked.get("ngpus", 0)), queue.cores_per_node
    if ngpus and not queue.gpus_per_node:
        raise _hook(name, f"there are no GPUs, you asked for ngpus={ngpus}")
    if queue.cpus_per_gpu and (ncpus != ngpus * queue.cpus_per_gpu or not ngpus):
        rule = f"ncpus must be {queue.cpus_per_gpu} times ngpus: ngpus={ngpus or 1} needs"
        raise _hook(name, f"{rule} ncpus={(ngpus or 1) * queue.cpus_per_gpu}, you asked for ncpus={ncpus}")
    if ncpus > cores and ncpus % cores:
        raise _hook(name, f"more than {cores} cpus come in whole nodes, multiples of {cores}; you asked for {ncpus}")
    nodes = max(1, ncpus // cores)
    ncpus, ngpus = ncpus // nodes, ngpus // nodes
    return [Chunk(ncpus, ngpus, {"cpu": ncpus, "node": 1, "gpu": max(ngpus, 1)}[lines])] * nodes


def _check_walltime(text: str, ncpus: int, name: str, queue: Queue) -> None:
    asked = seconds(text) or 0
    if queue.max_cores and ncpus > queue.max_cores:
        raise _hook(name, f"ncpus is at most {queue.max_cores}, you asked for {ncpus}")
    most = next((most for cores, most in queue.walltime if cores is None or ncpus <= cores), asked)
    if asked > most:
        raise _hook(name, f"walltime is at most {clock(most)} with ncpus={ncpus}, you asked for {clock(asked)}")


def _hook(queue_name: str, text: str) -> Refusal:
    return Refusal(f"Error: in queue {queue_name} {text}", 32)
