"""What a job costs at most: the site's charge for the whole walltime."""

from __future__ import annotations

import math

from msgspec import Struct

from hpclaunch.site import Partition


class Cost(Struct, frozen=True):
    """An amount in the site's own unit."""

    amount: float
    unit: str

    def __str__(self) -> str:
        return f"{self.amount:,.2f}".rstrip("0").rstrip(".") + f" {self.unit}"


def job_cost(
    partition: Partition, *, nodes: int, gpus_per_node: int, cpus_per_node: int, mem_gb: float, seconds: int
) -> Cost | None:
    """Return the cost of a job that runs for `seconds`, or None where the partition is free or its price unknown.

    Per core (Gadi): rate x hours x max(cores, memory / memory per core), opus.nci.org.au pageId=236880942.
    Per GPU (Jean-Zay): a larger share of a node's cores than of its GPUs counts as GPUs, IDRIS "heures-calcul".
    `cpus_per_node` and `gpus_per_node` are what the job occupies, `mem_gb` is the whole job's memory.
    """
    charge = partition.charge
    if charge is None:
        return None
    units: float
    if charge.per == "core":
        units = nodes * cpus_per_node
        if charge.mem_gb_per_core:
            units = max(units, mem_gb / charge.mem_gb_per_core)
    else:
        share = cpus_per_node / (partition.cores_per_node or cpus_per_node)
        units = nodes * max(gpus_per_node, math.ceil(share * partition.gpus_per_node))
    return Cost(round(charge.rate * units * seconds / 3600, 2), charge.unit)
