"""Where ranks hung: the stacks that a job with --hang-after left in their .err, in one sentence."""

import re
from collections import defaultdict
from pathlib import Path, PurePath
from typing import NamedTuple

from hpclaunch.runs import logs
from hpclaunch.schedulers import run_folder

_RANK = re.compile(r"--- rank (\d+) hangs ---")
_THREAD = re.compile(r"(?:Current thread|Thread) (?:0x)?[0-9a-f]+.*")  # py-spy's, faulthandler's
# `  File "train.py", line 88 in step` of the faulthandler, `    step (train.py:88)` of py-spy.
_FRAME = re.compile(
    r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.+)| {4}(?P<a>\S+) \((?P<b>.+):(?P<c>\d+)\)'
)
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib(64)?/python3|^<frozen ")
_WRAPPERS = {"wrapper", "_wrapper", "inner", "_fn", "decorate_context", "__call__"}
_LINES = 2000  # at the end of a log, in which the stacks are


class Frame(NamedTuple):
    """A function that is running, and the line at which it is."""

    file: str
    line: str
    name: str

    @property
    def place(self) -> str:
        """Return file and line, without the folder."""
        return f"{PurePath(self.file).name}:{self.line}"


def describe(folder: Path) -> list[str]:
    """Return the sentence that tells the ranks apart by where they hung; nothing if there are no stacks."""
    stacks = _stacks(folder)
    groups = _groups({rank: _own(stack) for rank, stack in stacks.items()})
    if len(groups) < 2:  # all at the same line of their program
        groups = _groups({rank: f"{stack[0].name} at {stack[0].place}" for rank, stack in stacks.items()})
    largest_first = sorted(groups.items(), key=lambda group: -len(group[1]))
    verbs = [("waits", "wait"), *[("is", "are")] * len(groups)]
    parts = [
        f"{_ranks(ranks)} {verb[len(ranks) > 1]} in {where}"
        for verb, (where, ranks) in zip(verbs, largest_first, strict=False)
    ]
    return [f"R{', '.join(parts)[1:]}."] if parts else []


def _stacks(folder: Path) -> dict[int, list[Frame]]:
    """Return the frames of each rank's main thread, the innermost first."""
    stacks = {}
    for kind in (run_folder.RANK_ERR, run_folder.NODE_ERR):
        for path in run_folder.logs(folder, kind).values():
            lines = logs.tail(path, _LINES) if run_folder.holds(folder, path) else []
            starts = [i for i, line in enumerate(lines) if _RANK.fullmatch(line)]
            for start, end in zip(starts, [*starts, len(lines)][1:], strict=True):
                rank = int(lines[start][9:-10])
                if stack := _main_thread(lines[start:end]):
                    stacks[rank] = stack
    return dict(sorted(stacks.items()))


def _main_thread(lines: list[str]) -> list[Frame]:
    """Return the frames of the main thread, which py-spy names and the faulthandler prints last."""
    threads: list[tuple[str, list[Frame]]] = []
    for line in lines:
        if _THREAD.fullmatch(line):
            threads.append((line, []))
        elif threads and (found := _FRAME.fullmatch(line)):
            name = (found["name"] or found["a"]).rpartition("<locals>.")[2]
            threads[-1][1].append(Frame(found["file"] or found["b"], found["line"] or found["c"], name))
    named = [frames for title, frames in threads if "MainThread" in title]
    return (named or [frames for _, frames in threads if frames] or [[]])[-1]


def _own(stack: list[Frame]) -> str:
    """Return the innermost line of the program itself, and the innermost function of a package below it."""
    called: Frame | None = None
    for frame in stack:
        if not _LIBRARY.search(frame.file):
            return f"{(called or frame).name} at {frame.place}"
        if "-packages/" in frame.file and frame.name not in _WRAPPERS:
            called = called or frame
    return f"{stack[0].name} at {stack[0].place}"


def _groups(places: dict[int, str]) -> dict[str, list[int]]:
    groups = defaultdict(list)
    for rank, place in places.items():
        groups[place].append(rank)
    return groups


def _ranks(ranks: list[int]) -> str:
    """Return `rank 7`, or `ranks 0-3, 5`."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][-1] + 1:
            spans[-1][1:] = [rank]
        else:
            spans.append([rank])
    return ("ranks " if len(ranks) > 1 else "rank ") + ", ".join("-".join(map(str, span)) for span in spans)
