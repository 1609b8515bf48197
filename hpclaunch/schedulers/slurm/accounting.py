"""Slurm's accounting: the accounts and the QoS of this user, and which limits count.

https://slurm.schedmd.com/resource_limits.html and qos.html
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from msgspec import Struct

from hpclaunch.errors import SchedulerError
from hpclaunch.schedulers.command import call
from hpclaunch.schedulers.machine import SECONDS, WORD, YEAR, Kind, Value, user
from hpclaunch.schedulers.values import slurm_seconds
from hpclaunch.schedulers.walltime import clock

Limits = dict[str, int]  # of seconds, nodes, cpus, gpus, jobs of a user
_TRES = {"node": "nodes", "cpu": "cpus", "gres/gpu": "gpus"}


class Accounting(Struct, frozen=True):
    """What the accounting says: limits by QoS, those that others preempt, the user's QoS and accounts."""

    qos: dict[str, Limits] = {}
    preempted: set[str] = set()
    mine: list[str] = []
    default: str = ""
    accounts: Value = Value([])
    notes: list[str] = []

    @classmethod
    def ask(cls) -> Accounting:
        """Ask the accounting, if there is one. What it does not say is a note, never an error."""
        try:
            every = table("qos", "Name,MaxWall,MaxTRES,Preempt,MaxTRESPU,MaxSubmitPU,MaxJobsPU")
            rows = associations()
        except SchedulerError as error:
            said = " ".join(str(error).split())
            return cls(notes=[f"Decide: QoS and accounts are not known, sacctmgr says: {said}"])
        if not rows:
            return cls(notes=[f"Decide: QoS and accounts are not known, user {user()} has no association."])
        (name, listed_qos, default, default_account), *others = rows
        more = "; you also have " + ", ".join(dict.fromkeys(row[0] for row in others)) if others else ""
        source = f"sacctmgr show user: {'your default' if default_account else 'yours'}{more}"
        qos = {row[0]: _limits(row[1], f"{row[2]},{row[4]}", row[5]) for row in every if WORD.match(row[0])}
        return cls(
            qos=qos,
            preempted={victim for row in every for victim in row[3].split(",")},
            mine=[name for name in listed_qos.split(",") if name in qos],
            # The QoS of a job that names none: the association's, else its only one, else Slurm's `normal`.
            default=default or (listed_qos if "," not in listed_qos else "normal"),
            accounts=Value(list(dict.fromkeys([name, *(row[0] for row in others)])), source),
            notes=[
                f"QoS {row[0]}: {row[6]} jobs of a user run at once (MaxJobsPU), more wait" for row in every if row[6]
            ],
        )

    def limit(self, own: Limits, row: Mapping[str, str], kind: Kind, source: str) -> dict[str, Value]:
        """Return the keys of a profile that limit jobs in a partition: its own limits and those of QoS."""
        over = self.qos.get(row.get("QoS", ""), {})  # the partition's QoS comes before a job's
        keys = _keys(_tightest(own, over), kind)
        source += f", sacctmgr show qos {row['QoS']}" if over else ""
        values = {}
        if "max_walltime" in keys:
            values["walltime"] = Value([Value({"max_walltime": keys["max_walltime"]}, source)])
        if "max_cores" in keys:
            values["max_cores"] = Value(keys["max_cores"], source)
        allowed, denied = listed(row.get("AllowQos", "")), listed(row.get("DenyQos", ""))
        usable = {
            name: _tightest(own, {**self.qos[name], **over})
            for name in self.mine
            if (not allowed or name.lower() in allowed) and name.lower() not in denied
        }
        # The default first, the shorter before the longer.
        ranked = sorted(usable, key=lambda name: (name != self.default, usable[name].get("seconds", YEAR)))
        if ranked:
            values["qos"] = Value([self._qos(name, _keys(usable[name], kind)) for name in ranked])
        return values

    def _qos(self, name: str, keys: dict[str, Any]) -> Value:
        found = {"name": name, "max_walltime": clock(YEAR), **keys}
        if name == self.default:
            return Value(found | {"default": True}, "your default")
        if name in self.preempted or "max_walltime" not in keys:
            found["automatic"] = False
        return Value(found, f"sacctmgr show qos {name}")


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


def _limits(wall: str, tres: str, jobs: str) -> Limits:
    found = {key: limit for key, limit in {"seconds": seconds(wall), "jobs": number(jobs)}.items() if limit}
    for key, _, amount in (pair.partition("=") for pair in tres.split(",")):
        if key in _TRES and (count := number(amount)):
            found = _tightest(found, {_TRES[key]: count})
    return found


def _tightest(own: Limits, other: Limits) -> Limits:
    return {key: min(own.get(key, limit), other.get(key, limit)) for key, limit in {**own, **other}.items()}


def _keys(limits: Limits, kind: Kind) -> dict[str, Any]:
    """Return the limits as keys of a profile."""
    nodes = limits.get("nodes", inf)
    sizes = {
        "max_gpus": min(limits.get("gpus", inf), nodes * kind.gpus) if kind.gpus else 0,
        "max_cores": min(limits.get("cpus", inf) / kind.threads, nodes * kind.cores),
        "max_jobs": limits.get("jobs", inf),
    }
    length = {"max_walltime": clock(limits["seconds"])} if "seconds" in limits else {}
    return length | {key: int(size) for key, size in sizes.items() if 1 <= size < inf}


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
