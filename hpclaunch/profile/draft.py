"""A first site profile, from the description that the machine's scheduler gives; the user finishes it."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from hpclaunch.errors import ProfileError, SchedulerError
from hpclaunch.profile import search
from hpclaunch.profile.model import Site
from hpclaunch.profile.rules import site_mistakes
from hpclaunch.profile.yamlfile import Document, convert
from hpclaunch.schedulers import known, scheduler
from hpclaunch.schedulers.machine import Machine, Value

_OPEN = """
# What the scheduler does not say.
# Decide: the environment of every job (see `module avail pytorch`, or your own environment).
# module_purge: true
# modules: [pytorch/2.8.0]
# setup:
#   - source ~/envs/train/bin/activate
# Decide: compute nodes often have no internet. This keeps libraries from trying; a partition whose nodes have it
# says `internet: true`.
# env:
#   HF_HUB_OFFLINE: "1"
# Decide: the folder of the site's copy of MNIST, if it has one.
# datasets:
#   MNIST_DIR: /path/to/MNIST"""
_PRICE = """
# Decide: a price, for each partition that has one; without it nothing is priced:
# charge: {unit: GPU-hours, per: gpu, rate: 1}

partitions:"""


def drafted(name: str) -> tuple[str, Machine]:
    """Return the text of a profile for this machine, and what it was made of.

    Raises SchedulerError if no scheduler is here, none answers, or no profile can be made of the answer.
    """
    machine = _describe()
    text = "\n".join(_lines(name, machine)) + "\n"
    try:
        convert([Document.parse(Path(f"{name}.yaml"), text)], Site, site_mistakes)
    except ProfileError as error:
        raise SchedulerError(f"{machine.source}: no profile can be made of what it says", str(error)) from None
    return text, machine


def _describe() -> Machine:
    able = [one for one in map(scheduler, known()) if one.describes]
    refusals = []
    for one in able:
        if all(map(shutil.which, one.describes)):
            try:
                return one.detect()
            except SchedulerError as error:
                refusals.append(str(error))
    wanted = " or ".join(" and ".join(one.describes) for one in able)
    raise SchedulerError(*refusals or [f"no scheduler here: {wanted} not found; run this on a login node of the site"])


def _lines(name: str, machine: Machine) -> Iterator[str]:
    yield "# yaml-language-server: $schema=site.schema.json"
    yield f"# A draft that hpclaunch made of what {_plain(machine.source)} says. Behind each value is its source."
    yield f"# Read it, finish it, then `hpclaunch site check {name}` and `hpclaunch render --site {name}`."
    yield from (f"# {_plain(note)}" for note in machine.notes)
    yield f"\ntitle: {_flow(f'{name}, as its scheduler describes it')}  # Decide: its real name"
    yield f"scheduler: {machine.scheduler}"
    # This login node and its neighbours, unless another profile knows them already.
    host = socket.gethostname()
    pattern = re.sub(r"\d+", "[0-9]*", host.split(".")[0], count=1) + ("*" if "." in host else "")
    other = search.match_host(host)
    begin, why = ("# ", f"; profile {other} knows this host already") if other else ("", "")
    yield "# The login nodes: there --site need not be given."
    yield f"{begin}hostnames: {_flow([pattern])}  # from this host's name, {_plain(host)}{why}\n"
    yield from _keys({"default_partition": machine.default_partition, **machine.values})
    yield "\n# Whom to charge if --account is not given."
    yield f"# account: {_plain([*machine.accounts.value, 'ab12'][0])}{_source(machine.accounts)}"
    yield _OPEN
    yield from machine.open_questions
    yield _PRICE
    for part in machine.parts:
        yield f"\n  {_flow(part.name)}:" + ("" if part.values else " {}")
        yield from (f"    # {_plain(note)}" for note in part.notes)
        yield from _keys(part.values, "    ")
    if machine.left_out:
        yield "\n# Left out:"
        yield from (f"#   {_plain(left)}: {_plain(why)}" for left, why in machine.left_out.items())


def _keys(values: Mapping[str, Value], indent: str = "") -> Iterator[str]:
    for key, value in values.items():
        items = value.value
        if isinstance(items, list) and items and isinstance(items[0], Value):
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {_flow(item.value)}{_source(item)}" for item in items)
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
