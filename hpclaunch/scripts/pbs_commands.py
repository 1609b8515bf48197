"""What is wrong with the commands of a script for PBS: pbsdsh counts cores, and jobs start in the home folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from hpclaunch.job.directives.asked import Asked
from hpclaunch.schedulers.values import whole
from hpclaunch.scripts.checks import Named, at_line
from hpclaunch.scripts.launch import Program, is_python, unwrap
from hpclaunch.scripts.shell import Word

_COUNTS = re.compile(r"\w*(nodes?|hosts?|machines?|nnodes)\w*", re.IGNORECASE)


def _cores(asked: Asked) -> int:
    """Return the cores of a node, for each of which the nodefile has a line; 0 if not known, or it has one a chunk."""
    return 0 if asked.directives.first("l.select") else asked.partition.cores_per_node or 0


def _pbsdsh(program: Program, asked: Asked) -> Iterator[Named]:
    cores, starts = _cores(asked), [start.command for start in program.starts]
    for command in (one for one in program.body.commands if one.name == "pbsdsh"):
        options = unwrap(command, program.variables, {}).layers[-1].options
        index = options.get("n", "")
        if "u" in options:
            yield at_line("pbsdsh", command.line, "pbsdsh -u is Torque's; use -n INDEX, once for each node")
        elif not options.keys() & {"n", "h", "c"} and cores and (asked.cpus or 1) * asked.nodes > 1:
            # A hostname on each core harms nobody.
            sure = command in starts or any(command is one.within for one in starts)
            text = "pbsdsh without -n starts a copy on each core; use -n INDEX, once for each node"
            yield at_line("pbsdsh", command.line, text, refuses=sure)
        elif asked.nodes > 1 and cores and (0 < (whole(index) or 0) < cores or _by_node(index, command.loop)):
            text = f"pbsdsh -n counts cores, not nodes; use steps of {cores}: 0, {cores}, ..."
            yield at_line("pbsdsh", command.line, text)


def _by_node(index: str, loop: str) -> bool:
    """Tell whether a loop, and not one over all cores, counts 0, 1, 2, ... in the variable `index`."""
    header, name = loop.partition("\n")[0], index.strip("${}")
    over_cores = "NCPUS" in header or ("NODEFILE" in header and not re.search(r"\buniq\b|sort\s+-u", header))
    if not re.fullmatch(r"[A-Za-z_]\w*", name) or over_cores:
        return False
    seq = r"[$`(]*\s*seq\s+(\d+\s+)?(\$\(\([^)]*\)\)|[^\s()`]+)\s*[)`]"
    more = rf"\b{name}(\+\+|\+=1\b|\s*\+\s*1\b)|\+\+{name}\b"
    return re.search(rf"for\s+{name}\s+in\s+(0\s+1\b|\{{0\.\.\w+\}}|{seq})|{more}", loop) is not None


def _relative(words: list[Word]) -> str:
    """Return the program or script that a command runs if its path begins in the current folder, or ""."""
    interpreted = is_python(words[0]) or words[0].name in ("bash", "sh")
    named = [word for word in words[1:] if not word.startswith("-")] if interpreted else words
    if not named or named[0].expands or named[0].startswith("/") or {"-c", "-m"} & set(words[1:3]):
        return ""
    return named[0] if interpreted or "/" in named[0] or named[0].endswith(".py") else ""


def _node_count(program: Program, asked: Asked) -> Iterator[Named]:
    for command in program.body.commands if _cores(asked) else ():
        pairs = [(one.name, one.value) for one in command.settings]
        for word, after in pairwise([*command.words, Word("")]):
            name, equals, _ = word.partition("=")
            pairs += [(name.replace("-", "_"), word if equals else after)] if name.startswith("-") else []
        for name, value in pairs:
            own = [program.variables[used].value.raw for used in value.expands & program.variables.keys()]
            if _COUNTS.fullmatch(name) and any(map(_counts_lines, (value.raw, *own))):
                text = "$PBS_NODEFILE has a line for each core; count its hosts with sort -u $PBS_NODEFILE | wc -l"
                yield at_line("node-count", command.line, text)


def _counts_lines(text: str) -> bool:
    return (
        "PBS_NODEFILE" in text
        and re.search(r"\bwc\s+-l\b", text) is not None
        and not re.search(r"\buniq\b|\bsort\s+-u|awk", text)
    )


def _folder(program: Program, asked: Asked) -> Iterator[Named]:
    """Find relative paths where they are not found: PBS and pbsdsh start programs in the home folder."""
    commands = program.body.commands
    for start in program.starts:
        far, within, file = start.layer("pbsdsh"), start.command.within, _relative(start.words)
        around = [one for one in commands if within and one.within is within] if far else commands
        if not file or (asked.folder and not far) or any(one.name in ("cd", "pushd") for one in around):
            continue
        who = "pbsdsh starts programs" if far else "PBS starts jobs"
        right = f'"$PBS_O_WORKDIR/{file.removeprefix("./")}"' if far else 'cd "$PBS_O_WORKDIR" before it'
        text = f"{who} in the home folder, where there is no {file}; use {right}"
        yield at_line("folder", start.line, text, refuses=not asked.folder)
        if not far:
            return


PBS_CHECKS = (_pbsdsh, _node_count, _folder)
