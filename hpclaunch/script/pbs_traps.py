"""What is wrong with the commands of a script for PBS."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpclaunch.script.body_traps import Script
from hpclaunch.script.launch import name_of
from hpclaunch.script.lexer import plain
from hpclaunch.script.program import Start, assignments
from hpclaunch.script.remark import Remark, remark
from hpclaunch.script.shell import Command


def look(script: Script) -> Iterator[Remark]:
    """Yield what there is to say of the commands, as PBS runs them."""
    for trap in (_pbsdsh, _node_count, _ncpus, _folder):
        yield from trap(script)


def _pbsdsh(script: Script) -> Iterator[Remark]:
    known = not script.site.any_partition
    for start in script.program.starts:
        layer = start.launch.layer("pbsdsh")
        if layer is None:
            continue
        if "u" in layer.options:
            yield remark(
                "pbsdsh", start.launch.line, "pbsdsh -u is Torque's: use -n INDEX, once for each node", mended=True
            )
        elif not layer.options.keys() & {"n", "h", "c"} and (script.asked.cpus or 1) * script.asked.nodes > 1:
            text = (
                f"pbsdsh without -n starts {'a copy on each core' if known else 'a copy for each line of the nodefile'}"
            )
            yield remark(
                "pbsdsh", start.launch.line, f"{text}: use -n INDEX, once for each node", refuses=known, mended=True
            )
        elif script.asked.nodes > 1 and known and _by_node(start, script.lines):
            step = script.asked.partition.cores_per_node
            text = f"pbsdsh -n counts cores, not nodes: let the index go in steps of {step}, seq 0 {step} ..."
            yield remark("pbsdsh", start.launch.line, text, mended=True)


def _by_node(start: Start, lines: list[str]) -> bool:
    """Tell whether a loop counts 0, 1, 2, ... and gives that to pbsdsh -n."""
    layer = start.launch.layer("pbsdsh")
    index = re.fullmatch(r'"?\$\{?(\w+)\}?"?', layer.options.get("n", "")) if layer else None
    if not index or start.statement.block != "for":
        return False
    header = lines[start.statement.first - 1]
    name = re.escape(index[1])
    return bool(
        re.search(
            rf"for\s+{name}\s+in\s+(\{{0\.\.\w+\}}|[$`(]*\s*seq\s+(\d+\s+)?(\$\(\([^)]*\)\)|[^\s()`]+)\s*[)`])", header
        )
        or re.search(rf"for\s*\(\(.*({name}\+\+|\+\+{name})", header)
    )


def _node_count(script: Script) -> Iterator[Remark]:
    for command in script.program.body.commands():
        for word in command.words:
            counts = re.search(r"\bwc\s+-l\b", word)
            if not counts or "PBS_NODEFILE" not in word or re.search(r"\buniq\b|\bsort\s+-u|awk", word):
                continue
            if re.match(r"-{0,2}\w*(nodes?|hosts?|machines?|nnodes)\w*=", word, re.IGNORECASE):
                text = "the nodefile has a line for each core: count the hosts, sort -u $PBS_NODEFILE | wc -l"
                yield remark("node-count", command.line, text, mended=True)


def _ncpus(script: Script) -> Iterator[Remark]:
    for command in script.program.body.commands():
        if any(name == "NCPUS" for name, _, _ in assignments(command)):
            text = "NCPUS is PBS's own variable, the cores of the node: use another name"
            yield remark("ncpus-variable", command.line, text, refuses=False)


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
