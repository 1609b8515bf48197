"""What is wrong with the commands of a script for PBS."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpclaunch.scripts.body_traps import Script
from hpclaunch.scripts.launch import name_of
from hpclaunch.scripts.lexer import plain
from hpclaunch.scripts.program import Start
from hpclaunch.scripts.remark import Remark, remark
from hpclaunch.scripts.shell import Command


def look(script: Script) -> Iterator[Remark]:
    """Yield what there is to say of the commands, as PBS runs them."""
    for trap in (_pbsdsh, _node_count, _folder):
        yield from trap(script)


def _pbsdsh(script: Script) -> Iterator[Remark]:
    known, several = not script.site.any_partition, (script.asked.cpus or 1) * script.asked.nodes > 1
    real = {id(start.command) for start in script.program.starts}
    for command in script.program.body.commands():
        options = _pbsdsh_options(command)
        if options is None:
            continue
        if "u" in options:
            yield remark("pbsdsh", command.line, "pbsdsh -u is Torque's: use -n INDEX, once for each node", mended=True)
        elif not options.keys() & {"n", "h", "c"} and several:
            text = (
                f"pbsdsh without -n starts {'a copy on each core' if known else 'a copy for each line of the nodefile'}"
            )
            sure = known and id(command) in real  # a hostname on each core harms nobody
            yield remark("pbsdsh", command.line, f"{text}: use -n INDEX, once for each node", refuses=sure, mended=True)
    if script.asked.nodes > 1 and known:
        yield from _by_core(script)


def _pbsdsh_options(command: Command) -> dict[str, str] | None:
    """Return the options of a pbsdsh, by their letters; None where the command is none."""
    words = command.split()[1]
    if not words or name_of(words[0]) != "pbsdsh":
        return None
    options: dict[str, str] = {}
    rest = iter(words[1:])
    for word in rest:
        if word == "--" or not word.startswith("-"):
            break
        letter = word[1:2]
        options[letter] = (word[2:] or next(rest, "")) if letter in "nch" else ""
    return options


def _by_core(script: Script) -> Iterator[Remark]:
    """Find indices of nodes given to pbsdsh -n, which counts cores."""
    step = script.asked.partition.cores_per_node
    loops = [start for start in script.program.starts if _by_node(start, script.lines)]
    for start in loops:
        text = f"pbsdsh -n counts cores, not nodes: let the index go in steps of {step}, seq 0 {step} ..."
        yield remark("pbsdsh", start.launch.line, text, mended=True)
    plain_ones = [
        (int(options["n"]), command.line)
        for command in script.program.body.commands()
        if (options := _pbsdsh_options(command)) and re.fullmatch(r"\d{1,6}", options.get("n", ""))
    ]
    numbers = sorted({number for number, _ in plain_ones})
    if step and 1 < len(numbers) <= script.asked.nodes < step and numbers == list(range(len(numbers))):
        line = next(line for number, line in plain_ones if number)
        right = " ".join(str(number * step) for number in numbers)
        yield remark("pbsdsh", line, f"pbsdsh -n counts cores, not nodes: write -n {right.replace(' ', ', -n ')}")


def _by_node(start: Start, lines: list[str]) -> bool:
    """Tell whether a loop counts 0, 1, 2, ... and gives that to pbsdsh -n."""
    layer = start.launch.layer("pbsdsh")
    index = re.fullmatch(r'"?\$\{?(\w+)\}?"?', layer.options.get("n", "")) if layer else None
    if not index or start.statement.block not in ("for", "while"):
        return False
    header = lines[start.statement.first - 1]
    name = re.escape(index[1])
    if re.search(rf"for\s+{name}\s+in\s+0\s+1\b", header) or re.search(rf"for\s*\(\(.*({name}\+\+|\+\+{name})", header):
        return True
    if re.search(rf"for\s+(?!{name}\b)\w+\s+in\b.*(\buniq\b|sort\s+-u)", header):
        text = "\n".join(lines[start.statement.first - 1 : start.statement.last])
        return re.search(rf"\b{name}\+\+|\+\+{name}\b|\b{name}\+=1\b|\b{name}\s*\+\s*1\b", text) is not None
    return bool(
        re.search(
            rf"for\s+{name}\s+in\s+(\{{0\.\.\w+\}}|[$`(]*\s*seq\s+(\d+\s+)?(\$\(\([^)]*\)\)|[^\s()`]+)\s*[)`])", header
        )
    )


def _node_count(script: Script) -> Iterator[Remark]:
    text = "the nodefile has a line for each core: count the hosts, sort -u $PBS_NODEFILE | wc -l"
    counted: dict[str, int] = {}
    for command in script.program.body.commands():
        for word in command.words:
            counts = re.search(r"\bwc\s+-l\b", word)
            if not counts or "PBS_NODEFILE" not in word or re.search(r"\buniq\b|\bsort\s+-u|awk", word):
                continue
            if re.match(r"-{0,2}\w*(nodes?|hosts?|machines?|nnodes)\w*=", word, re.IGNORECASE):
                yield remark("node-count", command.line, text, mended=True)
            elif found := re.match(r"(\w+)=", word):
                counted[found[1]] = command.line
    for name, line in counted.items():
        used = rf"\$\{{?{re.escape(name)}\b"
        for command in script.program.body.commands():
            words = " ".join(command.words)
            if re.search(rf"(?i)(nnodes|num[-_]?nodes|--nodes|num[-_]machines)[= ][\"']?{used}", words):
                yield remark("node-count", line, text, mended=True)
                break
            if _pbsdsh_options(command) is not None and re.search(rf" [\"']?{used}", words):
                yield remark("node-count", line, f"${name}, if it is to be the nodes: {text}", refuses=False)
                break


def _folder(script: Script) -> Iterator[Remark]:
    if script.asked.folder or any(_moves(command) for command in script.program.body.commands()):
        return
    for start in script.program.main:
        if any(_moves(command) for command in start.launch.before):
            continue
        files = [plain(word) or "" for word in start.launch.words if re.search(r"\.(py|sh)[\"']?$", word)]
        if relative := next((file for file in files if file and not file.startswith(("/", "~"))), None):
            text = f'PBS starts jobs in the home folder, where there is no {relative}: add cd "$PBS_O_WORKDIR"'
            yield remark("folder", start.launch.line, text, mended=True)
            return


def _moves(command: Command) -> bool:
    return bool(command.words) and name_of(command.words[0]) in ("cd", "pushd")
