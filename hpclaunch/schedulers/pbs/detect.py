"""How PBS Pro or OpenPBS describes its machine: `qstat -Bf`, `qstat -Qf` and `pbsnodes -a` as JSON.

https://github.com/openpbs/openpbs/tree/master/doc/man1: qstat, and man8: pbsnodes, pbs_queue_attributes (man7).
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any

from hpclaunch.errors import SchedulerError
from hpclaunch.schedulers.command import call
from hpclaunch.schedulers.machine import SECONDS, WORD, YEAR, Kind, Machine, Part, Value, commonest, my_groups, user
from hpclaunch.schedulers.values import pbs_gb, pbs_seconds
from hpclaunch.schedulers.walltime import clock

Attributes = Mapping[str, Any]
_AMOUNTS = {"ncpus", "ngpus", "mem", "vmem", "mpiprocs", "ompthreads", "nodect"}
_RESERVATION = re.compile(r"[RSM]\d+")
_OPEN_QUESTIONS = (
    "# Decide: file systems that a job must name to see them, if the site has such a rule.",
    "# storage: []",
    "# Decide: may jobs submit jobs? If qsub fails on compute nodes, this submits all attempts at once.",
    "# resubmit: false",
    "# PBS starts jobs with umask 077: colleagues cannot read the logs.",
    '# umask: "027"',
)


def ask() -> Machine:
    """Ask the server for itself, its queues and its nodes. Raises SchedulerError."""
    source, servers = _ask("Server", "qstat", "-B", "-f")
    queues = _ask("Queue", "qstat", "-Q", "-f")[1]
    if not queues:
        raise SchedulerError("qstat -Q names no queue; may you ask PBS from this host?")
    vnodes = _ask("nodes", "pbsnodes", "-a")[1]
    server = next(iter(servers.values()), {})
    values = {"poll": Value("00:00:30", "Decide: how often the site lets a program ask qstat")}
    if vnodes and all("excl" in str(vnode.get("sharing")) for vnode in vnodes.values()):
        values["multi_node"] = Value("exclusive", "pbsnodes: sharing, jobs get whole nodes")
    for name, holder in {"the server": server, **queues}.items():
        if given := _table(holder, "resources_default").get("mem") or _table(holder, "default_chunk").get("mem"):
            values.setdefault("ask_memory", Value(True, f"qstat: {name} gives {given} to jobs that request none"))
    notes = ["This PBS forgets jobs at their end (no job_history_enable): hpclaunch relies on their run folders."]
    return Machine(
        scheduler="pbs",
        source=source,
        default_partition=Value(str(server.get("default_queue")), "qstat -Bf: default_queue"),
        partitions={name: _unusable(name, queues) or _part(name, queues, vnodes, server) for name in queues},
        values=values,
        notes=[] if server.get("job_history_enable") == "True" else notes,
        open_questions=_OPEN_QUESTIONS,
    )


def _ask(key: str, *words: str) -> tuple[str, dict[str, Attributes]]:
    """Return who answers, and the objects under `key`."""
    answer = call([*words, "-F", "json"], seconds=SECONDS).stdout
    try:
        document = json.loads(answer, strict=False)
        source = f"PBS {document.get('pbs_version', '')} on server {document.get('pbs_server', '')}"
    except (ValueError, AttributeError):
        raise SchedulerError(f"{' '.join(words)}: its answer is no JSON; PBS Pro 14 or OpenPBS is needed") from None
    return source, {name: value for name, value in _table(document, key).items() if isinstance(value, dict)}


def _table(holder: Attributes, key: str) -> Attributes:
    """Return a part of an answer that should be a table, or an empty one if it is not."""
    found = holder.get(key)
    return found if isinstance(found, dict) else {}


def _unusable(name: str, queues: Mapping[str, Attributes]) -> str | None:
    """Return why this user does not name a queue, or None if they do."""
    queue = queues[name]
    routes = [route for route, other in queues.items() if name in _destinations(other)]
    reasons = {
        "a profile's names have no such characters": not WORD.match(name),
        "a reservation": _RESERVATION.fullmatch(name),
        "enabled=False, it takes no jobs": queue.get("enabled") == "False",
        f"jobs reach it through {', '.join(routes)}": routes,
        "from_route_only=True": queue.get("from_route_only") == "True",
        "not for you, see its acl_users and acl_groups": _closed(queue, "user", {user()})
        or _closed(queue, "group", my_groups()),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _closed(queue: Attributes, kind: str, mine: set[str]) -> bool:
    """Tell whether a list like `+alice@*,bob,-carol` has none of these names."""
    listed = str(queue.get(f"acl_{kind}s", "")).split(",")
    known = {entry.strip().lstrip("+").split("@")[0] for entry in listed}
    return queue.get(f"acl_{kind}_enable") == "True" and known.isdisjoint({*mine, "*"})


def _destinations(queue: Attributes) -> list[str]:
    """List where a routing queue sends jobs, without the server's name and without reservations."""
    listed = [entry.strip().split("@")[0] for entry in str(queue.get("route_destinations", "")).split(",")]
    return [name for name in listed if name and not _RESERVATION.fullmatch(name)]


