"""Which command a script starts, taken out of what starts it: srun, mpirun, pbsdsh, torchrun, bash -c and the like."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePath

from msgspec import Struct

from hpclaunch.scripts import shell
from hpclaunch.scripts.lexer import plain
from hpclaunch.scripts.shell import Command
from hpclaunch.scripts.slurm import SLURM_SHORT, SLURM_TAKES
from hpclaunch.scripts.tables import (
    ACCELERATE_FLAGS,
    ASIDE,
    DEEPSPEED_VALUES,
    MPI_ONE,
    MPI_TWO,
    SRUN_FLAGS,
    SRUN_VALUES,
    TORCHRUN_FLAGS,
)

_SCRIPT = re.compile(r"\.py\b|/")
_PASS = {"exec", "nohup", "command", "time"}
_CONTAINERS = ("singularity", "apptainer", "podman", "docker")


class Layer(Struct):
    """One thing that starts another: its name, its options by name, and what was not understood of them."""

    kind: str
    line: int
    options: dict[str, str] = {}
    words: list[str] = []


class Launch(Struct):
    """A command and the layers around it, the outermost first. Words are as in the script, quotes and all."""

    line: int
    words: list[str]
    layers: list[Layer] = []
    env: list[str] = []
    before: list[Command] = []
    problem: str = ""
    opened: set[str] = set()  # variables that held parts of it
    variables: dict[str, str] = {}
    own: dict[str, str] = {}  # the site's own commands, and what each stands for

    def layer(self, *kinds: str) -> Layer | None:
        """Return the first layer of one of these kinds."""
        return next((layer for layer in self.layers if layer.kind in kinds), None)

    @property
    def parallel(self) -> bool:
        """Tell whether something starts several ranks, or a rank on several nodes."""
        return self.layer("srun", "mpirun", "pbsdsh", "ssh", "torchrun", "deepspeed", "accelerate") is not None

    @property
    def program(self) -> str:
        """Return the command's first word without its folder."""
        return name_of(self.words[0]) if self.words else ""

    @property
    def python(self) -> bool:
        """Tell whether a python program is run, be it in a container."""
        return any(is_python(word) or word.strip("'\"").endswith(".py") for word in self.words[:12])

    @property
    def bare(self) -> bool:
        """Tell whether python itself is what is started, be it in a container: it starts nothing on other nodes."""
        return (
            bool(self.words)
            and self.python
            and (is_python(self.words[0]) or self.program in _CONTAINERS or self.program.endswith(".py"))
        )


def name_of(word: str) -> str:
    """Return a program's name without its folder."""
    text = plain(word) or word.strip("\"'")
    return PurePath(text).name or text


def is_python(word: str) -> bool:
    """Tell whether a word names a python."""
    return re.fullmatch(r"(i?python|pypy)[\d.]*", name_of(word)) is not None


def unwrap(command: Command, variables: dict[str, str], own: dict[str, str]) -> Launch | None:
    """Return what `command` starts, or None if that is nothing that a job would be for.

    `own` are the site's own commands: what each stands for, "" where a job is never for it.
    """
    settings, words = command.split()
    launch = Launch(command.line, words, [], list(settings), [], "", set(), variables, own)
    seen = 0
    while launch.words and seen < 20:
        seen += 1
        step = _step(launch)
        if step is None:
            break
        settings, launch.words = Command(0, step).split()
        launch.env += settings
    if not launch.words or launch.program in ASIDE or launch.program in own or _aside_python(launch.words):
        return None
    return launch


def _aside_python(words: list[str]) -> bool:
    rest = [word for word in words[1:] if word not in ("-u", "-s", "-E", "-B")]
    if not is_python(words[0]):
        return False
    return not rest or rest[0] in ("--version", "-V", "-V;") or rest[:2] in (["-m", "pip"], ["-m", "venv"])


def _step(launch: Launch) -> list[str] | None:
    """Return the words inside the outermost layer, which joins the launch's, or None where there is none."""
    head, rest = launch.program, launch.words[1:]
    if launch.words[0].strip('"').startswith("$"):
        inner = opened(launch, launch.words[0])
        launch.opened |= {_named(launch.words[0])} if inner else set()
        return inner + rest if inner else None
    if head in _PASS:
        return [word for i, word in enumerate(rest) if not (i == 0 and word == "-p")]
    if stands_for := launch.own.get(head):
        return [*stands_for.split(), *rest]
    if head == "env":
        return rest if rest and "=" in rest[0] else None
    if found_layer := _KINDS.get(head):
        return found_layer(launch, rest)
    return _python(launch, rest) if is_python(launch.words[0]) else None


