"""Slurm's limits: of a partition, of the QoS that the user may use, and which of them count.

https://slurm.schedmd.com/resource_limits.html and qos.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hpclaunch.errors import SchedulerError
from hpclaunch.schedulers.command import call
from hpclaunch.schedulers.machine import NO_LIMIT, SECONDS, WORD, Kind, Value, clock, user
from hpclaunch.schedulers.values import slurm_seconds

# What is limited (seconds, nodes, cpus, gpus): the limit and its source.
Limits = dict[str, tuple[int, str]]
_TRES = {"node": "nodes", "cpu": "cpus", "gres/gpu": "gpus"}


class Qos(Struct, frozen=True):
    """A quality of service that the user may use."""

    name: str
    limits: Limits
    flags: frozenset[str]
    makes_room_for: str = ""
    accounts: str = ""  # those that have it if the default account has not


class Rules(Struct, frozen=True):
    """What the accounting says: every QoS, the user's (None: no limits), the default one, and the accounts."""

    every: dict[str, Qos] = {}
    mine: dict[str, Qos] | None = None
    default: str = ""
    accounts: Value = Value([])
    notes: list[str] = []


def ask(config: Mapping[str, str]) -> Rules:
    """Ask the accounting, if there is one. What it does not say is a note, never an error."""
    if config.get("AccountingStorageType", "").endswith("none"):
        return Rules(notes=["This Slurm keeps no accounts: QoS and accounts are not known."])
    me = user()
    try:
        every = _every_qos()
        rows = table("assoc", "Account,QOS,DefaultQOS", f"user={me}")
        chosen = table("user", "DefaultAccount", f"name={me}")
    except SchedulerError as error:
        return Rules(notes=[f"Decide: QoS and accounts are not known, sacctmgr says: {' '.join(str(error).split())}"])
    if not rows:
        return Rules(every, notes=[f"Decide: QoS and accounts are not known, user {me} has no association."])
    default_account = chosen[0][0] if chosen else ""
    rows.sort(key=lambda row: row[0] != default_account)
    names = list(dict.fromkeys(row[0] for row in rows))
    source = f"sacctmgr show assoc: {'your default' if default_account else 'yours'}"
    accounts = Value(names, source + (f"; you also have {', '.join(names[1:])}" if len(names) > 1 else ""))
    enforced = re.split(r"[,\s]+", config.get("AccountingStorageEnforce", "").lower())
    if not {"limits", "safe", "all", "qos"}.intersection(enforced):
        notes = ["This Slurm enforces no limits of QoS (AccountingStorageEnforce), so none are here."]
        return Rules(every, accounts=accounts, notes=notes)
    _, first, default = rows[0]
    # The QoS of a job that names none: the association's, else its only one, else Slurm's `normal`.
    default = default or (first if "," not in first else "normal")
    return Rules(every, _mine(every, rows), default, accounts)


def _mine(every: Mapping[str, Qos], rows: Iterable[list[str]]) -> dict[str, Qos]:
    """Return the QoS of the user's accounts, the default account's first."""
    allowed = {account: [name for name in names.split(",") if name in every] for account, names, _ in rows}
    default = next(iter(allowed.values()))
    having = {
        name: [account for account, names in allowed.items() if name in names] for name in chain(*allowed.values())
    }
    return {
        name: every[name] if name in default else replace(every[name], accounts=", ".join(accounts))
        for name, accounts in having.items()
    }


def _every_qos() -> dict[str, Qos]:
    rows = table("qos", "Name,MaxWall,MaxTRES,Flags,Preempt")
    room = {victim: name for name, *_, victims in rows for victim in victims.split(",") if victim}
    every = {}
    for name, wall, tres, flags, _ in rows:
        if WORD.match(name):
            limits = _limits(wall, tres, f"sacctmgr show qos {name}")
            every[name] = Qos(name, limits, frozenset(flags.split(",")), room.get(name, ""))
    return every


def _limits(wall: str, tres: str, said: str) -> Limits:
    found: Limits = {}
    if (length := seconds(wall)) is not None:
        found["seconds"] = length, f"{said}: MaxWall"
    for pair in tres.split(","):
        name, _, amount = pair.partition("=")
        if name in _TRES and (count := number(amount)):
            found[_TRES[name]] = count, f"{said}: MaxTRES {pair}"
    return found


def table(kind: str, fields: str, *where: str) -> list[list[str]]:
    """Return rows of the accounting's table, a column for each of `fields`. Raises SchedulerError."""
    words = ["sacctmgr", "--parsable2", "--noheader", "show", kind, f"format={fields}", *where]
    rows = [line.split("|") for line in call(words, seconds=SECONDS).stdout.splitlines()]
    return [row for row in rows if len(row) == fields.count(",") + 1]


