"""A machine as its scheduler describes it: values with their sources, and kinds of node."""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from msgspec import Struct

from hpclaunch import walltime
from hpclaunch.errors import SchedulerError

SECONDS = 30.0  # a scheduler that takes longer to answer counts as dead
WORD = re.compile(r"[A-Za-z0-9_.+@:/=%-]+\Z")  # a name that a profile takes, see site.Word
NO_LIMIT = "8760:00:00"  # a year, for keys that need a walltime


class Value(Struct, frozen=True):
    """One value of the draft and where it came from; in a list each item is a Value."""

    value: Any
    source: str = ""


class Kind(Struct, frozen=True):
    """The size of a node: cores, GPUs and their model, memory in GB as the scheduler counts it.

    `threads` is what the scheduler calls cpus in a core.
    """

    cores: int
    gpus: int = 0
    gpu: str = ""
    mem_gb: int = 0
    threads: int = 1

    def __str__(self) -> str:
        gpus = f", {self.gpus}x {self.gpu or 'GPU'}" if self.gpus else ""
        return f"{self.cores} cores{gpus}, {self.mem_gb} GB"


class Node(Struct, frozen=True):
    """A node: its name, its kind, the features by which a job may request it."""

    name: str
    kind: Kind
    features: frozenset[str] = frozenset()


class Part(Struct, frozen=True):
    """A partition of the draft: its keys in order, and what a user should know before reading them."""

    name: str
    values: dict[str, Value]
    notes: list[str] = []


class Machine(Struct, frozen=True):
    """What a draft is made of.

    `open_questions` are comments on what this scheduler does not say, `left_out` partitions with the reason why.
    """

    scheduler: str
    source: str
    default_partition: Value
    parts: list[Part]
    values: dict[str, Value] = {}
    accounts: Value = Value([])
    notes: list[str] = []
    open_questions: tuple[str, ...] = ()
    left_out: dict[str, str] = {}


Drafts = tuple[list[Part], dict[str, str]]


class NodeGroup(Struct, frozen=True):
    """Nodes of one kind among those of a partition, and how a job gets just them: "" is for the commonest kind.

    `suffix` is None if a job cannot tell them from the commonest.
    """

    kind: Kind
    nodes: list[Node]
    suffix: str | None = ""
    feature: str = ""


def grouped(nodes: Sequence[Node]) -> list[NodeGroup]:
    """Group nodes by kind, the commonest first; each of the others with what sets it apart, if anything does.

    That is a feature which all of its nodes have and no other, or GPUs which the commonest kind lacks, or has.
    """
    ranked = [kind for kind, _ in Counter(node.kind for node in nodes).most_common()]
    found: list[NodeGroup] = []
    for kind in ranked:
        own = [node for node in nodes if node.kind == kind]
        others = [node for node in nodes if node.kind != kind]
        common = frozenset.intersection(*(node.features for node in own))
        telling = sorted(common - frozenset[str]().union(*(node.features for node in others)))
        feature = telling[0] if telling and others else ""
        if not found:
            found.append(NodeGroup(kind, own, "", feature))
        elif feature:
            found.append(NodeGroup(kind, own, feature, feature))
        elif any((group.kind.gpus > 0) == (kind.gpus > 0) for group in found):
            found.append(NodeGroup(kind, own, None))
        else:
            found.append(NodeGroup(kind, own, "gpu" if kind.gpus else "cpu"))
    return found


def gathered(
    rows: Iterable[str], unusable: Callable[[str], str | None], draft: Callable[[str], Iterable[Part]]
) -> Drafts:
    """Return the partitions of the draft, and those that it leaves out with the reason why.

    Raises SchedulerError if it leaves out all.
    """
    parts: list[Part] = []
    left_out: dict[str, str] = {}
    for name in rows:
        if why := unusable(name):
            left_out[name] = why
        else:
            parts.extend(draft(name))
    if not parts:
        raise SchedulerError(
            "no partition is of use here:", *(f"partition {name}: {why}" for name, why in left_out.items())
        )
    return parts, left_out


def kind_notes(found: Sequence[NodeGroup]) -> list[str]:
    """Describe the nodes of a partition: which and how many there are of each kind, what a job cannot choose."""
    if len(found) == 1:
        return [names(found[0].nodes)]
    unclear = [str(group.kind) for group in found[1:] if group.suffix is None]
    return [
        *(f"{names(group.nodes)}: {group.kind}" for group in found),
        *(f"Decide: a job may get a node with {kind}, which nothing tells apart" for kind in unclear),
    ]


def part_name(name: str, group: NodeGroup, taken: Container[str]) -> str:
    """Name the part of a partition that has these nodes; no other partition has that name."""
    wanted = f"{name}-{group.suffix}" if group.suffix else name
    while group.suffix and wanted in taken:
        wanted += "-nodes"
    return wanted


def names(nodes: Sequence[Node], most: int = 3) -> str:
    """Count nodes and name the first of them."""
    listed = ", ".join(node.name for node in nodes[:most]) + (" ..." if len(nodes) > most else "")
    return f"{len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}: {listed}"


def kind_values(kind: Kind, source: str) -> dict[str, Value]:
    """Return a node's size as keys of a profile."""
    values = {"cores_per_node": Value(kind.cores, source)}
    if kind.gpus:
        values["gpus_per_node"] = Value(kind.gpus, source)
        if kind.gpu:
            values["gpu"] = Value(kind.gpu, source)
    if kind.mem_gb:
        values["mem_gb_per_node"] = Value(kind.mem_gb, source)
    return values


def clock(seconds: float | None) -> str:
    """Return HH:MM:SS for a profile; no limit, or one above a year, is a year."""
    year = walltime.clock_seconds(NO_LIMIT)
    return NO_LIMIT if seconds is None or seconds > year else walltime.clock(int(seconds))


def user() -> str:
    """Return the user's name, as a scheduler knows it."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container without a list of users
        return str(os.geteuid())


def my_groups() -> set[str]:
    """Return the user's unix groups."""
    found = set()
    for number in {os.getegid(), *os.getgroups()}:
        try:
            found.add(grp.getgrgid(number).gr_name)
        except KeyError:
            continue
    return found