def _part(name: str, queues: Mapping[str, Attributes], vnodes: Mapping[str, Attributes], server: Attributes) -> Part:
    """Draft a queue, a routing one with the nodes and the limits of the queues behind it."""
    behind = {other: queues[other] for other in _destinations(queues[name]) if other in queues} or {name: queues[name]}
    nodes: dict[str, Kind] = {}
    for other, queue in behind.items():
        nodes |= _nodes(other, queue, vnodes)
    kind, notes = commonest(nodes) if nodes else (Kind(0), [])
    if name not in behind:
        notes.append(f"A route to {', '.join(behind)}, not to be named themselves")
    for key, value in _table(queues[name], "resources_min").items():
        if _count(value) > 1:
            notes.append(f"Decide: min_cores; the queue has resources_min.{key}={value}")
    if not nodes:
        notes.append("Decide: which nodes serve it is not known; add cores_per_node, gpus_per_node, mem_gb_per_node")
    values = kind.values("pbsnodes: resources_available")
    limits = [_limits([server, queues[name], queue], kind) for queue in behind.values()]
    return Part(values | _tiers(limits, f"qstat -Bf, qstat -Qf {' '.join(dict.fromkeys([name, *behind]))}"), notes)


def _nodes(name: str, queue: Attributes, vnodes: Mapping[str, Attributes]) -> dict[str, Kind]:
    """Return the hosts that serve a queue; one may be several vnodes."""
    hosts: dict[str, Kind] = {}
    tags = (str(_table(vnode, "resources_available").get("Qlist")).split(",") for vnode in vnodes.values())
    if not _table(queue, "default_chunk") and any(name in tag for tag in tags):  # a site's tag: whom a node serves
        queue = {**queue, "default_chunk": {"Qlist": name}}
    for vnode, attributes in vnodes.items():
        have = _table(attributes, "resources_available")
        if _serves(attributes, have, name, queue):
            host = str(have.get("host", vnode))
            other = hosts.get(host, Kind(0))
            cores, gpus = other.cores + _count(have.get("ncpus")), other.gpus + _count(have.get("ngpus"))
            hosts[host] = Kind(cores, gpus, mem_gb=other.mem_gb + _gigabytes(have.get("mem")))
    needs_gpu = _count(_table(queue, "resources_min").get("ngpus"))
    return {host: kind for host, kind in hosts.items() if kind.cores and (kind.gpus or not needs_gpu)}


def _serves(attributes: Attributes, have: Attributes, name: str, queue: Attributes) -> bool:
    """Tell whether a vnode runs jobs of a queue: by its `queue`, else by what the queue's chunks ask for by default."""
    if "queue" in attributes or queue.get("hasnodes") == "True":
        return bool(attributes.get("queue") == name)
    chunk = _table(queue, "default_chunk")
    wanted = {key: value for key, value in chunk.items() if isinstance(value, str) and key not in _AMOUNTS}
    return all(value in str(have.get(key, "False")).split(",") for key, value in wanted.items())


def _count(value: Any) -> int:
    return value if isinstance(value, int) and 0 < value < 10**6 else 0


def _gigabytes(size: Any) -> int:
    """Return whole GB of sizes like `395264000kb`, 1 GB being 2**30 bytes as in -l mem; 0 if it is none."""
    with suppress(ValueError):
        return int(pbs_gb(str(size)))
    return 0


def _limits(holders: Sequence[Attributes], kind: Kind) -> tuple[float, float]:
    """Return the most cores and the longest walltime of a job, where the last of the holders counts; inf is no limit.

    A limit on nodes or GPUs is one on cores if a node's size is known.
    """
    limits = {key: value for holder in holders for key, value in _table(holder, "resources_max").items()}
    shares = {"ncpus": 1.0, "nodect": float(kind.cores), "ngpus": kind.cores / kind.gpus if kind.gpus else 0.0}
    sizes = [int(cores) for key, share in shares.items() if (cores := _count(limits.get(key)) * share)]
    seconds = 0
    with suppress(ValueError):
        seconds = pbs_seconds(str(limits.get("walltime")))
    return min(sizes, default=inf), seconds if 0 < seconds < YEAR else inf


def _tiers(limits: Iterable[tuple[float, float]], source: str) -> dict[str, Value]:
    """Return the most cores and the walltime by size; a job fits any queue that takes its size."""
    tiers: list[Value] = []
    longest = 0.0
    ranked = sorted(limits, reverse=True)
    for most, seconds in ranked:
        if longest < seconds < inf:
            size = {"max_cores": most} if tiers else {}  # the partition's max_cores refuses what is larger
            tiers.insert(0, Value(size | {"max_walltime": clock(int(seconds))}, source))
        longest = max(longest, seconds)
    values = {"max_cores": Value(ranked[0][0], source)} if ranked[0][0] < inf else {}
    return values | ({"walltime": Value(tiers)} if tiers else {})