def of_partition(name: str, row: Mapping[str, str], kind: Kind, rules: Rules) -> dict[str, Value]:
    """Return the keys of a profile that limit jobs in a partition whose nodes are of that kind."""
    said = f"scontrol show partition {name}"
    own: Limits = {}
    if (length := seconds(row.get("MaxTime", ""))) is not None:
        own["seconds"] = length, f"{said}: MaxTime"
    if nodes := number(row.get("MaxNodes")):
        own["nodes"] = nodes, f"{said}: MaxNodes={nodes}"
    its_qos = rules.every.get(row.get("QoS", ""))
    limits = tightest(own, its_qos.limits if its_qos else {})
    usable = _usable(row, rules)
    each = {qos.name: _with_partition(qos, own, its_qos) for qos in usable}
    values = {}
    if "seconds" in limits and not any("seconds" not in of_qos for of_qos in each.values()):
        longest = max((limits, *each.values()), key=lambda found: found["seconds"][0])["seconds"]
        values["walltime"] = Value([Value({"max_walltime": clock(longest[0])}, longest[1])])
    if cores := _cores(limits, kind):
        values["max_cores"] = Value(*cores)
    # The default first, then those with a time limit, the shorter before the longer.
    usable.sort(key=lambda qos: (qos.name != rules.default, each[qos.name].get("seconds", (10**9,))[0]))
    if usable:
        values["qos"] = Value([_qos(qos, each[qos.name], kind, rules.default) for qos in usable])
    return values


def _usable(row: Mapping[str, str], rules: Rules) -> list[Qos]:
    """Return the user's QoS that the partition allows."""
    allowed, denied = listed(row.get("AllowQos", "")), listed(row.get("DenyQos", ""))
    return [
        qos
        for qos in (rules.mine or {}).values()
        if (not allowed or qos.name.lower() in allowed) and qos.name.lower() not in denied
    ]


def _with_partition(qos: Qos, own: Limits, its_qos: Qos | None) -> Limits:
    """Return what limits a job of `qos`: its own, the partition's, and the partition's QoS, which comes first."""
    first, then = (its_qos.limits if its_qos else {}), qos.limits
    if "OverPartQOS" in qos.flags:
        first, then = then, first
    if "PartitionTimeLimit" in qos.flags:
        own = {key: limit for key, limit in own.items() if key != "seconds"}
    return tightest(own, {**then, **first})


def _qos(qos: Qos, limits: Limits, kind: Kind, default: str) -> Value:
    length = limits.get("seconds")
    found: dict[str, Any] = {"name": qos.name, "max_walltime": clock(length[0] if length else None)}
    sources = [length[1] if length else f"no limit, so {NO_LIMIT}"]
    gpus = [limits["gpus"]] if "gpus" in limits else []
    if "nodes" in limits:
        gpus.append((limits["nodes"][0] * kind.gpus, limits["nodes"][1]))
    for key, limit in (
        ("max_gpus", min(gpus, default=None) if kind.gpus else None),
        ("max_cores", _cores(limits, kind)),
    ):
        if limit:
            found[key] = limit[0]
            sources.append(limit[1])
    if qos.name == default:
        found["default"] = True
        sources.append("your default")
    elif why := (
        (qos.makes_room_for and f"makes room for {qos.makes_room_for}")
        or (qos.accounts and f"account {qos.accounts} only")
        or ("" if length else "nothing limits it")
    ):
        found["automatic"] = False
        sources.append(why)
    prefix = f"sacctmgr show qos {qos.name}: "
    return Value(found, ", ".join(dict.fromkeys(source.removeprefix(prefix) for source in sources)))


def _cores(limits: Limits, kind: Kind) -> tuple[int, str] | None:
    found = []
    if "nodes" in limits:
        found.append((limits["nodes"][0] * kind.cores, f"{limits['nodes'][1]} x {kind.cores} cores"))
    if "cpus" in limits:
        found.append((max(limits["cpus"][0] // kind.threads, 1), limits["cpus"][1]))
    return min(found, default=None)


def tightest(*every: Limits) -> Limits:
    """Return the lowest of each limit."""
    keys = dict.fromkeys(key for limits in every for key in limits)
    return {key: min(limits[key] for limits in every if key in limits) for key in keys}


def listed(text: str) -> set[str]:
    """Return the names in a list of Slurm's, in lower case; nothing for ALL or none."""
    return set() if text in ("ALL", "", "(null)", "none") else {word.lower() for word in text.split(",")}


def number(text: str | None) -> int | None:
    """Return a count, or None if it is none, such as UNLIMITED."""
    return int(text) if text and text.isdigit() and int(text) < 10**9 else None


def seconds(text: str) -> int | None:
    """Return the seconds of a time, or None for UNLIMITED and for nothing."""
    try:
        return slurm_seconds(text) or None
    except ValueError:
        return None
