"""Where ranks hung: the stacks that a job with --hang-after left in their .err, in one sentence."""

import re
from pathlib import Path, PurePath

from hpclaunch.runs import logs
from hpclaunch.schedulers import run_folder

Frame = tuple[str, str, str]  # file, line, function
_RANK = re.compile(r"^--- rank (\d+) hangs ---$", re.MULTILINE)
_THREAD = re.compile(r"^(?=(?:Current thread|Thread) (?:0x)?[0-9a-f]+)", re.MULTILINE)
_FAULTHANDLER = re.compile(r'^  File "(.*)", line (\d{1,6}) in (.+)$', re.MULTILINE)  # torn frames have no such line
_PY_SPY = re.compile(r"^ {4}(?:\S*<locals>\.)?(?P<name>\S+) \((?P<file>.+):(?P<line>\d+)\)$", re.MULTILINE)
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib(64)?/python3|^<frozen ")
_WRAPPERS = {"wrapper", "_wrapper", "inner", "_fn", "decorate_context", "__call__"}
_LINES = 2000  # at the end of a log, in which the stacks are


def describe(folder: Path) -> list[str]:
    """Return the sentence that tells the ranks apart by where they hung; nothing if there are no stacks."""
    stacks, groups = _stacks(folder), dict[str, list[int]]()
    for place in (_own, _innermost):
        if len(groups) < 2:  # all at the same line of their program
            groups = {}
            for rank, stack in sorted(stacks.items()):
                groups.setdefault(place(stack), []).append(rank)
    parts: list[str] = []
    for where, ranks in sorted(groups.items(), key=lambda group: -len(group[1])):
        verbs = ("is", "are") if parts else ("waits", "wait")
        parts.append(f"{_ranks(ranks)} {verbs[len(ranks) > 1]} in {where}")
    return [f"R{', '.join(parts)[1:]}."] if parts else []


def _stacks(folder: Path) -> dict[int, list[Frame]]:
    """Return the frames of each rank's main thread, innermost first; py-spy names it, the faulthandler has it last."""
    stacks = {}
    for kind in (run_folder.RANK_ERR, run_folder.NODE_ERR):
        for path in run_folder.logs(folder, kind).values():
            text = "\n".join(logs.tail(path, _LINES)) if run_folder.holds(folder, path) else ""
            _, *rest = _RANK.split(text)
            for rank, stack in zip(rest[::2], rest[1::2], strict=True):
                threads = _THREAD.split(stack)
                named = [thread for thread in threads if '"MainThread"' in thread]
                for thread in named or threads:
                    by_py_spy = [(found["file"], found["line"], found["name"]) for found in _PY_SPY.finditer(thread)]
                    if frames := by_py_spy or _FAULTHANDLER.findall(thread):
                        stacks[int(rank)] = frames
    return stacks


def _own(stack: list[Frame]) -> str:
    """Return the innermost line of the program itself, and the innermost function of a package below it."""
    own = next((frame for frame in stack if not _LIBRARY.search(frame[0])), stack[0])
    below = stack[: stack.index(own)]
    called = [name for file, _, name in below if "-packages/" in file and name not in _WRAPPERS]
    return f"{[*called, own[2]][0]} at {PurePath(own[0]).name}:{own[1]}"


def _innermost(stack: list[Frame]) -> str:
    file, line, name = stack[0]
    return f"{name} at {PurePath(file).name}:{line}"


def _ranks(ranks: list[int]) -> str:
    """Return `rank 7`, or `ranks 0-3, 5`."""
    known = set(ranks)
    firsts, lasts = ([rank for rank in ranks if rank + step not in known] for step in (-1, 1))
    spans = (f"{first}-{last}" if first < last else str(first) for first, last in zip(firsts, lasts, strict=True))
    return ("ranks " if len(ranks) > 1 else "rank ") + ", ".join(spans)
