"""A machine as its scheduler describes it, value by value with their sources; who the user is on it."""

import grp
import os
import pwd
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from hpclaunch.errors import counted

SECONDS = 30.0  # a scheduler that takes longer to answer counts as dead
YEAR = 8760 * 3600  # seconds; a longer walltime is no limit
WORD = re.compile(r"[A-Za-z0-9_.+@:/=%-]+\Z")  # a name that a profile takes


class Value(Struct, frozen=True):
    """One value of the draft and where it came from; in a list each item is a Value."""

    value: Any
    source: str = ""


class Kind(Struct, frozen=True):
    """The size of a node: cores, GPUs and their model, memory in GB, and what the scheduler calls cpus in a core."""

    cores: int
    gpus: int = 0
    gpu: str = ""
    mem_gb: int = 0
    threads: int = 1

    def __str__(self) -> str:
        gpus = f", {self.gpus}x {self.gpu or 'GPU'}" if self.gpus else ""
        return f"{self.cores} cores{gpus}, {self.mem_gb} GB"

    def values(self, source: str) -> dict[str, Value]:
        """Return the keys of a profile."""
        keys = {
            "cores_per_node": self.cores,
            "gpus_per_node": self.gpus,
            "gpu": self.gpus and self.gpu,
            "mem_gb_per_node": self.mem_gb,
        }
        return {key: Value(value, source) for key, value in keys.items() if value}


class Part(Struct, frozen=True):
    """A partition of the draft: its keys in order, and what a user should know before reading them."""

    values: dict[str, Value]
    notes: list[str]


class Machine(Struct, frozen=True):
    """What a draft is made of.

    `partitions` has a text for a partition that the draft leaves out: why. `open_questions` are comments on what this
    scheduler does not say.
    """

    scheduler: str
    source: str
    default_partition: Value
    partitions: Mapping[str, Part | str]
    values: dict[str, Value]
    accounts: Value = Value([])
    notes: list[str] = []
    open_questions: tuple[str, ...] = ()


def commonest(nodes: Mapping[str, Kind]) -> tuple[Kind, list[str]]:
    """Return the commonest kind of a partition's nodes, and notes on how many there are of each kind."""
    notes: list[str] = []
    ranked = [kind for kind, _ in Counter(nodes.values()).most_common()]
    for kind in ranked:
        names = [name for name, other in nodes.items() if other == kind]
        listed = f"{counted(len(names), 'node')}: {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"
        more = f"Decide: a partition of its own, with `directives:`, for {kind}; " if notes else ""
        notes.append(more + listed)
    return ranked[0], notes


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
        with suppress(KeyError):
            found.add(grp.getgrgid(number).gr_name)
    return found
