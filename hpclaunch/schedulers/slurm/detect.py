"""How Slurm describes its machine: https://slurm.schedmd.com/scontrol.html and its neighbours.

`scontrol --oneliner` rather than `--json`: each release has its own JSON (the scontrol of 22.05 has none),
while these lines are the same in all.
"""

import re
from collections.abc import Mapping, Sequence

from hpclaunch.errors import SchedulerError
from hpclaunch.schedulers.command import call
from hpclaunch.schedulers.machine import SECONDS, WORD, Kind, Machine, Part, Value, commonest
from hpclaunch.schedulers.slurm.accounting import Accounting, listed, number, seconds

Row = Mapping[str, str]
_PAIR = re.compile(r"(?:^|\s)([A-Za-z][\w/:]*)=(.*?)(?=\s+[A-Za-z][\w/:]*=|\s*$)")
_ENOUGH = 0.9  # of a node's memory: then a job need not request it


def ask() -> Machine:
    """Ask the controller for partitions and nodes, the accounting for QoS and accounts. Raises SchedulerError."""
    config = call(["scontrol", "show", "config"], seconds=SECONDS).stdout
    said = dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", config, re.MULTILINE))
    nodes = [(row, kind) for row in _rows("node") if (kind := _kind(row))]
    rows = {name: row for row in _rows("partition") if (name := row.get("PartitionName"))}
    if not rows:
        raise SchedulerError("scontrol show partition names no partition; may you ask Slurm from this host?")
    accounting = Accounting.ask()
    partitions = {name: _part(name, row, nodes, accounting) for name, row in rows.items()}
    parts = {name: part for name, part in partitions.items() if isinstance(part, Part)}
    threads = max((kind.threads for _, kind in nodes), default=1)
    values = {}
    if all(rows[name].get("OverSubscribe") == "EXCLUSIVE" for name in parts):
        values["multi_node"] = Value("exclusive", "scontrol show partition: OverSubscribe=EXCLUSIVE everywhere")
    if threads > 1:
        values["directives"] = Value(["--hint=nomultithread"], "Slurm counts hyperthreads as cpus, this profile cores")
    if little := [name for name, part in parts.items() if _gives_little(rows[name], part, threads)]:
        source = f"jobs that request none get less than a node's in {', '.join(little)} (DefMemPerCPU, DefMemPerNode)"
        values["ask_memory"] = Value(True, source)
    default = next((name for name, row in rows.items() if row.get("Default") == "YES"), "")
    return Machine(
        scheduler="slurm",
        source=f"Slurm {said.get('SLURM_VERSION', '')} on cluster {said.get('ClusterName', '')}",
        default_partition=Value(default, f"scontrol show partition {default}: Default=YES"),
        partitions=partitions,
        values=values,
        accounts=accounting.accounts,
        notes=accounting.notes,
    )


def _rows(kind: str) -> list[dict[str, str]]:
    """Return what `scontrol show` says of each; of two equal keys the first counts.

    A value may have blanks: it ends before the next key.
    """
    answer = call(["scontrol", "--oneliner", "show", kind], seconds=SECONDS).stdout
    return [dict(reversed(_PAIR.findall(line))) for line in answer.splitlines()]


def _kind(row: Row) -> Kind | None:
    """Return the size of a node, or None if the line has none. Slurm counts cores or hyperthreads as cpus."""
    every, threads, sockets, per_socket, memory, kept = (
        number(row.get(key)) or 0
        for key in ("CPUTot", "ThreadsPerCore", "Sockets", "CoresPerSocket", "RealMemory", "MemSpecLimit")
    )
    cpus = number(row.get("CPUEfctv")) or every  # the former lacks what the system keeps
    if not cpus or "NodeName" not in row:
        return None
    if not threads or every != sockets * per_socket * threads:
        threads = 1
    gpus, model = _gpus(row.get("Gres", ""))
    return Kind(max(cpus // threads, 1), gpus, model, max(memory - kept, 0) // 1024, threads)


def _gpus(gres: str) -> tuple[int, str]:
    """Count the GPUs in `gpu:a100:4(S:0-1),gpu:t4:2,shard:8`, and name their models."""
    count, models = 0, []
    for entry in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *rest = entry.split(":")
        if name == "gpu":
            count += int(rest.pop()) if rest and rest[-1].isdigit() else 1
            models += rest
    return count, ", ".join(dict.fromkeys(models))


def _part(name: str, row: Row, every: Sequence[tuple[Row, Kind]], accounting: Accounting) -> Part | str:
    """Draft a partition, or return why it is of no use to this user."""
    nodes = [(node, kind) for node, kind in every if name in node.get("Partitions", "").split(",")]
    mine, allowed = {account.lower() for account in accounting.accounts.value}, listed(row.get("AllowAccounts", ""))
    if not WORD.match(name):
        return "a profile's names have no such characters"
    if mine and allowed and not mine & allowed:
        return f"not for your accounts, AllowAccounts={row['AllowAccounts']}"
    if row.get("State", "UP") != "UP" or not nodes:
        return f"State={row['State']}" if nodes else "no nodes"
    kind, notes = commonest({node["NodeName"]: kind for node, kind in nodes})
    values = kind.values("scontrol show node")
    said = f"scontrol show partition {name}"
    cpus = number(row.get("MaxCPUsPerNode"))
    if cpus and cpus < kind.cores * kind.threads:
        values["cores_per_node"] = Value(max(cpus // kind.threads, 1), f"{said}: MaxCPUsPerNode")
    limits = {"seconds": seconds(row.get("MaxTime", "")), "nodes": number(row.get("MaxNodes"))}
    own = {key: limit for key, limit in limits.items() if limit}
    values |= accounting.limit(own, row, Kind(values["cores_per_node"].value, kind.gpus, threads=kind.threads), said)
    words = {word for node, _ in nodes for word in node.get("ActiveFeatures", "").split(",") if WORD.match(word)}
    if words:
        notes.append(f"Features, for --directive=--constraint=NAME: {', '.join(sorted(words))}")
    if (number(row.get("MinNodes")) or 0) > 1:
        notes.append(f"Decide: a job here has at least {row['MinNodes']} nodes (MinNodes)")
    if "TRESBillingWeights" in row:
        notes.append(f"Decide: charge; Slurm's own weights are {row['TRESBillingWeights']}")
    return Part(values, notes)


def _gives_little(row: Row, part: Part, threads: int) -> bool:
    """Tell whether a job on a whole node that requests no memory gets much less than there is."""
    given = number(row.get("DefMemPerNode"))
    if per_cpu := number(row.get("DefMemPerCPU")):
        given = per_cpu * int(part.values["cores_per_node"].value) * threads
    memory = part.values.get("mem_gb_per_node", Value(0)).value
    return given is not None and given / 1024 < _ENOUGH * memory
