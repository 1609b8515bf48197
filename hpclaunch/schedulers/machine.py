"""What a scheduler says of its machine: values with their sources, and kinds of node; no scheduler's words in it."""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections import Counter
from collections.abc import Container, Sequence
from typing import Any

from msgspec import Struct

from hpclaunch import walltime

SECONDS = 30.0  # a scheduler that takes longer to answer is taken for dead
WORD = re.compile(r"[A-Za-z0-9_.+@:/=%-]+\Z")  # a name that a profile takes, see site.Word
NO_LIMIT = "8760:00:00"  # a year, where a key needs a walltime and there is no limit


class Value(Struct, frozen=True):
    """One value of the draft and where it came from; in a list each item is a Value of its own."""

    value: Any
    source: str = ""


class Kind(Struct, frozen=True):
    """What a node offers to jobs: cores, GPUs and their model, memory in GB as the scheduler counts it.

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
    """A node: its name, its kind, the words by which a job may ask for it."""

    name: str
    kind: Kind
    features: frozenset[str] = frozenset()


class Part(Struct, frozen=True):
    """A partition of the draft: its keys in order, and what a person should know before reading them."""

    name: str
    values: dict[str, Value]
    notes: list[str] = []


class Machine(Struct, frozen=True):
    """All that goes into a draft.

    `open_questions` are comments on what this scheduler does not tell, `left_out` partitions with the reason why.
    """

    scheduler: str
    said_by: str
    default_partition: Value
    parts: list[Part]
    values: dict[str, Value] = {}
    accounts: Value = Value([])
    notes: list[str] = []
    open_questions: tuple[str, ...] = ()
    left_out: dict[str, str] = {}


class Sort(Struct, frozen=True):
    """Nodes of one kind among those of a partition, and how a job gets just them: "" is for the commonest kind.

    `suffix` is None where a job cannot tell them from the commonest.
    """

    kind: Kind
    nodes: list[Node]
    suffix: str | None = ""
    feature: str = ""


def sorts(nodes: Sequence[Node]) -> list[Sort]:
    """Sort nodes by kind, the commonest first; each of the others with what sets it apart, if anything does.

    That is a feature which all of its nodes have and no other, or GPUs which the commonest kind lacks, or has.
    """
    ranked = [kind for kind, _ in Counter(node.kind for node in nodes).most_common()]
    found: list[Sort] = []
    for kind in ranked:
        own = [node for node in nodes if node.kind == kind]
        others = [node for node in nodes if node.kind != kind]
        common = frozenset.intersection(*(node.features for node in own))
        telling = sorted(common - frozenset[str]().union(*(node.features for node in others)))
        feature = telling[0] if telling and others else ""
        if not found:
            found.append(Sort(kind, own, "", feature))
        elif feature:
            found.append(Sort(kind, own, feature, feature))
        elif any((sort.kind.gpus > 0) == (kind.gpus > 0) for sort in found):
            found.append(Sort(kind, own, None))
        else:
            found.append(Sort(kind, own, "gpu" if kind.gpus else "cpu"))
    return found


def part_name(name: str, sort: Sort, taken: Container[str]) -> str:
    """Name the part of a partition that has these nodes; no other partition has that name."""
    wanted = f"{name}-{sort.suffix}" if sort.suffix else name
    while sort.suffix and wanted in taken:
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
    """Return this person's name, as a scheduler knows it."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container without a list of users
        return str(os.geteuid())


def my_groups() -> set[str]:
    """Return the unix groups of this person."""
    found = set()
    for number in {os.getegid(), *os.getgroups()}:
        try:
            found.add(grp.getgrgid(number).gr_name)
        except KeyError:
            continue
    return found
