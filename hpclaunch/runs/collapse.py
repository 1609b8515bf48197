"""Lines that many ranks wrote alike at about the same place, folded into one, in as little memory as it takes."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

NEAR = 100  # lines that ranks may be apart and still be folded
TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass
class _Line:
    text: str
    clock: int
    ranks: set[str]


@dataclass
class Folder:
    """Lines in the order of first sight, each with the ranks that wrote it, held back while more ranks may come.

    A rank's clock counts its lines. One that writes what another wrote takes that line's clock, so that ranks which
    write more than others, or less, meet again.
    """

    expected: int = 0
    top: int = 0
    held: deque[_Line] = field(default_factory=deque)
    same: dict[str, deque[_Line]] = field(default_factory=dict)

    def add(self, rank: str, text: str, clock: int) -> int:
        """Take a line of a rank at `clock`; return the rank's new clock."""
        alike = self.same.setdefault(text, deque())
        for line in alike:
            if rank not in line.ranks and abs(clock - line.clock) <= NEAR:
                line.ranks.add(rank)
                return line.clock
        line = _Line(text, clock + 1, {rank})
        alike.append(line)
        self.held.append(line)
        self.top = max(self.top, line.clock)
        return line.clock

    def ready(self, before: float = float("inf")) -> Iterator[tuple[str, str]]:
        """Let go of the lines, from the first on, that `expected` ranks wrote or whose clock is below `before`."""
        while self.held and (len(self.held[0].ranks) >= self.expected or self.held[0].clock < before):
            line = self.held.popleft()
            self.same[line.text].popleft()
            if not self.same[line.text]:
                del self.same[line.text]
            yield (f"{TIMES}{len(line.ranks)}" if len(line.ranks) > 1 else next(iter(line.ranks))), line.text

    def take(self, sources: Mapping[str, Iterator[str]]) -> Iterator[tuple[str, str]]:
        """Read the lines of all ranks, always of the one that is furthest behind, and yield what is ready."""
        names = list(sources)
        turns = [(self.top, place) for place in range(len(names))]
        while turns:
            clock, place = turns[0]
            line = next(sources[names[place]], None)
            if line is None:
                heapq.heappop(turns)
            else:
                heapq.heapreplace(turns, (self.add(names[place], line, clock), place))
            if turns:
                yield from self.ready(before=turns[0][0] - NEAR)


def fold(lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Fold one batch of (rank, line): yield (rank, line), with a count for a rank where several wrote it.

    A rank that repeats a line itself gives it again.
    """
    folder = Folder()
    for rank, line in lines:
        folder.add(rank, line, 0)
    return folder.ready()
