"""Slurm's accounting: the accounts and the QoS of this user, and which limits count.

https://slurm.schedmd.com/resource_limits.html and qos.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from hpclaunch.errors import SchedulerError
from hpclaunch.schedulers.command import call
from hpclaunch.schedulers.machine import SECONDS, WORD, YEAR, Kind, Value, user
from hpclaunch.schedulers.values import slurm_seconds
from hpclaunch.walltime import clock

Limits = dict[str, Value]  # of seconds, nodes, cpus, gpus
_TRES = {"node": "nodes", "cpu": "cpus", "gres/gpu": "gpus"}


class Accounting(Struct, frozen=True):
    """What the accounting says: limits by QoS, those that others make room for, the user's QoS and accounts."""

    qos: dict[str, Limits] = {}
    preempting: dict[str, str] = {}
    mine: list[str] = []
    default: str = ""
    accounts: Value = Value([])
    notes: list[str] = []

    @classmethod
    def ask(cls) -> Accounting:
        """Ask the accounting, if there is one. What it does not say is a note, never an error."""
        try:
            every = table("qos", "Name,MaxWall,MaxTRES,Preempt")
            rows = associations()
        except SchedulerError as error:
            said = " ".join(str(error).split())
            return cls(notes=[f"Decide: QoS and accounts are not known, sacctmgr says: {said}"])
        if not rows:
            return cls(notes=[f"Decide: QoS and accounts are not known, user {user()} has no association."])
        (name, listed_qos, default, default_account), *others = rows
        more = "; you also have " + ", ".join(dict.fromkeys(row[0] for row in others)) if others else ""
        source = f"sacctmgr show user: {'your default' if default_account else 'yours'}{more}"
        qos = {name: _limits(name, wall, tres) for name, wall, tres, _ in every if WORD.match(name)}
        return cls(
            qos=qos,
            preempting={victim: name for name, *_, victims in every for victim in victims.split(",")},
            mine=[name for name in listed_qos.split(",") if name in qos],
            # The QoS of a job that names none: the association's, else its only one, else Slurm's `normal`.
            default=default or (listed_qos if "," not in listed_qos else "normal"),
            accounts=Value(list(dict.fromkeys([name, *(row[0] for row in others)])), source),
        )

    def limit(self, own: Limits, row: Mapping[str, str], kind: Kind) -> dict[str, Value]:
        """Return the keys of a profile that limit jobs in a partition: its own limits and those of QoS."""
        over = self.qos.get(row.get("QoS", ""), {})  # the partition's QoS comes before a job's
        limits = tightest(own, over)
        values = {}
        if length := limits.get("seconds"):
            values["walltime"] = Value([Value({"max_walltime": clock(length.value)}, length.source)])
        if cores := _cores(limits, kind):
            values["max_cores"] = cores
        allowed, denied = listed(row.get("AllowQos", "")), listed(row.get("DenyQos", ""))
        usable = {
            name: tightest(own, {**self.qos[name], **over})
            for name in self.mine
            if (not allowed or name.lower() in allowed) and name.lower() not in denied
        }
        # The default first, the shorter before the longer.
        ranked = sorted(usable, key=lambda name: (name != self.default, usable[name].get("seconds", Value(YEAR))))
        if ranked:
            values["qos"] = Value([self._qos(name, usable[name], kind) for name in ranked])
        return values

    def _qos(self, name: str, limits: Limits, kind: Kind) -> Value:
        length = limits.get("seconds", Value(YEAR, "no limit, so a year"))
        found: dict[str, Any] = {"name": name, "max_walltime": clock(length.value)}
        sources = [length.source]
        gpus = [limits["gpus"]] if "gpus" in limits else []
        if "nodes" in limits:
            gpus.append(Value(limits["nodes"].value * kind.gpus, limits["nodes"].source))
        sizes = {"max_gpus": min(gpus, default=None) if kind.gpus else None, "max_cores": _cores(limits, kind)}
        for key, limit in sizes.items():
            if limit:
                found[key] = limit.value
                sources.append(limit.source)
        if name == self.default:
            found["default"] = True
            sources.append("your default")
        elif (room := self.preempting.get(name)) or "seconds" not in limits:
            found["automatic"] = False
            sources += [f"makes room for {room}"] if room else []
        return Value(found, ", ".join(dict.fromkeys(sources)))


def associations() -> list[list[str]]:
    """Return the user's associations, their default account's first: account, QoS, default QoS, default account.

    Raises SchedulerError.
    """
    rows = table("user", "Account,QOS,DefaultQOS,DefaultAccount", f"name={user()}", "withassoc")
    return sorted((row for row in rows if row[0]), key=lambda row: row[0] != row[3])


def table(kind: str, fields: str, *where: str) -> list[list[str]]:
    """Return rows of the accounting's table, a column for each of `fields`. Raises SchedulerError."""
    words = ["sacctmgr", "--parsable2", "--noheader", "show", kind, f"format={fields}", *where]
    rows = [line.split("|") for line in call(words, seconds=SECONDS).stdout.splitlines()]
    return [row for row in rows if len(row) == fields.count(",") + 1]


def _limits(name: str, wall: str, tres: str) -> Limits:
    found = {}
    if length := seconds(wall):
        found["seconds"] = Value(length, f"MaxWall of QoS {name}")
    for pair in tres.split(","):
        key, _, amount = pair.partition("=")
        if key in _TRES and (count := number(amount)):
            found[_TRES[key]] = Value(count, f"MaxTRES {pair} of QoS {name}")
    return found


def _cores(limits: Limits, kind: Kind) -> Value | None:
    found = []
    if nodes := limits.get("nodes"):
        found.append(Value(nodes.value * kind.cores, f"{nodes.source} x {kind.cores} cores"))
    if cpus := limits.get("cpus"):
        found.append(Value(max(cpus.value // kind.threads, 1), cpus.source))
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
    """Return the seconds of a time, or None for no limit: UNLIMITED, nothing, above a year."""
    try:
        found = slurm_seconds(text)
    except ValueError:
        return None
    return found if 0 < found < YEAR else None
