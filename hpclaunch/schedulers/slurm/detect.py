"""How Slurm describes its machine: https://slurm.schedmd.com/scontrol.html and its neighbours.

`scontrol --oneliner` rather than `--json`: each release has its own JSON (the scontrol of 22.05 has none),
while these lines are the same in all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from hpclaunch.errors import SchedulerError
from hpclaunch.schedulers.command import call
from hpclaunch.schedulers.machine import (
    SECONDS,
    WORD,
    Kind,
    Machine,
    Node,
    NodeGroup,
    Part,
    Value,
    gathered,
    grouped,
    kind_notes,
    kind_values,
    names,
    part_name,
)
from hpclaunch.schedulers.slurm.limits import Rules, listed, number, of_partition
from hpclaunch.schedulers.slurm.limits import ask as ask_rules

Row = Mapping[str, str]
_PAIR = re.compile(r"(?:^|\s)([A-Za-z][\w/:]*)=(.*?)(?=\s+[A-Za-z][\w/:]*=|\s*$)")
_NO_HYPERTHREADS = "--hint=nomultithread"
_ENOUGH = 0.9  # of a node's memory: then a job need not request it


def ask() -> Machine:
    """Ask the controller for partitions and nodes, the accounting for QoS and accounts. Raises SchedulerError."""
    config = dict(
        re.findall(r"^(\w+)\s*= (.*?)\s*$", call(["scontrol", "show", "config"], seconds=SECONDS).stdout, re.MULTILINE)
    )
    nodes = [pair for row in _rows("node") if (pair := _node(row))]
    rows = {name: row for row in _rows("partition") if (name := row.get("PartitionName"))}
    if not rows:
        raise SchedulerError("scontrol show partition names no partition; may you ask Slurm from this host?")
    rules = ask_rules(config)
    own = {name: [node for node, partitions in nodes if name in partitions] for name in rows}
    parts, left_out = gathered(
        rows,
        lambda name: _unusable(name, rows[name], own[name], rules),
        lambda name: _parts(name, rows, own[name], rules),
    )
    return Machine(
        scheduler="slurm",
        source=f"Slurm {config.get('SLURM_VERSION', '')} on cluster {config.get('ClusterName', '')}",
        default_partition=_default(rows, parts),
        parts=parts,
        values=_site_values(rows, parts, [node for node, _ in nodes], config),
        accounts=rules.accounts,
        notes=rules.notes,
        left_out=left_out,
    )


def _rows(kind: str) -> list[dict[str, str]]:
    """Return what `scontrol show` says of each; of two equal keys the first counts.

    A value may have blanks: it ends before the next key.
    """
    answer = call(["scontrol", "--oneliner", "show", kind], seconds=SECONDS).stdout
    return [dict(reversed(_PAIR.findall(line))) for line in answer.splitlines()]


def _node(row: Row) -> tuple[Node, list[str]] | None:
    """Return a node and its partitions, or None if the line has no size."""
    cpus = number(row.get("CPUEfctv")) or number(row.get("CPUTot"))  # the former lacks what the system keeps
    if not cpus or "NodeName" not in row:
        return None
    gpus, model = _gpus(row.get("Gres", ""))
    threads = _threads(row)
    megabytes = (number(row.get("RealMemory")) or 0) - (number(row.get("MemSpecLimit")) or 0)
    kind = Kind(max(cpus // threads, 1), gpus, model, max(megabytes // 1024, 0), threads)
    words = row.get("ActiveFeatures", row.get("AvailableFeatures", ""))
    features = frozenset(word for word in words.split(",") if WORD.match(word))  # not (null)
    return Node(row["NodeName"], kind, features), row.get("Partitions", "").split(",")


def _threads(row: Row) -> int:
    """Count what Slurm calls cpus in a core: its hyperthreads, or 1 if Slurm counts cores."""
    threads = number(row.get("ThreadsPerCore")) or 1
    cores = (number(row.get("Sockets")) or 0) * (number(row.get("CoresPerSocket")) or 0)
    return threads if cores and number(row.get("CPUTot")) == cores * threads else 1


def _gpus(gres: str) -> tuple[int, str]:
    """Count the GPUs in `gpu:a100:4(S:0-1),gpu:t4:2,shard:8`, and name their models."""
    count, models = 0, []
    for entry in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *rest = entry.split(":")
        if name == "gpu":
            count += int(rest.pop()) if rest and rest[-1].isdigit() else 1
            models += rest
    return count, ", ".join(dict.fromkeys(models))


def _unusable(name: str, row: Row, nodes: Sequence[Node], rules: Rules) -> str | None:
    """Return why a partition is of no use to this user, or None if it is."""
    accounts = {account.lower() for account in rules.accounts.value}
    allowed, denied = listed(row.get("AllowAccounts", "")), listed(row.get("DenyAccounts", ""))
    reasons = {
        "a profile's names have no such characters": not WORD.match(name),
        "no nodes": not nodes,
        f"State={row.get('State')}": row.get("State", "UP") != "UP",
        "RootOnly=YES": row.get("RootOnly") == "YES",
        f"not for your accounts, AllowAccounts={row.get('AllowAccounts')}": accounts
        and allowed
        and not accounts & allowed,
        f"not for your accounts, DenyAccounts={row.get('DenyAccounts')}": accounts and accounts <= denied,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _parts(name: str, rows: Mapping[str, Row], nodes: list[Node], rules: Rules) -> Iterator[Part]:
    """Draft a partition, and one more for each further kind of node that a job can ask for."""
    row, found = rows[name], grouped(nodes)
    for group in found:
        if group.suffix is None:
            continue
        values = {}
        if group.suffix:
            words = [f"--partition={name}", *([f"--constraint={group.feature}"] if group.feature else [])]
            values["directives"] = Value(words, "the commonest kind of node is above")
        kind, said = group.kind, f"scontrol show node {group.nodes[0].name}"
        values |= kind_values(kind, said)
        values |= _cut(name, row, kind)
        kind = Kind(values["cores_per_node"].value, kind.gpus, kind.gpu, kind.mem_gb, kind.threads)
        values |= _cpus_per_gpu(name, row, kind)
        values |= of_partition(name, row, kind, rules)
        yield Part(part_name(name, group, rows), values, _notes(row, found, group))


def _notes(row: Row, found: Sequence[NodeGroup], group: NodeGroup) -> list[str]:
    if group is not found[0]:
        return [names(group.nodes)]
    notes = kind_notes(found)
    if len(found) > 1 and group.feature:
        notes.append(f"--directive=--constraint={group.feature} keeps a job to the commonest kind")
    if len(found) == 1 and (features := frozenset[str]().union(*(node.features for node in group.nodes))):
        notes.append(f"Features, for --directive=--constraint=NAME: {', '.join(sorted(features))}")
    notes += [
        f"{key}={row[key]}" for key in ("AllowAccounts", "AllowGroups", "DenyAccounts") if listed(row.get(key, ""))
    ]
    if (number(row.get("MinNodes")) or 0) > 1:
        notes.append(f"Decide: a job here has at least {row['MinNodes']} nodes (MinNodes)")
    if row.get("OverSubscribe") == "EXCLUSIVE":
        notes.append("Jobs get whole nodes (OverSubscribe=EXCLUSIVE)")
    if "TRESBillingWeights" in row:
        notes.append(f"Decide: charge; Slurm's own weights are {row['TRESBillingWeights']}")
    return notes


def _cut(name: str, row: Row, kind: Kind) -> dict[str, Value]:
    """Return what jobs may have of a node, if that is less than all."""
    values = {}
    said = f"scontrol show partition {name}"
    cpus = number(row.get("MaxCPUsPerNode"))
    if cpus and cpus // kind.threads < kind.cores:
        values["cores_per_node"] = Value(max(cpus // kind.threads, 1), f"{said}: MaxCPUsPerNode")
    memory = number(row.get("MaxMemPerNode"))
    if memory and 0 < memory // 1024 < kind.mem_gb:
        values["mem_gb_per_node"] = Value(memory // 1024, f"{said}: MaxMemPerNode")
    return values


def _cpus_per_gpu(name: str, row: Row, kind: Kind) -> dict[str, Value]:
    match = re.search(r"DefCpuPerGPU=(\d+)", row.get("JobDefaults", ""))
    share = int(match[1]) // kind.threads if match else 0
    if not kind.gpus or not 0 < share * kind.gpus <= kind.cores:
        return {}
    return {"cpus_per_gpu": Value(share, f"scontrol show partition {name}: JobDefaults")}


def _default(rows: Mapping[str, Row], parts: Sequence[Part]) -> Value:
    for part in parts:
        if rows.get(part.name, {}).get("Default") == "YES":
            return Value(part.name, f"scontrol show partition {part.name}: Default=YES")
    return Value(parts[0].name, "Decide: Slurm has no default partition here, this is the first")


def _site_values(
    rows: Mapping[str, Row], parts: Sequence[Part], nodes: Sequence[Node], config: Row
) -> dict[str, Value]:
    """Return the keys of the whole site."""
    values: dict[str, Value] = {}
    used = [row for name, row in rows.items() if any(part.name == name for part in parts)]
    if config.get("SelectType") == "select/linear":
        values["multi_node"] = Value("exclusive", "scontrol show config: SelectType=select/linear")
    elif all(row.get("OverSubscribe") == "EXCLUSIVE" for row in used):
        values["multi_node"] = Value("exclusive", "scontrol show partition: OverSubscribe=EXCLUSIVE everywhere")
    if any(node.kind.threads > 1 for node in nodes):
        values["directives"] = Value([_NO_HYPERTHREADS], "Slurm counts hyperthreads as cpus, this profile cores")
    short = [name for name, row in rows.items() if _gives_little(row, name, nodes, parts)]
    if short:
        why = f"jobs that request none get less than a node's in {', '.join(short)} (DefMemPerCPU, DefMemPerNode)"
        values["ask_memory"] = Value(True, why)
    return values


def _gives_little(row: Row, name: str, nodes: Sequence[Node], parts: Sequence[Part]) -> bool:
    """Tell whether a job on a whole node that requests no memory gets much less than there is."""
    part = next((part for part in parts if part.name == name), None)
    if part is None or "mem_gb_per_node" not in part.values:
        return False
    threads = max((node.kind.threads for node in nodes), default=1)
    given = number(row.get("DefMemPerNode"))
    if per_cpu := number(row.get("DefMemPerCPU")):
        given = per_cpu * part.values["cores_per_node"].value * threads
    return given is not None and given / 1024 < _ENOUGH * float(part.values["mem_gb_per_node"].value)
