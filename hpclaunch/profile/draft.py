"""The text of a drafted profile: each value with its source, and a comment on what the user must decide."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from hpclaunch.profile import search
from hpclaunch.schedulers.machine import Machine, Part, Value

_OPEN = (
    "# What the scheduler does not say.",
    "# Decide: the environment of every job (see `module avail pytorch`, or your own environment).",
    "# module_purge: true",
    "# modules: [pytorch/2.8.0]",
    "# setup:",
    "#   - source ~/envs/train/bin/activate",
    "# Decide: compute nodes often have no internet. This keeps libraries from trying; a partition whose nodes have it",
    "# says `internet: true`.",
    "# env:",
    '#   HF_HUB_OFFLINE: "1"',
    "# Decide: the folder of the site's copy of MNIST, if it has one.",
    "# datasets:",
    "#   MNIST_DIR: /path/to/MNIST",
)


def write(name: str, machine: Machine) -> str:
    """Return the YAML of a profile `name`."""
    return "\n".join(_lines(name, machine)) + "\n"


def _lines(name: str, machine: Machine) -> Iterator[str]:
    yield "# yaml-language-server: $schema=site.schema.json"
    yield f"# A draft that hpclaunch made of what {_plain(machine.source)} says. Behind each value is its source."
    yield f"# Read it, finish it, then `hpclaunch site check {name}` and `hpclaunch render --site {name}`."
    for note in machine.notes:
        yield f"# {_plain(note)}"
    yield ""
    yield f"title: {_flow(f'{name}, as its scheduler describes it')}  # Decide: its real name"
    yield f"scheduler: {machine.scheduler}"
    yield from _hostnames()
    yield ""
    yield from _key("default_partition", machine.default_partition)
    for key, value in machine.values.items():
        yield from _key(key, value)
    yield ""
    yield "# Whom to charge if --account is not given."
    accounts = machine.accounts.value
    source = f"  # {_plain(machine.accounts.source)}" if machine.accounts.source else ""
    yield f"# account: {_plain(accounts[0]) if accounts else 'ab12'}{source}"
    yield ""
    yield from _OPEN
    yield from machine.open_questions
    yield ""
    yield "# Decide: a price, for each partition that has one; without it nothing is priced:"
    yield "# charge: {unit: GPU-hours, per: gpu, rate: 1}"
    yield ""
    yield "partitions:"
    for part in machine.parts:
        yield ""
        yield from _part(part)
    if machine.left_out:
        yield ""
        yield "# Left out:"
        for left, why in machine.left_out.items():
            yield f"#   {_plain(left)}: {_plain(why)}"


def _part(part: Part) -> Iterator[str]:
    yield f"  {_flow(part.name)}:" + ("" if part.values else " {}")
    for note in part.notes:
        yield f"    # {_plain(note)}"
    for key, value in part.values.items():
        yield from _key(key, value, "    ")


def _key(key: str, value: Value, indent: str = "") -> Iterator[str]:
    items = value.value
    if isinstance(items, list) and items and isinstance(items[0], Value):
        yield f"{indent}{key}:"
        for item in items:
            yield f"{indent}  - {_flow(item.value)}{_source(item)}"
    else:
        yield f"{indent}{key}: {_flow(items)}{_source(value)}"


def _source(value: Value) -> str:
    return f"  # {_plain(value.source)}" if value.source else ""


def _flow(value: Any) -> str:
    """Return a value on one line, quoted if YAML would read something else."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(part)}" for key, part in value.items()) + "}"
    return yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=10**6).strip()[1:-1]


def _plain(text: str) -> str:
    """Keep a comment on its line, whatever a scheduler says."""
    return "".join(c if c.isprintable() else " " for c in text)


def _hostnames() -> Iterator[str]:
    """Name this login node and its neighbours, unless another profile knows them already."""
    host = socket.gethostname()
    pattern = re.sub(r"\d+", "[0-9]*", host.split(".")[0], count=1) + ("*" if "." in host else "")
    known = search.match_host(host)
    begin, why = ("# ", f"; profile {known} knows this host already") if known else ("", "")
    yield "# The login nodes: there --site need not be given."
    yield f"{begin}hostnames: {_flow([pattern])}  # from this host's name, {_plain(host)}{why}"
