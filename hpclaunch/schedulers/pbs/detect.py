"""How PBS Pro or OpenPBS describes its machine: `qstat -Bf`, `qstat -Qf` and `pbsnodes -a` as JSON.

https://github.com/openpbs/openpbs/tree/master/doc/man1: qstat, and man8: pbsnodes, pbs_queue_attributes (man7).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from hpclaunch.errors import SchedulerError
from hpclaunch.schedulers.command import call
from hpclaunch.schedulers.machine import (
    SECONDS,
    WORD,
    Kind,
    Machine,
    Node,
    Part,
    Value,
    gathered,
    grouped,
    kind_notes,
    kind_values,
    names,
    part_name,
)
from hpclaunch.schedulers.pbs.limits import closed_to_me, limits, span, table
from hpclaunch.schedulers.values import pbs_gb

Attributes = Mapping[str, Any]
_AMOUNTS = {"ncpus", "ngpus", "mem", "vmem", "mpiprocs", "ompthreads", "nodect"}
_EXCLUSIVE = {"default_excl", "force_excl", "default_exclhost", "force_exclhost"}
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
    answer = _json(["qstat", "-B", "-f", "-F", "json"])
    server = next(iter(_members(answer, "Server").values()), {})
    queues = _members(_json(["qstat", "-Q", "-f", "-F", "json"]), "Queue")
    if not queues:
        raise SchedulerError("qstat -Q names no queue; may you ask PBS from this host?")
    vnodes = _members(_json(["pbsnodes", "-a", "-F", "json"]), "nodes")
    parts, left_out = gathered(
        queues, lambda name: _unusable(name, queues), lambda name: _parts(name, queues, vnodes, server)
    )
    return Machine(
        scheduler="pbs",
        source=f"PBS {answer.get('pbs_version', '')} on server {answer.get('pbs_server', '')}",
        default_partition=_default(server, parts),
        parts=parts,
        values=_site_values(server, queues, vnodes),
        notes=_notes_on(server),
        open_questions=_OPEN_QUESTIONS,
        left_out=left_out,
    )


def _json(words: list[str]) -> dict[str, Any]:
    answer = call(words, seconds=SECONDS).stdout
    try:
        document = json.loads(answer, strict=False)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise SchedulerError(f"{' '.join(words)}: its answer is no JSON; PBS Pro 14 or OpenPBS is needed")
    return document


def _members(document: Attributes, key: str) -> dict[str, Attributes]:
    found = document.get(key)
    return {name: value for name, value in found.items() if isinstance(value, dict)} if isinstance(found, dict) else {}


def _unusable(name: str, queues: Mapping[str, Attributes]) -> str | None:
    """Return why this user does not name a queue, or None if they do."""
    queue = queues[name]
    routes = [route for route, other in queues.items() if name in _destinations(other)]
    reasons = {
        "a profile's names have no such characters": not WORD.match(name),
        "a reservation": re.fullmatch(r"[RSM]\d+", name),
        "enabled=False, it takes no jobs": queue.get("enabled") == "False",
        f"jobs reach it through {', '.join(routes)}": routes,
        "from_route_only=True": queue.get("from_route_only") == "True",
        "not for you, see its acl_users and acl_groups": closed_to_me(queue),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _destinations(queue: Attributes) -> list[str]:
    """List where a routing queue sends jobs, without the server's name and without reservations."""
    listed = str(queue.get("route_destinations", "")).split(",")
    return [name for entry in listed if (name := entry.strip().split("@")[0]) and not re.fullmatch(r"[RSM]\d+", name)]


