"""Scaling studies. Here is their arithmetic: speed-up and efficiency, the fit of a law, the sizes to choose from."""

from __future__ import annotations

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
    """A study's results, and why jobs are left out. Speed-up and efficiency are those against the smallest size.

    The serial fraction of the smallest size's work, from 0 to 1, is the parameter of Amdahl's law, or of Gustafson's
    if the scaling is weak. It is None for fewer than two sizes.
    """

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
        gains = [(size.nodes / self.sizes[0].nodes, size.speed_up) for size in self.sizes[1:]]
        # Least squares: Gustafson's law is linear in s as a speed-up, Amdahl's as a time.
        terms = [(n - 1, n - gain) if self.weak else (1 - 1 / n, 1 / gain - 1 / n) for n, gain in gains]
        if terms:
            self.serial_fraction = min(max(sum(x * y for x, y in terms) / sum(x * x for x, _ in terms), 0.0), 1.0)

    def fitted(self, n: float) -> float:
        """Return the speed-up on n times the smallest size: 1 / (s + (1 - s) / n), in weak scaling n - s (n - 1)."""
        s = self.serial_fraction or 0.0
        return n - s * (n - 1) if self.weak else 1 / (s + (1 - s) / n)

    @property
    def caption(self) -> str:
        """Return what a reader of the picture has to know."""
        kind, law = ("weak scaling", "Gustafson") if self.weak else ("strong scaling", "Amdahl")
        s = self.serial_fraction
        fit = [] if s is None else [f"{law}'s law with a serial fraction of {100 * s:.3g} %"]
        return ", ".join([self.place, kind, *fit, *(" ".join(one) for one in self.versions.items()), self.date])

    @property
    def choice(self) -> dict[str, int]:
        """Return the nodes of the cheapest size within GOOD efficiency, and the fastest."""
        good = [size for size in self.sizes if size.efficiency >= GOOD]
        cheapest = min(good, key=lambda size: (size.epoch_price or size.nodes / size.samples_per_second, size.nodes))
        return {"cheapest": cheapest.nodes, "fastest": max(good, key=lambda size: size.samples_per_second).nodes}
