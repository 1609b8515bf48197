"""A first site profile, from what the machine's scheduler says: each value with its source, for the user to finish."""

import re
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import yaml

from hpclaunch.errors import ProfileError, SchedulerError
from hpclaunch.paths import shipped
from hpclaunch.profile import search
from hpclaunch.profile.model import Site
from hpclaunch.profile.rules import site_mistakes
from hpclaunch.profile.yamlfile import Document, convert
from hpclaunch.schedulers import known, scheduler
from hpclaunch.schedulers.machine import Machine, Part, Value

_HEAD = """\
# yaml-language-server: $schema=site.schema.json
# A draft that hpclaunch made from {source}. Behind each value is its source.
# Read it, finish it, then `hpclaunch site check {name}` and `hpclaunch render --site {name}`."""


def drafted(name: str, machine: Machine | None = None) -> tuple[str, Machine]:
    """Return the text of a profile for `machine`, or for the one that a scheduler here describes, and that machine.

    Raises SchedulerError if no scheduler is here, none answers, or no profile can be made of the answer.
    """
    machine = machine or _ask()
    text = "\n".join(_lines(name, machine)) + "\n"
    try:
        convert([Document.parse(Path(f"{name}.yaml"), text)], Site, site_mistakes)
    except ProfileError as error:
        raise SchedulerError(
            f"{machine.source}: no profile can be made of what it says", *str(error).splitlines()
        ) from None
    return text, machine


def _ask() -> Machine:
    """Ask all schedulers beside each other: the first answer counts, as the command of another may hang."""
    names = known()
    pool = ThreadPoolExecutor(len(names))
    asked = {pool.submit(scheduler(name).detect): name for name in names}
    refusals = {}
    for answer in as_completed(asked):
        try:
            return answer.result()
        except SchedulerError as error:
            refusals[asked[answer]] = f"{asked[answer]}: {error}"
    raise SchedulerError("no scheduler describes this machine:", *(refusals[name] for name in names))


def _lines(name: str, machine: Machine) -> Iterator[str]:
    parts = {key: part for key, part in machine.partitions.items() if isinstance(part, Part)}
    left_out = {key: reason for key, reason in machine.partitions.items() if isinstance(reason, str)}
    if not parts:
        listed = (f"partition {key}: {reason}" for key, reason in left_out.items())
        raise SchedulerError("no partition is of use here:", *listed)
    yield _HEAD.format(source=_plain(machine.source), name=name)
    yield from (f"# {_plain(note)}" for note in machine.notes)
    yield ""
    yield f"title: {_flow(f'{name}, as its scheduler describes it')}  # Decide: its real name"
    yield f"scheduler: {machine.scheduler}"
    host = socket.gethostname()
    pattern = re.sub(r"\d+", "[0-9]*", host.split(".")[0], count=1) + ("*" if "." in host else "")
    other = search.match_host(host)
    begin, why = ("# ", f"; profile {other} knows this host already") if other else ("", "")
    yield "# The login nodes: there --site need not be given."
    yield f"{begin}hostnames: {_flow([pattern])}  # from this host's name, {_plain(host)}{why}"
    yield ""
    first = Value(next(iter(parts)), "Decide: the scheduler names no default for you, this is the first")
    default = machine.default_partition if machine.default_partition.value in parts else first
    for key, value in {"default_partition": default, **machine.values}.items():
        yield from _key(key, value)
    yield ""
    yield "# Whom to charge if --account is not given."
    yield f"# account: {_plain([*machine.accounts.value, 'ab12'][0])}{_source(machine.accounts)}"
    yield "\n" + (shipped("templates") / "site-open.yaml").read_text().rstrip()
    yield from machine.open_questions
    yield ""
    yield "partitions:"
    for partition, part in parts.items():
        yield ""
        yield f"  {_flow(partition)}:" + ("" if part.values else " {}")
        yield from (f"    # {_plain(note)}" for note in part.notes)
        for key, value in part.values.items():
            yield from _key(key, value, "    ")
    yield from ["", "# Left out:"] if left_out else []
    yield from (f"#   {_plain(partition)}: {_plain(reason)}" for partition, reason in left_out.items())


def _key(key: str, value: Value, indent: str = "") -> Iterator[str]:
    items = value.value
    if isinstance(items, list) and isinstance(items[0], Value):
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
