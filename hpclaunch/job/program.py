"""The program of a command: what only this machine knows of it, looked up before the plan is made."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from msgspec import structs

from hpclaunch.job.request import Program, Request
from hpclaunch.profile.model import Site

# What is followed by a value among the options before a script; anything else is a flag.
_TAKE_VALUES = {"python": r"-[A-Za-z]*[WX]|--check-hash-based-pycs", "bash": r"[-+][A-Za-z]*[oO]|--(?:rc|init-)file"}
# They start the first python file among their words, if they start a file.
_STARTERS = {"torchrun", "accelerate", "deepspeed"}
_STARTING_MODULES = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"}
# They start the command that begins with the first of these programs among their words.
_WRAPPERS = {"env", "time", "nice", "nohup", "timeout", "numactl", "stdbuf", "nsys", "uv", "srun", "mpirun", "mpiexec"}
_NO_FILE = {"-m", "--module", "--no-python", "--no_python"}
# Lines of setup that bring no files and stay in the folder; and what lets a command find its files elsewhere.
_KEEPS = re.compile(r"\s*(?:(?:export|module|ulimit|conda|(?:source|\.)\s+\S*/activate)\b[^;&|]*)?")
_MOVES = re.compile(r"\b(?:PATH|PYTHONPATH|chdir|directory)\b|(?<!\S)-[CD]\b")
# What a program has that saves when it is warned and goes on later; Lightning does so by itself on Slurm.
_SAVES = re.compile(r"SIGUSR1|SIGTERM|\bUSR1\b|HPCLAUNCH_|hpclaunch|EX_TEMPFAIL|exit\w*\W{1,2}75\b")
_LIGHTNING = re.compile(r"\b(?:pytorch_)?lightning\b")
_LONGEST = 1_000_000  # characters of a program that are looked at


def looked_up(site: Site, request: Request, starts: bool) -> Request:
    """Return the request with what this machine knows of its command's program.

    Only what `starts` from this folder is sure to miss what is missing here.
    """
    if not request.command:
        return request
    file = _file(request.command)
    wrong = _wrong_name(request, site.scheduler == "local")
    if not wrong and file and not _there(file):
        wrong = f"there is no file {file}{_near(file)}"
    words = [*request.setup, *request.env, *request.directive, *request.command]
    moves = _MOVES.search(" ".join(words)) or not all(map(_KEEPS.fullmatch, request.setup))
    seen = site.scheduler == "local" or not file.startswith("/")
    attempts = request.max_attempts or site.max_attempts
    requeues = site.scheduler == "slurm" and (request.launcher or site.launcher) == "tasks"
    saves = attempts == 1 or _saves(request, file, requeues)
    return structs.replace(request, program=Program(wrong=wrong, sure=starts and seen and not moves, saves=saves))


def _file(words: list[str]) -> str:
    """Return the script that a command runs, a module of this folder as MODULE.py; "" if it cannot be known."""
    kind, module, file = _kind(words[0]), "", ""
    if kind in _WRAPPERS:
        inner = (i for i, word in enumerate(words) if _kind(word) in _TAKE_VALUES or _kind(word) in _STARTERS)
        return _file(words[i:]) if (i := next(inner, 0)) else ""
    rest = iter(words[1:] if kind in _TAKE_VALUES else [])
    for word in rest:
        if word == "-" or re.match(r"-[A-Za-z]*c", word):
            break
        if re.fullmatch(_TAKE_VALUES[kind], word):
            next(rest, "")
        elif kind == "python" and re.fullmatch(r"-[A-Za-z]*m", word):
            module = next(rest, "")
            break
        elif not word.startswith(("-", "+")):
            file = word
            break
    if kind in _STARTERS or module in _STARTING_MODULES:
        started = words[1:] if kind in _STARTERS else list(rest)
        file = "" if _NO_FILE & {*started} else next((word for word in started if word.endswith(".py")), "")
    elif module:
        file = _module(module)
    return "" if "$" in file else file


def _kind(word: str) -> str:
    """Return a program's name without folder and version, bash for any shell."""
    name = re.sub(r"[\d.]+$", "", Path(word).name)
    return "bash" if name in ("sh", "zsh", "dash") else name


def _module(name: str) -> str:
    """Return the file of `python -m NAME`; "" if that may be one that is installed."""
    path = Path(*name.split("."))
    main, file = str(path / "__main__.py"), str(path.with_suffix(".py"))
    if _there(main):
        return main
    known = _there(file) or _there(f"{path.parts[0]}/__init__.py") or (len(path.parts) > 1 and _near(file))
    return file if known else ""


def _wrong_name(request: Request, local: bool) -> str:
    """Say why the first word of a command is no program; "" if it may be one."""
    word = request.command[0]
    by = f"{'python' if word.endswith('.py') else 'bash'} {word}"
    script = word.endswith((".py", ".sh"))
    brought = request.venv or request.setup or request.module
    if "$" in word or not word.strip() or (word.startswith("/") and not local):
        return ""
    if "/" in word:
        if not _there(word):
            return f"there is no program {word}{_near(word)}"
        use = by if script else f"chmod +x {word}"
        return "" if os.access(word, os.X_OK) else f"{word} is not executable; use {use}"
    if shutil.which(word, path=os.pathsep.join([f"{request.venv}/bin", os.environ.get("PATH", os.defpath)])):
        return ""
    brought = request.venv or request.setup or request.module
    if script and (_there(word) or not brought):
        return f"{word} is no program on PATH{f'; use {by}' if _there(word) else _near(word)}"
    return f"there is no program {word} on PATH" if local and not brought else ""


def _there(file: str) -> bool:
    return os.path.exists(file)  # noqa: PTH110 - Path.exists raises for a name that is too long


def _near(file: str) -> str:
    """Return ` (did you mean FILE?)` for the file of that kind in the same folder that has the nearest name."""
    from difflib import get_close_matches

    path = Path(file)
    try:
        names = [other.name for other in path.parent.iterdir() if other.suffix == path.suffix]
    except (OSError, ValueError):
        return ""
    found = get_close_matches(path.name, names, n=1, cutoff=0.6)
    return f" (did you mean {path.parent / found[0]}?)" if found else ""


def _saves(request: Request, file: str, requeues: bool) -> bool:
    """Tell whether anything in the command or its file looks as if it saved when it is warned."""
    text, path = " ".join(request.command), Path(file or request.command[0])
    with suppress(OSError, ValueError):
        if path.is_file():  # a pipe would lose what is read
            with path.open(encoding="utf-8", errors="replace") as program:
                text += program.read(_LONGEST)
    return bool(_SAVES.search(text) or (requeues and _LIGHTNING.search(text)))