def _executing(name: str, queues: Mapping[str, Attributes], passed: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the queues in which jobs of this one run: itself, or those that it routes to."""
    queue = queues.get(name, {})
    if not _destinations(queue):
        if name in queues:
            yield name
        return
    for other in _destinations(queue):
        if other not in passed:
            yield from _executing(other, queues, passed | {name})


def _parts(
    name: str, queues: Mapping[str, Attributes], vnodes: Mapping[str, Attributes], server: Attributes
) -> Iterator[Part]:
    """Draft a queue, and a second partition if only some of its nodes have GPUs."""
    behind = list(dict.fromkeys(_executing(name, queues)))
    serving = {other: _nodes(other, queues[other], vnodes) for other in behind}
    everywhere = list({node.name: node for nodes in serving.values() for node in nodes}.values())
    notes = [
        f"{key}={queues[name][key]}" for key in ("max_run", "max_queued", "started") if _limited(queues[name], key)
    ]
    if behind != [name]:
        notes.append(f"A route to {', '.join(behind) or 'nowhere'}, not to be named themselves")
    if not everywhere:
        unknown = "Decide: which nodes serve it is not known; add cores_per_node, gpus_per_node, mem_gb_per_node"
        spans = [span(other, queues, name, server, Kind(0)) for other in behind]
        yield Part(name, limits(spans), [*notes, unknown])
        return
    if not any(_tied(queues[other], other, vnodes) for other in behind):
        notes.append("Decide: nothing ties nodes to this queue, so its sizes are a guess: those of most nodes")
    found = grouped(everywhere)
    for group in found:
        if group.suffix is None:
            continue
        spans = [
            span(other, queues, name, server, group.kind)
            for other in behind
            if any(node.kind == group.kind for node in serving[other])
        ]
        values = {"directives": Value([f"-q {name}"], "the commonest kind of node is above")} if group.suffix else {}
        values |= kind_values(group.kind, f"pbsnodes {group.nodes[0].name}: resources_available")
        own = [names(group.nodes)] if group is not found[0] else [*kind_notes(found), *notes]
        yield Part(part_name(name, group, queues), values | limits(spans), own)


def _limited(queue: Attributes, key: str) -> bool:
    return key in queue and queue[key] != "True"


def _nodes(name: str, queue: Attributes, vnodes: Mapping[str, Attributes]) -> list[Node]:
    """Return the hosts that serve a queue."""
    hosts: dict[str, list[Attributes]] = {}
    for vnode, attributes in vnodes.items():
        have = table(attributes, "resources_available")
        if _serves(attributes, have, name, queue):
            hosts.setdefault(str(have.get("host", vnode)), []).append(have)
    most, least = (table(queue, f"resources_{end}").get("ngpus") for end in ("max", "min"))
    nodes = []
    for host, shares in hosts.items():  # a host may be several vnodes
        kind = Kind(
            cores=sum(_count(have.get("ncpus")) for have in shares),
            gpus=sum(_count(have.get("ngpus")) for have in shares),
            gpu=next(filter(None, map(_model, shares)), ""),
            mem_gb=gigabytes(*(have.get("mem") for have in shares)),
        )
        if most == 0:
            kind = replace(kind, gpus=0, gpu="")
        if kind.cores and not (_count(least) and not kind.gpus):
            nodes.append(Node(host, kind if kind.gpus else replace(kind, gpu="")))
    return nodes


def _serves(attributes: Attributes, have: Attributes, name: str, queue: Attributes) -> bool:
    """Tell whether a vnode runs jobs of a queue: by its `queue`, else by what the queue's chunks ask for by default."""
    if "queue" in attributes or queue.get("hasnodes") == "True":
        return bool(attributes.get("queue") == name)
    return all(_has(have.get(key), wanted) for key, wanted in _wanted(queue).items())


def _wanted(queue: Attributes) -> dict[str, str]:
    chunk = table(queue, "default_chunk")
    return {key: str(value) for key, value in chunk.items() if key not in _AMOUNTS and isinstance(value, str)}


def _has(value: Any, wanted: str) -> bool:
    """Compare as PBS does: a list holds the word; a boolean that is not set is false."""
    return wanted in str(value).split(",") or (value is None and wanted == "False")


def _tied(queue: Attributes, name: str, vnodes: Mapping[str, Attributes]) -> bool:
    if queue.get("hasnodes") == "True" or any(value.get("queue") == name for value in vnodes.values()):
        return True
    return any(value != "False" for value in _wanted(queue).values()) or "ngpus" in table(queue, "resources_min")


def _count(value: Any) -> int:
    return value if isinstance(value, int) and 0 < value < 10**6 else 0


def _model(have: Attributes) -> str:
    """Return the GPU's model, whose name differs by site: gpu_type, gputype, accelerator_model."""
    for key, value in have.items():
        if isinstance(value, str) and re.search(r"(gpu|accelerator)_?(type|model|name)", key, re.IGNORECASE):
            return " ".join(value.split())
    return ""


def gigabytes(*amounts: Any) -> int:
    """Return whole GB of sizes like `395264000kb`, 1 GB being 2**30 bytes as in -l mem."""
    total = 0.0
    for amount in amounts:
        with suppress(ValueError):
            total += pbs_gb(str(amount))
    return int(total)


def _default(server: Attributes, parts: Sequence[Part]) -> Value:
    name = server.get("default_queue")
    if any(part.name == name for part in parts):
        return Value(name, "qstat -Bf: default_queue")
    return Value(parts[0].name, "Decide: the server has no default queue for you, this is the first")


def _site_values(
    server: Attributes, queues: Mapping[str, Attributes], vnodes: Mapping[str, Attributes]
) -> dict[str, Value]:
    """Return the keys of the whole site."""
    values = {}
    if vnodes and all(str(vnode.get("sharing")) in _EXCLUSIVE for vnode in vnodes.values()):
        values["multi_node"] = Value("exclusive", "pbsnodes: sharing, jobs get whole nodes")
    for name, holder in {"the server": server, **queues}.items():
        for key in ("resources_default", "default_chunk"):
            if given := table(holder, key).get("mem"):
                said = f"qstat: {name} gives {given} to jobs that request none ({key})"
                values.setdefault("ask_memory", Value(True, said))
    values["poll"] = Value("00:00:30", "Decide: how often the site lets a program ask qstat")
    return values


def _notes_on(server: Attributes) -> list[str]:
    if server.get("job_history_enable") == "True" or not server:
        return []
    return ["This PBS forgets jobs at their end (no job_history_enable): hpclaunch relies on their run folders."]
