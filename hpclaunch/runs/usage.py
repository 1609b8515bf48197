"""What the nodes of a run noted of their use: samples, and when their ranks started, saved and ended."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from hpclaunch.runs.metrics import NUMBER
from hpclaunch.schedulers import run_folder

OF_NODE = CORES, MEMORY = "cores", "memory, GB"
_OF_GPU = GPU, _, _ = "GPU use, %", "GPU memory, MB", "GPU power, W"
_LEAST_SECONDS = 5  # between samples that say how many cores are in use: their times are whole seconds
Series = list[tuple[int, float]]  # values by their times, in seconds since 1970


class Node(Struct):
    """A node of a run: what it used, by kind and number of the GPU ("" for the node), and the events of its ranks."""

    number: int
    host: str = ""
    cpu_seconds: float = 0  # of all attempts
    times: list[tuple[int, int]] = []  # the first and the last of each attempt
    series: dict[tuple[str, str], Series] = {}
    events: list[tuple[int, str, str, str]] = []  # time, what, of which rank or node, exit code or -

    def gpus(self) -> list[tuple[str, str, float, float]]:
        """Return each GPU's host and number, and in percent its mean use and how often it was idle."""
        uses = {
            gpu: [use for _, use in series] for (kind, gpu), series in self.series.items() if kind == GPU and series
        }
        shares = {gpu: 100 * sum(use < 5 for use in found) / len(found) for gpu, found in uses.items()}
        return [(self.host, gpu, sum(found) / len(found), shares[gpu]) for gpu, found in uses.items()]


def read(folder: Path) -> list[Node]:
    """Return the nodes of a run that noted something; what cannot be read is left out."""
    return [_node(number, path) for number, path in run_folder.logs(folder, run_folder.USAGE).items()]


def _node(number: int, path: Path) -> Node:
    node = Node(number, series={(kind, ""): [] for kind in OF_NODE})
    before, last = (0, 0.0), 0.0  # a time and the seconds of cores until then
    for line in (run_folder.read(path.parent, path.name) or "").splitlines():
        with suppress(ValueError, IndexError, OverflowError):  # a line that a full disk has cut short
            at, words = int(line[:11].split()[0]), line.split()[1:]
            if words[0] == "node":
                node.host, before, last = words[1], (at, 0.0), 0.0
                node.times.append((at, at))
            elif not words[0].isdigit():
                what, kind, of, code = [*words, "-"][:4]
                node.events.append((at, what, f"{kind} {of}", code))
            else:
                cpu, found = int(words[0]) / 1000, {(MEMORY, ""): str(int(words[1]) / 1024)}
                node.times[-1] = (node.times[-1][0], at)
                node.cpu_seconds, last = node.cpu_seconds + max(cpu - last, 0), max(cpu, last)
                if at - before[0] >= _LEAST_SECONDS:
                    found[CORES, ""] = str((last - before[1]) / (at - before[0]))
                    before = at, last
                for gpu, *values in (word.split(",") for word in words[2:]):
                    found |= {(kind, gpu): value for kind, value in zip(_OF_GPU, values, strict=True)}
                for key, value in found.items():
                    if NUMBER.fullmatch(value):  # and not [N/A]
                        node.series.setdefault(key, []).append((at, float(value)))
    return node
