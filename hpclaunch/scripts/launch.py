"""What a script starts: its programs, taken out of srun, mpirun, pbsdsh, torchrun, bash -c and the like."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import dropwhile

from msgspec import Struct

from hpclaunch.job.directives.sbatch import SLURM_SHORT
from hpclaunch.profile.model import Site
from hpclaunch.scripts.shell import Command, Script, Setting, Word
from hpclaunch.scripts.tables import ASIDE, FLAGS, MPI_TWO, PASS, VALUES

_CONTAINERS = ("singularity", "apptainer", "podman", "docker")
_SETS = ("export", "declare", "readonly", "typeset", "local")
_READS = ("for", "read", "mapfile", "readarray", "getopts", "unset")
_ASIDE_MODULES = ("pip", "venv", "json.tool", "ensurepip", "ipykernel", "site")
_WHOLE = re.compile(r'"?\$\{?(\w+)(?:\[[@*]\])?\}?"?')
_PYTHON_FLAGS = ("-u", "-E", "-s", "-B")
_SAME = dict.fromkeys(("mpiexec", "mpiexec.hydra", "orterun"), "mpirun")
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
}
_VERBS = {"accelerate": "launch", "conda": "run", "mamba": "run", "micromamba": "run"}
_MOST = 20  # programs that start each other
_DEEPEST, _MOST_WORDS = 3, 300  # variables in variables, and what they may come to


class Layer(Struct):
    """One program that starts another, and its options by name."""

    kind: str
    options: dict[str, str] = {}


class Launch(Struct):
    """A program with its words, the command in which it stands, and the layers around it, the outermost first."""

    command: Command
    words: list[Word]
    layers: list[Layer] = []

    @property
    def line(self) -> int:
        """Return its line."""
        return self.command.line

    def layer(self, *kinds: str) -> Layer | None:
        """Return the first layer of one of these kinds."""
        return next((layer for layer in self.layers if layer.kind in kinds), None)

    @property
    def parallel(self) -> bool:
        """Tell whether something starts several ranks, or a rank on several nodes."""
        return bool(self.layers)

    @property
    def python(self) -> bool:
        """Tell whether a python program is run, be it in a container."""
        return any(is_python(word) or word.endswith(".py") for word in self.words[:12])

    @property
    def bare(self) -> bool:
        """Tell whether python itself is what is started, be it in a container: it starts nothing on other nodes."""
        return self.python and (is_python(self.words[0]) or self.words[0].name.endswith((".py", *_CONTAINERS)))


class Program(Struct):
    """A script's commands, the variables that are set once, and what it starts."""

    body: Script
    variables: dict[str, Setting]
    starts: list[Launch]

    @property
    def main(self) -> list[Launch]:
        """Return what the job is for: the parallel starts, else those of python, else the last command."""
        parallel = [start for start in self.starts if start.parallel]
        return parallel or [start for start in self.starts if start.python] or self.starts[-1:]


def is_python(word: str) -> bool:
    """Tell whether a word names a python."""
    return re.fullmatch(r"(.*/)?(i?python|pypy)[\d.]*", word) is not None


def understand(body: Script, site: Site) -> Program:
    """Return what the body does at this site."""
    idle = [*site.removed_commands, *(site.allocation.command[:1] if site.allocation else [])]
    own = dict.fromkeys(idle) | site.own_commands
    variables = _variables(body)
    aside = ASIDE | {command.function for command in body.commands} | {name for name in own if not own[name]}
    shells = {id(command.within) for command in body.commands}
    launches = [
        unwrap(command, variables, own)
        for command in body.commands
        if id(command) not in shells and "trap" not in command.inside
    ]
    return Program(body, variables, [one for one in launches if one.words and not _aside(one.words, aside)])


def _aside(words: list[Word], aside: set[str]) -> bool:
    """Tell whether a command is none that a job is for: it looks, prepares, or is one line of python."""
    if not is_python(words[0]):
        return words[0].name in aside
    rest = [word for word in words[1:] if word not in _PYTHON_FLAGS]
    return not rest or rest[0] in ("--version", "-V", "-c", "-") or _module(rest) in _ASIDE_MODULES


def _module(words: list[Word]) -> str:
    return words[1] if words[:1] == ["-m"] and len(words) > 1 else ""


def assignments(command: Command) -> list[Setting]:
    """Return what a command sets for those after it."""
    return command.settings if not command.words or command.words[0] in _SETS else []


def _variables(body: Script) -> dict[str, Setting]:
    """Return the variables that are set once, and not only sometimes."""
    times: Counter[str] = Counter()
    found: dict[str, Setting] = {}
    for command in body.commands:
        own = assignments(command)
        times.update(one.name for one in own)
        times.update(command.words[1:] if command.name in _READS else ())
        found |= {one.name: one for one in own if not command.inside}
    return {name: one for name, one in found.items() if times[name] == 1}