def opened(launch: Launch, word: str) -> list[str]:
    """Return the words in $NAME or "${NAME[@]}", where the script sets it once; [] where that is not known.

    Each is opened once, so that one that holds itself has an end.
    """
    found = re.fullmatch(r'"?\$(?:(\w+)|\{(\w+)(\[[@*]\])?\})"?', word)
    name = found[1] or found[2] if found else ""
    text = launch.variables.get(name, "")
    array = text.startswith("(")
    if not found or not text or array != bool(found[3]) or name in launch.opened:
        return []
    body = shell.read(text[1:-1] if array else re.sub(r"\\?\n", " ", text), launch.line)
    words = [inner for command in body.commands() for inner in command.words]
    if body.error or any(command.joint or command.redirects for command in body.commands()):
        return []
    return words


def _named(word: str) -> str:
    return re.sub(r"\W", "", word)


def _options(launch: Launch, layer: Layer, words: list[str], arity: Callable[[str], int]) -> list[str]:
    """Move the options at the beginning of `words` into `layer`, and return the rest."""
    at = 0
    while at < len(words) and len(words[at]) > 1:
        word, values = words[at], []
        if (inner := opened(launch, word)) and inner[0].startswith("-"):
            launch.opened.add(_named(word))
            words = [*words[:at], *inner, *words[at + 1 :]]
            continue
        if not word.startswith("-"):
            break
        at += 1
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if equals:
            values = [value]
        else:
            takes = arity(word)
            values, at = words[at : at + takes], at + takes
        layer.words += [word, *values] if not equals else [word]
        layer.options[name.lstrip("-").replace("_", "-")] = " ".join(values)
    return words[at:]


def _srun(launch: Launch, rest: list[str]) -> list[str]:
    layer = Layer("srun", launch.line, {}, [])
    launch.layers.append(layer)

    def arity(word: str) -> int:
        if word.startswith("--"):
            return int(word[2:] in SRUN_VALUES and SLURM_TAKES.get(word[2:], "=") == "=")
        if word[1] in SRUN_FLAGS:
            return 0
        name = SLURM_SHORT.get(word[1], "")
        takes = SLURM_TAKES.get(name, "=" if word[1] in "rTCW" else "") == "="
        if takes and len(word) > 2:
            layer.options[name] = word[2:]
        return int(takes and len(word) == 2)

    inner = _options(launch, layer, rest, arity)
    for letter, name in SLURM_SHORT.items():
        if layer.options.get(letter):
            layer.options.setdefault(name, layer.options[letter])
    return inner


def _mpirun(launch: Launch, rest: list[str]) -> list[str]:
    layer = Layer("mpirun", launch.line, {}, [])
    launch.layers.append(layer)
    return _options(launch, layer, rest, lambda word: 2 if word in MPI_TWO else int(word in MPI_ONE))


def _pbsdsh(launch: Launch, rest: list[str]) -> list[str]:
    layer = Layer("pbsdsh", launch.line, {}, [])
    launch.layers.append(layer)
    return _options(launch, layer, rest, lambda word: int(word in ("-n", "-c", "-h")))


def _torchrun(launch: Launch, rest: list[str]) -> list[str]:
    layer = Layer("torchrun", launch.line, {}, [])
    launch.layers.append(layer)
    inner = _options(launch, layer, rest, lambda word: int(word.lstrip("-").replace("_", "-") not in TORCHRUN_FLAGS))
    return _program(launch, layer, inner)


def _program(launch: Launch, layer: Layer, inner: list[str]) -> list[str]:
    if inner and re.fullmatch(r'"?\$\W?\w+.*', inner[0]) and not _SCRIPT.search(inner[0]):
        name = _named(inner[0])
        if launch.variables.get(name, "-").startswith(("-", "(")):
            launch.problem = f"what {layer.kind} is given in {inner[0]} is not known"
    if "m" in layer.options or "module" in layer.options:
        return ["python", "-m", *inner]
    if "no-python" in layer.options or not inner or is_python(inner[0]):
        return inner
    return ["python", *inner]


