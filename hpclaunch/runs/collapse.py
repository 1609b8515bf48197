"""Lines that many ranks wrote alike at about the same place, collapsed into one, in as little memory as it takes."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

NEAR = 100  # lines that ranks may be apart and still be collapsed
TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass
class _Line:
    text: str
    clock: int
    ranks: set[str]


@dataclass
class Collapse:
    """Lines in the order of first sight, each with the ranks that wrote it, held back while more ranks may come.

    A rank's clock counts its lines. One that writes what another wrote takes that line's clock, so that ranks which
    write more than others, or less, meet again.
    """

    expected: int = 0  # ranks
    clock: int = 0  # the highest of any line
    held: deque[_Line] = field(default_factory=deque)
    alike: dict[str, deque[_Line]] = field(default_factory=dict)  # those that are held, by text

    def add(self, rank: str, text: str, clock: int) -> int:
        """Take a line of a rank at `clock`; return the rank's new clock."""
        alike = self.alike.setdefault(text, deque())
        for line in alike:
            if rank not in line.ranks and abs(clock - line.clock) <= NEAR:
                line.ranks.add(rank)
                return line.clock
        line = _Line(text, clock + 1, {rank})
        alike.append(line)
        self.held.append(line)
        self.clock = max(self.clock, line.clock)
        return line.clock

    def release(self, before: float = float("inf")) -> Iterator[str]:
        """Yield the lines, from the first on, that `expected` ranks wrote or whose clock is below `before`."""
        while self.held and (len(self.held[0].ranks) >= self.expected or self.held[0].clock < before):
            line = self.held.popleft()
            self.alike[line.text].popleft()
            if not self.alike[line.text]:
                del self.alike[line.text]
            label = f"{TIMES}{len(line.ranks)}" if len(line.ranks) > 1 else next(iter(line.ranks))
            yield f"[{label}] {line.text}" if label else line.text

    def merge(self, sources: Mapping[str, Iterator[str]]) -> Iterator[str]:
        """Read the lines of all ranks, always of the one that is furthest behind, and yield what is complete."""
        names = list(sources)
        turns = [(self.clock, place) for place in range(len(names))]
        while turns:
            clock, place = turns[0]
            line = next(sources[names[place]], None)
            if line is None:
                heapq.heappop(turns)
            else:
                heapq.heapreplace(turns, (self.add(names[place], line, clock), place))
            if turns:
                yield from self.release(before=turns[0][0] - NEAR)
