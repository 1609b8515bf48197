"""What a job costs at most: the site's charge for the whole walltime, and its formula."""

from __future__ import annotations

import math

from msgspec import Struct

from hpclaunch.errors import counted
from hpclaunch.profile.model import Charge, Partition


class Cost(Struct, frozen=True):
    """An amount in the site's own unit, and its formula."""

    amount: float
    unit: str
    formula: str = ""

    def __str__(self) -> str:
        return f"{self.amount:,.2f}".rstrip("0").rstrip(".") + f" {self.unit}"

    @property
    def explained(self) -> str:
        """Return the amount with its formula: `716.23 SU = 3 SU x 5 h x max(12 cpus, 380 GB / 7.95833 GB)`."""
        return f"{self} = {self.formula}" if self.formula else str(self)


def job_cost(
    partition: Partition,
    *,
    nodes: int,
    gpus_per_node: int,
    cpus_per_node: int,
    mem_gb: float,
    seconds: int,
    attempts: int = 1,
) -> Cost | None:
    """Return the cost of a job of so many seconds in each attempt, or None if it is free or its price is not known.

    Per core (Gadi): rate x hours x max(cores, memory / memory per core), opus.nci.org.au pageId=236880942.
    Per GPU (Jean-Zay): a larger share of a node's cores than of its GPUs counts as GPUs, IDRIS "heures-calcul".
    `cpus_per_node` and `gpus_per_node` are what the job occupies, `mem_gb` is the whole job's memory.
    """
    charge = partition.charge
    if charge is None:
        return None
    if charge.per == "core":
        units, said = _cores(nodes * cpus_per_node, mem_gb, charge)
    else:
        units, said = _gpus(partition, nodes, gpus_per_node, cpus_per_node)
    factors = [
        f"{charge.rate:g} {charge.unit}" if charge.rate != 1 else "",
        f"{attempts} attempts" if attempts > 1 else "",
        f"{seconds / 3600:.6g} h",
        said,
    ]
    amount = round(charge.rate * units * attempts * seconds / 3600, 2)
    return Cost(amount, charge.unit, " x ".join(filter(None, factors)))


def charged_gb(charge: Charge, mem_gb: float) -> float:
    """Return the GB that are charged for `mem_gb`: whole blocks if the site charges by the block."""
    block = charge.mem_gb_block
    return math.ceil(mem_gb / block - 1e-9) * block if block else mem_gb


def _cores(cpus: int, mem_gb: float, charge: Charge) -> tuple[float, str]:
    """Return the cores that are charged: the job's, or what its memory amounts to; and the formula."""
    share, charged = charge.mem_gb_per_core, charged_gb(charge, mem_gb)
    if not (mem_gb and share):
        return cpus, counted(cpus, "cpu")
    blocks = f" in blocks of {charge.mem_gb_block:g} GB = {charged:.6g} GB" if charged != mem_gb else ""
    return max(cpus, charged / share), f"max({counted(cpus, 'cpu')}, {mem_gb:.6g} GB{blocks} / {share:.6g} GB)"


def _gpus(partition: Partition, nodes: int, gpus: int, cpus: int) -> tuple[int, str]:
    """Return the GPUs that are charged: the job's, or those whose cores it uses, rounded up; and the formula."""
    cores = partition.cores_per_node or cpus
    taken = -(-cpus * partition.gpus_per_node // cores)
    said = counted(gpus, "GPU")
    if taken > gpus:
        said = f"max({said}, {cpus} of {cores} cpus = {counted(taken, 'GPU')})"
    return nodes * max(gpus, taken), f"{nodes} nodes x {said}" if nodes > 1 else said