def opened(words: list[Word], variables: dict[str, Setting]) -> list[Word]:
    """Return words with the variables in them replaced by what they stand for, as far as that is known."""
    for _ in range(_DEEPEST):
        before, words = words, [inner for word in words for inner in _stands_for(word, variables)]
        if words == before or len(words) > _MOST_WORDS:
            break
    return words


def _stands_for(word: Word, variables: dict[str, Setting]) -> list[Word]:
    """Return the words that a $NAME or "${NAME[@]}" is, or the word with the variables in it replaced."""
    whole = _WHOLE.fullmatch(word.raw)
    one = variables.get(whole[1]) if whole else None
    if one and one.items and "[" in word:
        return one.items
    if one and word.raw[0] == "$" and not one.items and not one.value.expands & {"$(", "*"}:
        pieces = one.value.split()
        return [Word(piece, None, re.findall(r"\$\{?(\w+)", piece), word.line) for piece in pieces]
    text, left = str(word), set(word.expands)
    for name in word.expands & variables.keys():
        if not variables[name].items and not variables[name].value.expands:
            text = replaced(text, name, variables[name].value)
            left.discard(name)
    return [Word(text, word.raw, left, word.line)]


def replaced(text: str, name: str, value: str) -> str:
    """Return a text with a variable in it replaced."""
    return re.sub(rf"\$(\{{{name}\}}|{name}\b)", lambda _: value, text)


def unwrap(command: Command, variables: dict[str, Setting], own: dict[str, str | None]) -> Launch:
    """Return what `command` starts, which has no words if it only sets variables.

    `own` are the site's own commands: what each stands for, None if a job is never for it.
    """
    launch = Launch(command, opened(command.words, variables))
    if command.within:
        launch.layers += unwrap(command.within, variables, own).layers
    for _ in range(_MOST):
        head, rest = _head(launch.words)
        if stands_for := own.get(head):
            launch.words = [*(Word(word) for word in stands_for.split()), *rest]
        elif head in PASS:
            behind = dropwhile(re.compile(r"\w+=").match, _options(Layer(head), rest))  # env NAME=VALUE
            launch.words = list(behind)[PASS[head] :]
        elif head in VALUES or head in FLAGS:
            launch.layers.append(layer := Layer(head))
            launch.words = _options(layer, rest)
            if head in ("torchrun", "accelerate", "deepspeed"):
                launch.words = _python(layer, launch.words)
            elif head == "ssh":
                launch.words = launch.words[1:]  # the host
        else:
            break
    return launch


def _head(words: list[Word]) -> tuple[str, list[Word]]:
    """Return a program's name and its arguments; `python -m torch.distributed.run` is torchrun."""
    head, rest = words[0].name if words else "", words[1:]
    if is_python(head):
        options = list(dropwhile(_PYTHON_FLAGS.__contains__, rest))
        module = _module(options)
        return (_MODULES[module], options[2:]) if module in _MODULES else (head, rest)
    if head in _VERBS:
        return (head, rest[1:]) if rest[:1] == [_VERBS[head]] else ("", rest)
    return ("", rest) if head == "ssh" and len(rest) < 2 else (_SAME.get(head, head), rest)


def _python(layer: Layer, words: list[Word]) -> list[Word]:
    """Return the program that torchrun and its like start, with the python that they put before it."""
    if layer.options.keys() & {"m", "module"}:
        return [Word("python"), Word("-m"), *words]
    return [Word("python"), *words] if words and not is_python(words[0]) and "no-python" not in layer.options else words


def _options(layer: Layer, words: list[Word]) -> list[Word]:
    """Move the options at the beginning of `words` into the layer, and return the rest."""
    at = 0
    while at < len(words) and words[at].startswith("-") and len(words[at]) > 1:
        if words[at] == "--":
            return words[at + 1 :]
        name, _, value = words[at].partition("=")
        name = name.lstrip("-").replace("_", "-")
        if layer.kind == "srun" and words[at][1] != "-":  # -n 8 and -n8
            name, value = SLURM_SHORT.get(words[at][1], words[at][1]), words[at][2:]
        count = 0 if value else _count(layer.kind, name)
        count -= count == 2 and "=" in " ".join(words[at + 1 : at + 2])  # PALS: --env NAME=VALUE
        layer.options[name] = value or " ".join(words[at + 1 : at + 1 + count])
        at += 1 + count
    return words[at:]


def _count(kind: str, name: str) -> int:
    """Return how many words behind an option are its values."""
    if kind in FLAGS:
        return int(name not in FLAGS[kind])
    return 2 if kind == "mpirun" and name in MPI_TWO else int(name in VALUES[kind])


def modules(body: Script) -> Iterator[tuple[Command, Word]]:
    """Yield the modules that are loaded, each with its command, in that order."""
    for command in body.commands:
        verb, *rest = *command.words[1:], Word("")
        if command.name == "ml" and verb not in ("purge", "use", "list", "unload", "avail", "load"):
            rest = command.words[1:]
        elif command.name not in ("module", "ml") or verb not in ("load", "add"):
            continue
        yield from ((command, word) for word in rest if word and not word.expands and not word.startswith("-"))