def _deepspeed(launch: Launch, rest: list[str]) -> list[str]:
    layer = Layer("deepspeed", launch.line, {}, [])
    launch.layers.append(layer)
    inner = _options(launch, layer, rest, lambda word: int(word.lstrip("-").replace("_", "-") in DEEPSPEED_VALUES))
    return _program(launch, layer, inner)


def _accelerate(launch: Launch, rest: list[str]) -> list[str] | None:
    if rest[:1] != ["launch"]:
        return None
    layer = Layer("accelerate", launch.line, {}, [])
    launch.layers.append(layer)
    inner = _options(
        launch, layer, rest[1:], lambda word: int(word.lstrip("-").replace("_", "-") not in ACCELERATE_FLAGS)
    )
    for name in ("config-file", "use-deepspeed", "use-fsdp", "deepspeed-config-file", "tpu"):
        if name in layer.options:
            launch.problem = f"accelerate's --{name.replace('-', '_')} has no counterpart under torchrun"
    if "mixed-precision" in layer.options:
        launch.env.append(f"ACCELERATE_MIXED_PRECISION={layer.options['mixed-precision']}")
    return _program(launch, layer, inner)


def _python(launch: Launch, rest: list[str]) -> list[str] | None:
    """Take `python -m torch.distributed.run` for torchrun."""
    flags = [word for word in rest[:4] if word in ("-u", "-E", "-s", "-B")]
    words = [word for i, word in enumerate(rest) if not (i < 4 and word in flags)]
    if words[:1] != ["-m"] or len(words) < 2:
        return None
    module = plain(words[1]) or ""
    if module in ("torch.distributed.run", "torch.distributed.launch"):
        inner = _torchrun(launch, words[2:])
        return [launch.words[0], *flags, *inner[1:]] if inner and is_python(inner[0]) else inner
    if module == "accelerate.commands.launch":
        return _accelerate(launch, ["launch", *words[2:]])
    return None


def _shell(launch: Launch, rest: list[str]) -> list[str] | None:
    """Open `bash -c 'A && B'`: its last command is what counts, those before it prepare it."""
    at = next((i for i, word in enumerate(rest) if not (word.startswith("-") and len(word) < 5)), len(rest))
    if not any("c" in word for word in rest[:at]) or at >= len(rest):
        return None
    return _string(launch, rest[at])


def _string(launch: Launch, word: str) -> list[str] | None:
    body = shell.read(unquote(word), launch.line)
    commands = [command for statement in body.statements for command in statement.commands]
    if body.error or not commands or any(statement.block for statement in body.statements):
        return None
    if any(command.joint in ("|", "||") for command in commands):
        launch.problem = "a pipe or || inside of quotes"
    while commands and commands[-1].words and name_of(commands[-1].words[0]) in ("wait", "exit", "date", "echo"):
        commands.pop()
    if not commands:
        return None
    launch.before += commands[:-1]
    return commands[-1].words


def unquote(word: str) -> str:
    """Return what a shell of its own is given in `word`: quotes gone, what is to be expanded still there."""
    if len(word) > 1 and word[0] == word[-1] == "'":
        return word[1:-1]
    if len(word) > 1 and word[0] == word[-1] == '"':
        return re.sub(r'\\([$`"\\\n])', lambda found: "" if found[1] == "\n" else found[1], word[1:-1])
    return word


def _ssh(launch: Launch, rest: list[str]) -> list[str] | None:
    layer = Layer("ssh", launch.line, {}, [])
    inner = _options(launch, layer, rest, lambda word: int(word in ("-o", "-p", "-i", "-l")))
    if len(inner) < 2:
        return None
    launch.layers.append(layer)
    return _string(launch, inner[1]) if len(inner) == 2 else inner[1:]


_KINDS: dict[str, Callable[[Launch, list[str]], list[str] | None]] = {
    **dict.fromkeys(("mpirun", "mpiexec", "mpiexec.hydra", "orterun"), _mpirun),
    "srun": _srun,
    "pbsdsh": _pbsdsh,
    "torchrun": _torchrun,
    "deepspeed": _deepspeed,
    "accelerate": _accelerate,
    "bash": _shell,
    "sh": _shell,
    "ssh": _ssh,
}
