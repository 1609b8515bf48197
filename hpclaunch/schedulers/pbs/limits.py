"""The limits of PBS queues: walltime by size, and who may use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from hpclaunch.schedulers.machine import Kind, Value, clock, my_groups, user
from hpclaunch.schedulers.values import pbs_seconds

Attributes = Mapping[str, Any]
_MIN_NODES = "resources_min.nodect"


class Span(Struct, frozen=True):
    """A range of job sizes in cores, and its longest walltime; None is no limit."""

    queue: str
    least: int
    why_least: str
    most: int | None
    why_most: str
    seconds: int | None
    why_seconds: str


def span(name: str, queues: Mapping[str, Attributes], requested: str, server: Attributes, kind: Kind) -> Span:
    """Return the sizes that queue `name` takes of jobs submitted to the queue `requested`, on nodes of that kind.

    A queue's own limit counts before the server's.
    """
    most: list[tuple[int, str]] = []
    least: list[tuple[int, str]] = [(1, "")]
    lengths: list[tuple[int, str]] = []
    for queue in dict.fromkeys([name, requested]):
        own, base = table(queues[queue], "resources_max"), table(server, "resources_max")
        said = {key: f"qstat -Qf {queue}" if key in own else "qstat -Bf" for key in {**base, **own}}
        own = {**base, **own}
        most += [(n, f"{said[key]}: resources_max.{key}={own[key]}") for key, n in _in_cores(own, kind).items()]
        if length := seconds(own.get("walltime")):
            lengths.append((length, f"{said['walltime']}: resources_max.walltime"))
        smallest = table(queues[queue], "resources_min")
        if ncpus := _in_cores(smallest, kind).get("ncpus"):
            least.append((ncpus, f"qstat -Qf {queue}: resources_min.ncpus"))
        if (nodes := _in_cores(smallest, kind).get("nodect", 0)) > kind.cores:  # more than one node
            least.append((nodes - kind.cores + 1, f"qstat -Qf {queue}: {_MIN_NODES}={smallest['nodect']}"))
    nothing: tuple[None, str] = (None, "")
    return Span(name, *max(least), *(min(most) if most else nothing), *(min(lengths) if lengths else nothing))


def table(holder: Attributes, key: str) -> Attributes:
    """Return a part of an answer that should be a table, or an empty one if it is not."""
    found = holder.get(key)
    return found if isinstance(found, dict) else {}


def _in_cores(resources: Attributes, kind: Kind) -> dict[str, int]:
    """Return limits on ncpus, nodect and ngpus as cores; on nodes and GPUs only if a node's size is known."""
    share = {"ncpus": 1.0, "nodect": float(kind.cores), "ngpus": kind.cores / kind.gpus if kind.gpus else 0.0}
    counts = {key: resources.get(key) for key in share}
    return {
        key: int(count * share[key])
        for key, count in counts.items()
        if isinstance(count, int) and 1 <= count * share[key] < 10**9
    }


def limits(spans: Sequence[Span]) -> dict[str, Value]:
    """Return the keys of a profile: least and most cores, and the longest walltime by size."""
    values = {}
    smallest = min(spans, key=lambda span: span.least, default=None)
    if smallest and smallest.least > 1:
        values["min_cores"] = Value(smallest.least, smallest.why_least)
        if _MIN_NODES in smallest.why_least:
            values["unconfirmed"] = Value(["min_cores"], "PBS counts nodes, whose cores a job need not all ask for")
    largest = max(spans, key=lambda span: span.most or 10**9, default=None)
    if largest and largest.most:
        values["max_cores"] = Value(largest.most, largest.why_most)
    if tiers := _tiers(spans):
        values["walltime"] = Value(tiers)
    return values


def _tiers(spans: Sequence[Span]) -> list[Value]:
    """Return the longest walltime up to each size at which it changes, or nothing if there is no limit."""
    ends = sorted({span.most for span in spans if span.most} | {span.least - 1 for span in spans if span.least > 1})
    found: list[tuple[int | None, int | None, str]] = []
    for end, size in [*((end, end) for end in ends), (None, (ends[-1] if ends else 0) + 1)]:
        open_to = [span for span in spans if span.least <= size and (span.most is None or size <= span.most)]
        if not open_to:
            continue
        longest = max(open_to, key=lambda span: span.seconds or 10**9)
        if found and found[-1][1] == longest.seconds:
            found.pop()
        found.append((end, longest.seconds, longest.why_seconds or f"qstat -Qf {longest.queue}: no limit"))
    if all(seconds is None for _, seconds, _ in found):
        return []
    # max_cores refuses what is above the last size, so the last tier needs none.
    sized = [*found[:-1], (None, *found[-1][1:])]
    return [
        Value(({"max_cores": end} if end else {}) | {"max_walltime": clock(length)}, why) for end, length, why in sized
    ]


def seconds(value: Any) -> int | None:
    """Return the seconds of a walltime, or None if there is no limit."""
    try:
        return pbs_seconds(str(value)) or None
    except ValueError:
        return None


def closed_to_me(queue: Attributes) -> bool:
    """Tell whether the queue is for listed users or groups, and this user is not among them."""
    by_user = queue.get("acl_user_enable") == "True" and not _listed(queue.get("acl_users", ""), {user()})
    return by_user or (
        queue.get("acl_group_enable") == "True" and not _listed(queue.get("acl_groups", ""), my_groups())
    )


def _listed(acl: str, mine: set[str]) -> bool:
    """Look for a name in `+alice@*,bob,-carol`; the first entry that matches counts."""
    for entry in str(acl).split(","):
        name = entry.strip().lstrip("+-").split("@")[0]
        if name in mine or name == "*":
            return not entry.strip().startswith("-")
    return False
