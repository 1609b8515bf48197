"""PBS's limits: how long jobs of which size may be in the queues behind a name, and for whom they are."""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from hpclaunch.detect.machine import Kind, Value, clock

Attributes = Mapping[str, Any]


class Span(Struct, frozen=True):
    """A range of sizes in cores of the whole job, and the longest walltime there; None is no limit."""

    queue: str
    least: int = 1
    most: int | None = None
    why_most: str = ""
    seconds: int | None = None


def span(name: str, queues: Mapping[str, Attributes], asked: str, server: Attributes, kind: Kind) -> Span:
    """Return the sizes that queue `name` takes when jobs ask for the queue `asked`, on nodes of that kind.

    A queue's own limit counts before the server's.
    """
    most: list[tuple[int, str]] = []
    least, length = 1, None
    for queue in dict.fromkeys([name, asked]):
        said = f"qstat -Qf {queue}: resources_max"
        own = {**table(server, "resources_max"), **table(queues[queue], "resources_max")}
        most += [(cores, f"{said}.{key}={own[key]}") for key, cores in _in_cores(own, kind).items()]
        smallest = _in_cores(table(queues[queue], "resources_min"), kind)
        least = max(least, smallest.get("ncpus", 1), smallest.get("nodect", 1))
        limit = seconds(own.get("walltime"))
        length = limit if length is None or (limit and limit < length) else length
    cores, why = min(most) if most else (None, "")
    return Span(name, least, cores, why, length)


def table(holder: Attributes, key: str) -> Attributes:
    """Return a part of an answer that should be a table; nothing where it is not."""
    found = holder.get(key)
    return found if isinstance(found, dict) else {}


def _in_cores(resources: Attributes, kind: Kind) -> dict[str, int]:
    """Return limits on ncpus, nodect and ngpus as cores; nodes and GPUs only where a node's size is known."""
    share = {"ncpus": 1.0, "nodect": float(kind.cores), "ngpus": kind.cores / kind.gpus if kind.gpus else 0.0}
    counts = {key: resources.get(key) for key in share}
    return {
        key: int(count * share[key])
        for key, count in counts.items()
        if isinstance(count, int) and count * share[key] >= 1
    }


def limits(spans: Sequence[Span]) -> dict[str, Value]:
    """Return the keys of a profile: least and most cores, and the longest walltime by size."""
    values = {}
    least = min((span.least for span in spans), default=1)
    if least > 1:
        values["min_cores"] = Value(least, f"qstat -Qf {spans[0].queue}: resources_min")
    largest = max(spans, key=lambda span: span.most or 10**9, default=None)
    if largest and largest.most:
        values["max_cores"] = Value(largest.most, largest.why_most)
    if tiers := _tiers(spans):
        values["walltime"] = Value(tiers)
    return values


def _tiers(spans: Sequence[Span]) -> list[Value]:
    """Return the longest walltime up to each size at which it changes; nothing where there is no limit."""
    ends = sorted({span.most for span in spans if span.most} | {span.least - 1 for span in spans if span.least > 1})
    found: list[tuple[int | None, int | None, str]] = []
    for end, size in [*((end, end) for end in ends), (None, (ends[-1] if ends else 0) + 1)]:
        open_to = [span for span in spans if span.least <= size and (span.most is None or size <= span.most)]
        if not open_to:
            continue
        longest = max(open_to, key=lambda span: span.seconds or 10**9)
        if found and found[-1][1] == longest.seconds:
            found.pop()
        found.append((end, longest.seconds, longest.queue))
    if all(seconds is None for _, seconds, _ in found):
        return []
    # What is above the last size max_cores refuses, so that the last tier needs none.
    sized = [*found[:-1], (None, *found[-1][1:])]
    return [
        Value(
            ({"max_cores": end} if end else {}) | {"max_walltime": clock(length)},
            f"qstat -Qf {queue}: resources_max.walltime" if length else f"qstat -Qf {queue}: no limit",
        )
        for end, length, queue in sized
    ]


def seconds(value: Any) -> int | None:
    """Return the seconds of PBS's [[HH:]MM:]SS, or of a plain number of them; None where there is no limit."""
    if not re.fullmatch(r"\d+(:\d+){0,2}", str(value)):
        return None
    total = 0
    for part in str(value).split(":"):
        total = total * 60 + int(part)
    return total or None


def closed_to_me(queue: Attributes) -> bool:
    """Tell whether the queue is for listed people or groups, and this person is not among them."""
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = str(os.geteuid())
    by_user = queue.get("acl_user_enable") == "True" and not _listed(queue.get("acl_users", ""), {user})
    return by_user or (queue.get("acl_group_enable") == "True" and not _listed(queue.get("acl_groups", ""), _groups()))


def _listed(acl: str, mine: set[str]) -> bool:
    """Look for a name in `+alice@*,bob,-carol`; the first entry that fits counts."""
    for entry in str(acl).split(","):
        name = entry.strip().lstrip("+-").split("@")[0]
        if name in mine or name == "*":
            return not entry.strip().startswith("-")
    return False


def _groups() -> set[str]:
    found = set()
    for number in {os.getegid(), *os.getgroups()}:
        try:
            found.add(grp.getgrgid(number).gr_name)
        except KeyError:
            continue
    return found
