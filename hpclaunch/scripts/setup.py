"""The lines of a script that prepare its command, sorted into what a request has a word for and lines of shell."""

from __future__ import annotations

import re

from msgspec import Struct

from hpclaunch.job.checks.words import RESERVED, RESERVED_PBS, SHELLS_OWN
from hpclaunch.profile.model import Partition, Site
from hpclaunch.scripts.launch import name_of
from hpclaunch.scripts.lexer import plain
from hpclaunch.scripts.program import Program, assignments
from hpclaunch.scripts.shell import Command, Statement
from hpclaunch.scripts.tables import words

_NAMES = re.compile(r"\$\{?[#!]?([A-Za-z_]\w*)|\(\([^)]*?\b([A-Za-z_]\w*)")
# Commands behind which modules and environments may still move up.
_NEUTRAL = words(
    "cd cp date df echo env free hostname ls lscpu mkdir nproc nvidia-smi printenv printf pwd rm sleep touch ulimit "
    "umask uname whoami"
)
_TELLS = {"echo", "printf", "printenv"}
_SAME_FOLDER = {"PBS_O_WORKDIR", "SLURM_SUBMIT_DIR"}


class Entry(Struct):
    """A line of shell (or several, of a block) of the new script: what it sets for later ones, what it needs."""

    line: int
    text: str
    sets: set[str]
    needs: set[str]
    kind: str  # `set` (of no use by itself), `tell`, or `do`


