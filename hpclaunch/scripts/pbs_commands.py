"""What is wrong with the commands of a script for PBS: pbsdsh counts cores, and jobs start in the home folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from hpclaunch.job.directives.asked import Asked
from hpclaunch.schedulers.values import whole
from hpclaunch.scripts.checks import Named, at_line
from hpclaunch.scripts.launch import Launch, Program, is_python, unwrap
from hpclaunch.scripts.shell import Command, Word

_COUNTS = re.compile(r"\w*(nodes?|hosts?|machines?|nnodes)\w*", re.IGNORECASE)


def _pbsdsh(program: Program, asked: Asked) -> Iterator[Named]:
    known = not asked.profile.site.any_partition
    step = (asked.partition.cores_per_node if known and asked.nodes > 1 else None) or 0
    for command in program.body.commands:
        if command.name != "pbsdsh":
            continue
        launch = unwrap(command, program.variables, {})
        options = launch.layers[-1].options if launch.layers else {}
        index = options.get("n", "")
        if "u" in options:
            yield at_line("pbsdsh", command.line, "pbsdsh -u is Torque's; use -n INDEX, once for each node")
        elif not options.keys() & {"n", "h", "c"} and (asked.cpus or 1) * asked.nodes > 1:
            copies = "a copy on each core" if known else "a copy for each line of the nodefile"
            # A hostname on each core harms nobody.
            sure = known and any(command in (start.command, start.command.within) for start in program.starts)
            text = f"pbsdsh without -n starts {copies}; use -n INDEX, once for each node"
            yield at_line("pbsdsh", command.line, text, refuses=sure)
        elif 0 < (whole(index) or 0) < step or (step and _by_node(index.strip("${}"), command.loop)):
            text = f"pbsdsh -n counts cores, not nodes; use steps of {step}: 0, {step}, ..."
            yield at_line("pbsdsh", command.line, text)
        yield from _in_home(program, asked, command, launch)


def _by_node(index: str, loop: str) -> bool:
    """Tell whether a loop, and not one over all cores, counts 0, 1, 2, ... in the variable `index`."""
    header, name = loop.partition("\n")[0], re.escape(index)
    if not index or "NCPUS" in header or ("NODEFILE" in header and not re.search(r"\buniq\b|sort\s+-u", header)):
        return False
    counts = rf"for\s+{name}\s+in\s+(0\s+1\b|\{{0\.\.\w+\}}|[$`(]*\s*seq\s+(\d+\s+)?(\$\(\([^)]*\)\)|[^\s()`]+)\s*[)`])"
    more = rf"\b{name}\+\+|\+\+{name}\b|\b{name}\+=1\b|\b{name}\s*\+\s*1\b"
    return re.search(f"{counts}|{more}", loop) is not None


def _in_home(program: Program, asked: Asked, command: Command, launch: Launch) -> Iterator[Named]:
    """Find a relative path that pbsdsh is given: it starts programs in the home folder."""
    inner = [one for one in program.body.commands if one.within is command]
    words = [] if any(map(_moves, inner)) else [one.words for one in inner] or [launch.words]
    if file := next(filter(None, map(_relative, words)), None):
        right = f'"$PBS_O_WORKDIR/{file.removeprefix("./")}"'
        text = f"pbsdsh starts programs in the home folder, where there is no {file}; use {right}"
        yield at_line("folder", command.line, text, refuses=not asked.folder)


def _relative(words: list[Word]) -> str | None:
    """Return the program or script that a command runs, if its path begins in the current folder."""
    script = next((word for word in words[1:] if not word.startswith("-")), None)
    interpreted = script and (is_python(words[0]) or words[0].name in ("bash", "sh"))
    word = script if interpreted else words[0] if words else None
    if not word or word.expands or word.startswith("/") or {"-c", "-m"} & set(words[1:3]):
        return None
    return word if interpreted or "/" in word or word.endswith(".py") else None


def _node_count(program: Program, _asked: Asked) -> Iterator[Named]:
    for command in program.body.commands:
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
    if asked.folder or any(map(_moves, program.body.commands)):
        return
    for start in program.main:
        if not start.layer("pbsdsh") and (file := _relative(start.words)):
            text = f'PBS starts jobs in the home folder, where there is no {file}; use cd "$PBS_O_WORKDIR" before it'
            yield at_line("folder", start.line, text)
            return


def _moves(command: Command) -> bool:
    return command.name in ("cd", "pushd")


PBS_CHECKS = (_pbsdsh, _node_count, _folder)
