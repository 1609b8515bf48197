"""The arithmetic of a scaling study: speed-up and efficiency, the fit of a law, the sizes to choose from."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

GOOD = 0.8  # the efficiency that proposals ask for


class Size(Struct, kw_only=True):
    """What was measured on so many nodes: samples/s of all ranks, an epoch's time and price if they are known."""

    nodes: int
    ranks: int
    job: str
    samples_per_second: float
    epoch_seconds: float | None = None
    epoch_price: float | None = None
    speed_up: float = 1
    efficiency: float = 1


class Scaling(Struct, kw_only=True):
    """A study's results, and why jobs are left out. Speed-up and efficiency are those against the smallest size."""

    id: str
    place: str
    weak: bool
    date: str
    unit: str = ""  # of prices
    versions: dict[str, str] = {}  # of packages
    sizes: list[Size] = []
    left_out: dict[str, str] = {}
    serial_fraction: float | None = None

    def compare(self) -> None:
        """Fill in what follows from samples/s."""
        self.sizes.sort(key=lambda size: size.nodes)
        for size in self.sizes:
            size.speed_up = size.samples_per_second / self.sizes[0].samples_per_second
            size.efficiency = size.speed_up * self.sizes[0].nodes / size.nodes
        gains = {size.nodes / self.sizes[0].nodes: size.speed_up for size in self.sizes}
        self.serial_fraction = serial_fraction(gains, self.weak)

    @property
    def caption(self) -> str:
        """Return what a reader of the picture has to know."""
        words = [self.place, f"{'weak' if self.weak else 'strong'} scaling"]
        if self.serial_fraction is not None:
            law = "Gustafson" if self.weak else "Amdahl"
            words += [f"{law}'s law with a serial fraction of {100 * self.serial_fraction:.2g} %"]
        return ", ".join([*words, *(" ".join(one) for one in self.versions.items()), self.date])

    @property
    def choice(self) -> dict[str, int]:
        """Return the nodes of the cheapest size within GOOD efficiency, by node-hours without prices, and the fastest."""
        good = [size for size in self.sizes if size.efficiency >= GOOD]
        cheapest = min(good, key=lambda size: (size.epoch_price or size.nodes / size.samples_per_second, size.nodes))
        return {"cheapest": cheapest.nodes, "fastest": max(good, key=lambda size: size.samples_per_second).nodes}


def serial_fraction(gains: Mapping[float, float], weak: bool) -> float | None:
    """Return the serial fraction, from 0 to 1, of the law that fits speed-ups by least squares, or None for only one.

    `gains` has the speed-up by the nodes, both in those of the smallest size. Amdahl's law is linear in the fraction as
    the time 1 / speed-up, Gustafson's as the speed-up, so that each fit is a quotient of two sums.
    """
    terms = [(n - 1, n - gain) if weak else (1 - 1 / n, 1 / gain - 1 / n) for n, gain in gains.items() if n > 1]
    return min(max(sum(x * y for x, y in terms) / sum(x * x for x, _ in terms), 0.0), 1.0) if terms else None


def speed_up(n: float, serial: float, weak: bool) -> float:
    """Return the speed-up on n times the nodes: Amdahl's law 1 / (s + (1 - s) / n), or Gustafson's n - s (n - 1)."""
    return n - serial * (n - 1) if weak else 1 / (serial + (1 - serial) / n)
