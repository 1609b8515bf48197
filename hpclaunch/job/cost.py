"""What a job costs at most: the site's charge for the whole walltime, and its formula."""

from __future__ import annotations

import math

from msgspec import Struct

from hpclaunch.errors import counted
from hpclaunch.profile.model import Charge


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
    charge: Charge | None, *, nodes: int, gpus: int, cpus: int, mem_gb: float, seconds: int, attempts: int = 1
) -> Cost | None:
    """Return the cost of a job of so many seconds in each attempt, or None without a charge: free, or not known.

    `gpus`, `cpus` and `mem_gb` are what the whole job occupies.
    """
    if charge is None:
        return None
    units = shares(charge, nodes=nodes, gpus=gpus, cpus=cpus, mem_gb=mem_gb)
    texts = ", ".join(text for _, text in units.values())
    factors = [
        f"{charge.rate:g} {charge.unit}" if charge.rate != 1 else "",
        f"{attempts} attempts" if attempts > 1 else "",
        f"{seconds / 3600:.6g} h",
        f"max({texts})" if len(units) > 1 else texts,
    ]
    amount = round(charge.rate * max(number for number, _ in units.values()) * attempts * seconds / 3600, 2)
    return Cost(amount, charge.unit, " x ".join(filter(None, factors)))


def shares(charge: Charge, *, nodes: int, gpus: int, cpus: int, mem_gb: float) -> dict[str, tuple[float, str]]:
    """Return what each resource of a job is charged as, by the charge's key for it, and the formula.

    Gadi: max(cores, memory / memory per core), opus.nci.org.au pageId=236880942. Jean-Zay: a larger share of a node's
    cores than of its GPUs counts as GPUs, IDRIS "heures-calcul".
    """
    block = charge.mem_gb_block
    charged = math.ceil(mem_gb / block - 1e-9) * block if block else mem_gb
    blocks = f" in blocks of {block:g} GB = {charged:.6g} GB" if charged != mem_gb else ""
    found: dict[str, tuple[float, str]] = {}
    for key, number, each, said, unit in (
        ("gpus", gpus, charge.gpus or float(charge.per == "gpu"), counted(gpus, "GPU"), ""),
        ("cores", cpus, charge.cores or float(charge.per == "core"), counted(cpus, "cpu"), ""),
        ("mem_gb", charged, charge.mem_gb, f"{mem_gb:.6g} GB{blocks}", " GB"),
    ):
        if each and (number or f"{charge.per}s" == key):
            text = said + (f" / {each:.6g}{unit}" if each > 1 or unit else f" x {1 / each:.6g}" if each < 1 else "")
            whole = math.ceil(number / each - 1e-9)
            rounded = charge.round_up and abs(whole - number / each) > 1e-9
            found[key] = (whole, f"{text} = {whole}") if rounded else (number / each, text)
    return found or {"nodes": (nodes, counted(nodes, "node"))}
