"""What is wrong with the commands of a script for PBS: pbsdsh counts cores, and jobs start in the home folder."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpclaunch.job.directives.asked import Asked
from hpclaunch.schedulers.values import whole
from hpclaunch.scripts.checks import Named, at_line
from hpclaunch.scripts.launch import Launch, Program, is_python, unwrap
from hpclaunch.scripts.shell import Command, Word

_COUNTS = re.compile(r"-{0,2}\w*(nodes?|hosts?|machines?|nnodes)\w*", re.IGNORECASE)


def _pbsdsh(program: Program, asked: Asked) -> Iterator[Named]:
    known, several = not asked.profile.site.any_partition, (asked.cpus or 1) * asked.nodes > 1
    numbers: dict[int, int] = {}
    step = asked.partition.cores_per_node if known and asked.nodes > 1 else None
    wrong = f"pbsdsh -n counts cores, not nodes: let the index go in steps of {step}"
    for command in program.body.commands:
        if command.name != "pbsdsh":
            continue
        launch = unwrap(command, program.variables, {})
        options = launch.layers[-1].options if launch.layers else {}
        index = options.get("n", "")
        if "u" in options:
            yield at_line("pbsdsh", command.line, "pbsdsh -u is Torque's: use -n INDEX, once for each node")
        elif not options.keys() & {"n", "h", "c"} and several:
            copies = "a copy on each core" if known else "a copy for each line of the nodefile"
            # A hostname on each core harms nobody.
            sure = known and any(command in (start.command, start.command.within) for start in program.starts)
            text = f"pbsdsh without -n starts {copies}: use -n INDEX, once for each node"
            yield at_line("pbsdsh", command.line, text, refuses=sure)
        elif step and _by_node(index.strip("${}"), command.loop):
            yield at_line("pbsdsh", command.line, f"{wrong}, seq 0 {step} ...")
        elif whole(index) is not None:
            numbers.setdefault(int(index), command.line)
        yield from _in_home(program, asked, command, launch)
    if step and 1 < len(numbers) <= asked.nodes < step and sorted(numbers) == list(range(len(numbers))):
        right = ", ".join(f"-n {number * step}" for number in sorted(numbers))
        yield at_line("pbsdsh", next(line for number, line in numbers.items() if number), f"{wrong}: {right}")


def _by_node(index: str, loop: str) -> bool:
    """Tell whether a loop counts 0, 1, 2, ... in the variable `index`."""
    header, name = loop.partition("\n")[0], re.escape(index)
    counts = rf"for\s+{name}\s+in\s+(0\s+1\b|\{{0\.\.\w+\}}|[$`(]*\s*seq\s+(\d+\s+)?(\$\(\([^)]*\)\)|[^\s()`]+)\s*[)`])"
    more = rf"\b{name}\+\+|\+\+{name}\b|\b{name}\+=1\b|\b{name}\s*\+\s*1\b"
    if not index or re.search(counts, header) or re.search(rf"for\s*\(\(.*({name}\+\+|\+\+{name})", header):
        return bool(index)
    over_hosts = re.search(rf"for\s+(?!{name}\b)\w+\s+in\b.*(\buniq\b|sort\s+-u)", header)
    return over_hosts is not None and re.search(more, loop) is not None


def _in_home(program: Program, asked: Asked, command: Command, launch: Launch) -> Iterator[Named]:
    """Find a relative path that pbsdsh is given: it starts programs in the home folder."""
    inner = [one for one in program.body.commands if one.within is command]
    words = [] if any(map(_moves, inner)) else [one.words for one in inner] or [launch.words]
    if file := next(filter(None, map(_relative, words)), None):
        text = f"pbsdsh starts programs in the home folder, where there is no {file}: write "
        text += f'"$PBS_O_WORKDIR/{file.removeprefix("./")}"'
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
    text = "the nodefile has a line for each core: count the hosts, sort -u $PBS_NODEFILE | wc -l"
    counted: dict[str, int] = {}
    for command in program.body.commands:
        for name, value in [
            *((one.name, one.value.raw) for one in command.settings),
            *(word.raw.partition("=")[::2] for word in command.words),
        ]:
            wrong = re.search(r"\bwc\s+-l\b", value) and not re.search(r"\buniq\b|\bsort\s+-u|awk", value)
            if wrong and "PBS_NODEFILE" in value and _COUNTS.fullmatch(name):
                yield at_line("node-count", command.line, text)
            elif wrong and "PBS_NODEFILE" in value:
                counted[name] = command.line
        for before, word in zip(["", *command.words], command.words, strict=False):
            option = word.partition("=")[0] if "=" in word else before
            for name in word.expands & counted.keys():
                if option.startswith("-") and _COUNTS.fullmatch(option.replace("-", "_").replace("__", "--")):
                    yield at_line("node-count", counted.pop(name), text)
                elif command.name == "pbsdsh":
                    known = counted.pop(name)
                    yield at_line("node-count", known, f"${name}, if it is to be the nodes: {text}", refuses=False)


def _folder(program: Program, asked: Asked) -> Iterator[Named]:
    if asked.folder or any(map(_moves, program.body.commands)):
        return
    for start in program.main:
        if not start.layer("pbsdsh") and (file := _relative(start.words)):
            text = f'PBS starts jobs in the home folder, where there is no {file}: add cd "$PBS_O_WORKDIR"'
            yield at_line("folder", start.line, text)
            return


def _moves(command: Command) -> bool:
    return command.name in ("cd", "pushd")


PBS_CHECKS = (_pbsdsh, _node_count, _folder)