class Setup(Struct):
    """What prepares the command, on its way into a request; `notes` are what is not carried, and why."""

    site: Site
    partition: Partition
    program: Program
    lifts: bool = True  # its modules may become the request's
    blocked: bool = False
    modules: list[str] = []
    venv: str | None = None
    env: dict[str, str] = {}
    entries: list[Entry] = []
    notes: list[tuple[int, str]] = []
    problems: list[tuple[int, str]] = []
    opened: set[str] = set()  # variables that were of use for the command's text alone

    def statement(self, statement: Statement, lines: list[str], alone: bool) -> None:
        """Take a statement of the script; `alone` on its lines, it is kept as it stands."""
        text = self.text(statement, lines, alone)
        commands = statement.commands
        if not commands or (not statement.block and all(not c.words and not c.redirects for c in commands)):
            return
        if statement.block or any(command.redirects and "<<" in command.redirects[-1] for command in commands):
            self._keep(statement.first, text, _set_by(commands), "do")
            self.blocked = self.blocked or statement.block != "function"
        elif len(commands) == 1:
            self.command(commands[0], text)
        elif all(command.joint in ("&&", "") for command in commands):
            if any(_head(command) in ("module", "ml", "source", ".", "export") for command in commands):
                for command in commands:
                    self.command(command, words_of(command) + " || exit 1")
            else:
                self._keep(statement.first, text, _set_by(commands), "do")
        elif commands[1:] and all(name_of(c.words[0]) in ("exit", "echo") for c in commands[1:] if c.words):
            self.command(commands[0], text)
        else:
            self._keep(statement.first, text, _set_by(commands), "do")
            self.blocked = self.blocked or not all(_head(command) in _NEUTRAL for command in commands)

    def text(self, statement: Statement, lines: list[str], alone: bool) -> str:
        """Return a statement as it stands there: whole lines, or its words where it shares a line."""
        last = statement.last
        while last + 1 in self.program.body.heredocs:
            last += 1
        if alone:
            return "\n".join(lines[statement.first - 1 : last])
        joints = [f" {command.joint} " if command.joint not in ("", ";") else " " for command in statement.commands]
        words = "".join(map("".join, zip(map(words_of, statement.commands), joints, strict=True))).strip()
        return f"{words} &" if words and statement.commands[-1].joint == "&" and not words.endswith("&") else words

    def command(self, command: Command, text: str) -> None:
        """Take one command; `text` is how it stands there."""
        rest, head = command.split()[1], _head(command)
        if command.redirects and head in ("module", "source", "."):
            head = "" if not all("/dev/null" in one or "&1" in one for one in command.redirects) else head
        if head in ("set", "shopt", "trap"):
            self.notes.append(
                (command.line, f"`{text.strip()}`: the job script has its own way with signals and failures")
            )
        elif head in self.site.removed_commands:
            self.notes.append((command.line, f"`{head}`: gone; {self.site.removed_commands[head]}"))
        elif head in ("wait", "exit"):
            self.notes.append(
                (command.line, f"`{text.strip()}`: the job script waits, and has an exit code of its own")
            )
        elif head in ("module", "ml") and self._module(command, text):
            pass
        elif head == "cd" and len(rest) == 2 and re.sub(r'[${}"]', "", rest[1]) in _SAME_FOLDER:
            pass  # where the job script starts anyway
        elif head in ("source", ".") and self._venv(rest):
            pass
        elif not self._variables(command, text):
            self._keep(
                command.line, text, _set_by([command]), "tell" if head in _TELLS and not command.redirects else "do"
            )
            self.blocked = self.blocked or head not in _NEUTRAL

    def _module(self, command: Command, text: str) -> bool:
        """Take `module purge`, `module use` and `module load`; as lines of shell where their order matters."""
        rest = command.split()[1]
        verb, names = (rest[1] if len(rest) > 1 else ""), [plain(word) for word in rest[2:]]
        lifts = self.lifts and not self.blocked and rest[0] == "module"
        if verb == "purge" and self.site.module_purge and lifts and not self.modules:
            return True
        if verb == "use" and lifts and all(name in self.site.module_paths for name in names):
            return True
        if verb in ("load", "add"):
            own = self.partition.modules
            brought = {module for part in self.site.partitions.values() for module in part.modules}
            foreign = [name for name in names if name in brought and name not in own]
            wanted = [name for name in names if name and name not in foreign]
            if foreign:
                self.notes.append((command.line, f"`{' '.join(map(str, foreign))}`: for other nodes than the job's"))
            if lifts and len(wanted) + len(foreign) == len(names) and not any(name.startswith("-") for name in wanted):
                self.modules += [name for name in wanted if name not in own]
                return True
            if not wanted and foreign:
                return True
            missing = [
                name for name in own if not any(name in entry.text for entry in self.entries) and name not in wanted
            ]
            text = f"module load {' '.join([*missing, *wanted])}" if foreign or missing else text
        if not any(" module" in entry.text for entry in self.entries):
            profile = "command -v module >/dev/null || source /etc/profile"
            self._keep(command.line, profile, set(), "do")
        self._keep(command.line, text, set(), "do")
        self.blocked = True
        return True

    def _venv(self, rest: list[str]) -> bool:
        path = rest[1] if len(rest) == 2 else ""
        text = re.sub(r"/bin/activate$", "", path.strip('"'))
        known = set(re.findall(r"\$\{?(\w+)", text))
        fine = re.fullmatch(r"[\w./~${}-]+", text) and text != path.strip('"') and "conda" not in text
        moved = any(entry.text.lstrip().startswith(("cd ", "pushd ")) for entry in self.entries)
        if (
            not fine
            or self.venv
            or self.blocked
            or known & set(self.program.variables)
            or (moved and text[0] not in "/~$")
        ):
            return False
        self.venv = text
        return True

    def _variables(self, command: Command, text: str) -> bool:
        """Take settings: what the job sets itself, constants to export, and the rest as lines."""
        settings, rest = command.split()
        if rest and rest[0] != "export":
            return False
        bare = [word for word in rest[1:] if "=" not in word]
        for name, value, exported in assignments(command):
            constant = plain(value)
            if name in RESERVED or (name in RESERVED_PBS and self.site.scheduler == "pbs"):
                self.notes.append((command.line, f"{name}: the job sets it itself"))
            elif name in SHELLS_OWN and (exported or name.isupper()):  # capitals: bash reads it unasked
                self.own(command.line, name)
            elif exported and constant is not None and constant.isprintable() and self._once(name) and not self.blocked:
                self.env[name] = constant
            else:
                one = f"export {name}={value}" if exported else f"{name}={value}"
                kind = "do" if exported and name not in self.opened else "set"
                self._keep(command.line, text if len(settings) + len(rest) <= 2 else one, {name}, kind)
        others = [name for name in bare if name not in RESERVED]
        if others:
            self._keep(command.line, f"export {' '.join(others)}", set(), "do", set(others))
        return bool(settings or len(rest) > 1)

    def _once(self, name: str) -> bool:
        return name in self.program.variables

    def own(self, line: int, name: str) -> None:
        """Note that a variable cannot have this name in the job script."""
        self.problems.append((line, f"the variable {name} is the job script's own: rename it"))

    def _keep(self, line: int, text: str, sets: set[str], kind: str, needs: set[str] | None = None) -> None:
        text = "\n".join(part.expandtabs(4) for part in text.split("\n"))
        self.entries.append(Entry(line, text, sets, names_in(text) | (needs or set()), kind))

    def settle(self, needed: set[str]) -> list[Entry]:
        """Return the lines that the new script needs; settings that nothing uses go, with those who only tell of them.

        `needed` are the variables of the command.
        """
        assigned = {name for command in self.program.body.commands() for name, _, _ in assignments(command)}
        kept = [entry for entry in self.entries if entry.kind != "tell"]
        while True:
            used = needed | {name for entry in kept for name in entry.needs}
            fewer = [entry for entry in kept if entry.kind != "set" or entry.sets & used]
            if len(fewer) == len(kept):
                break
            kept = fewer
        for entry in kept:
            for name in sorted(entry.sets & SHELLS_OWN):
                self.own(entry.line, name)
        stays = set(map(id, kept))
        there = {name for entry in kept for name in entry.sets} | set(self.env)
        for entry in self.entries:
            if entry.kind == "tell" and not (entry.needs & assigned) - there:
                stays.add(id(entry))
            elif id(entry) not in stays:
                what = entry.text.strip().splitlines()[0][:60]
                self.notes.append((entry.line, f"`{what}`: nothing in the new script needs it"))
        return [entry for entry in self.entries if id(entry) in stays]


def names_in(text: str) -> set[str]:
    """Return the variables that a text of shell uses."""
    return {name for found in _NAMES.findall(text) for name in found if name}


def words_of(command: Command) -> str:
    """Return a command on one line, as it stands there."""
    return " ".join([*(["!"] if command.negated else []), *command.words, *command.redirects])


def _head(command: Command) -> str:
    words = command.split()[1]
    return name_of(words[0]) if words else ""


def _set_by(commands: list[Command]) -> set[str]:
    names = {name for command in commands for name, _, _ in assignments(command)}
    for command in commands:
        if _head(command) in ("read", "mapfile", "readarray", "for"):
            names |= {word for word in command.words if re.fullmatch(r"[A-Za-z_]\w*", word)}
    return names
