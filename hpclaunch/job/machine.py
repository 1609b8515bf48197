"""What only this machine knows of a request, looked up before the plan is made: links, the command's program, cores."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import structs

from hpclaunch import paths
from hpclaunch.job.request import Request
from hpclaunch.job.storage import as_named, named_by
from hpclaunch.profile.model import Site
from hpclaunch.schedulers import scheduler

# The options before a script that take a value; any other is a flag.
_TAKE_VALUES = {"python": r"-[A-Za-z]*[WX]|--check-hash-based-pycs", "bash": r"[-+][A-Za-z]*[oO]|--(?:rc|init-)file"}
# These run the first Python file among their arguments, if they run a file.
_STARTERS = {"torchrun", "accelerate", "deepspeed"}
_STARTING_MODULES = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"}
# These run the command that begins with the first of the programs above among their arguments.
_WRAPPERS = {"env", "time", "nice", "nohup", "timeout", "numactl", "stdbuf", "nsys", "uv", "srun", "mpirun", "mpiexec"}
_NO_FILE = {"-m", "--module", "--no-python", "--no_python"}
# Lines of setup that create no files and do not change the folder; and what makes a command find its files elsewhere.
_KEEPS = re.compile(r"\s*(?:(?:export|module|ulimit|conda|(?:source|\.)\s+\S*/activate)\b[^;&|]*)?")
_MOVES = re.compile(r"\b(?:PATH|PYTHONPATH|chdir|directory)\b|(?<!\S)-[CD]\b")
# What stands in a program that saves at a signal and continues later; Lightning does so by itself on Slurm.
_SAVES = re.compile(r"SIGUSR1|SIGTERM|\bUSR1\b|HPCLAUNCH_|hpclaunch|EX_TEMPFAIL|exit\w*\W{1,2}75\b")
_LIGHTNING = re.compile(r"\b(?:pytorch_)?lightning\b")
_LONGEST = 1_000_000  # characters of a program that are read


def follow_links(site: Site, request: Request, here: bool = False) -> Request:
    """Return the request with its links, and with the file systems that they lead to added to its storage.

    The provenance line thus makes the same script on another machine. No path is looked up if the site needs none.
    If the job runs `here`, as with the scheduler `local`, the request also gets the number of this machine's cores.
    """
    if here or scheduler(site.scheduler).here:
        cores = len(os.sched_getaffinity(0))
        request = structs.replace(request, machine=structs.replace(request.machine, cores=cores))
    if scheduler(site.scheduler).here or not (site.storage_roots or site.home_gb):
        return request
    links = dict(_links(site, request))
    requested = site.storage + [as_named(site, name) for name in request.storage]
    behind = [name for name in named_by(site, request.account or site.account, links.values()) if name not in requested]
    machine = structs.replace(request.machine, links=links)
    return structs.replace(request, machine=machine, storage=[*request.storage, *behind])


def look_up_program(site: Site, request: Request, starts: bool) -> Request:
    """Return the request with what is known here of its command's program.

    With `starts` the command starts from this folder, so that a file missing here is sure to be missing then.
    """
    if not request.command:
        return request
    file = _file(request.command)
    kind = scheduler(site.scheduler)
    problem = _program_problem(request, kind.here)
    if not problem and file and not _exists(file):
        problem = f"there is no file {file}{_nearest(file)}"
    words = [*request.setup, *request.env, *request.directive, *request.command]
    moves = _MOVES.search(" ".join(words)) or not all(map(_KEEPS.fullmatch, request.setup))
    visible = kind.here or not file.startswith("/")
    requeues = kind.lightning_requeues and (request.launcher or site.launcher) == "tasks"
    machine = structs.replace(
        request.machine,
        program_problem=problem,
        program_is_final=starts and visible and not moves,
        program_saves=(request.max_attempts or site.max_attempts) == 1 or _saves(request, file, requeues),
    )
    return structs.replace(request, machine=machine)


def look_up_folders(site: Site, request: Request) -> Request:
    """Return the request with the folders of its output, as its directives name them, that are not there."""
    if not request.directive:
        return request
    from hpclaunch.job.checks.directives import output_folders  # only few requests have directives
    from hpclaunch.job.directives.read import read_options

    missing = missing_folders(output_folders(read_options(request.directive, site.scheduler)), here=False)
    return structs.replace(request, machine=structs.replace(request.machine, missing_folders=missing))


def missing_folders(folders: set[str], here: bool, beside: Path = Path()) -> dict[str, bool]:
    """Return those folders that are not there, seen from here or from `beside`; and whether that is sure.

    If this machine is not the site's, not `here`, another may have what is missing.
    """
    found = {}
    for folder in folders:
        try:
            exists = any((root / Path(folder).expanduser()).is_dir() for root in (Path(), beside))
        except (OSError, RuntimeError, ValueError):
            exists = False
        if not exists:
            found[folder] = here or not folder.startswith("/")
    return found


def _links(site: Site, request: Request) -> Iterator[tuple[str, str]]:
    """Yield each path of a request that leads to a file system that must be named, or into the home folder as ~."""
    home = paths.home().resolve()
    for word in _paths(request):
        try:
            path = Path(word).expanduser()
            real = path.resolve(strict="/" not in word)
        except (OSError, RuntimeError, ValueError):  # missing, a loop, an unknown ~user, a null byte
            continue
        if real != home and real.is_relative_to(home):
            yield word, f"~/{real.relative_to(home)}"
        elif str(real) != word and (named_by(site, None, [str(real)]) or path.is_relative_to(paths.home())):
            yield word, str(real)


def _paths(request: Request) -> Iterator[str]:
    """Yield the working folder and each word that may be a path, or a part of one: of --data=x and of a:b."""
    yield "."
    texts = [*request.command, *request.env.values(), request.venv or ""]
    texts += [word for line in request.setup for word in line.split()]
    for text in texts:
        if "\n" not in text and "://" not in text and len(text) < 4096:
            yield from dict.fromkeys(part.strip("\"'") for part in (text, *re.split(r"[=:]", text)) if part)


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
        file = _module_file(module)
    return "" if "$" in file else file


def _kind(word: str) -> str:
    """Return a program's name without folder and version, bash for any shell."""
    name = re.sub(r"[\d.]+$", "", Path(word).name)
    return "bash" if name in ("sh", "zsh", "dash") else name


def _module_file(name: str) -> str:
    """Return the file of `python -m NAME`, or "" if that may be an installed module."""
    path = Path(*name.split("."))
    main, file = str(path / "__main__.py"), str(path.with_suffix(".py"))
    if _exists(main):
        return main
    known = _exists(file) or _exists(f"{path.parts[0]}/__init__.py") or (len(path.parts) > 1 and _nearest(file))
    return file if known else ""


def _program_problem(request: Request, local: bool) -> str:
    """Return why the first word of a command is no program, or "" if it may be one."""
    word = request.command[0]
    use = f"use {'python' if word.endswith('.py') else 'bash'} {word}"
    script = word.endswith((".py", ".sh"))
    installs = request.venv or request.setup or request.module
    if "$" in word or not word.strip() or (word.startswith("/") and not local):
        return ""
    if "/" in word:
        if not _exists(word):
            return f"there is no program {word}{_nearest(word)}"
        return (
            "" if os.access(word, os.X_OK) else f"{word} is not executable; {use if script else f'use chmod +x {word}'}"
        )
    if shutil.which(word, path=os.pathsep.join([f"{request.venv}/bin", os.environ.get("PATH", os.defpath)])):
        return ""
    if script and (_exists(word) or not installs):
        return f"{word} is no program on PATH{f'; {use}' if _exists(word) else _nearest(word)}"
    return f"there is no program {word} on PATH" if local and not installs else ""


def _exists(file: str) -> bool:
    return os.path.exists(file)  # noqa: PTH110 - Path.exists raises for a name that is too long


def _nearest(file: str) -> str:
    """Return ` (did you mean FILE?)` for the file in the same folder with the same suffix and the nearest name."""
    from difflib import get_close_matches

    path = Path(file)
    try:
        names = [other.name for other in path.parent.iterdir() if other.suffix == path.suffix]
    except (OSError, ValueError):
        return ""
    found = get_close_matches(path.name, names, n=1, cutoff=0.6)
    return f" (did you mean {path.parent / found[0]}?)" if found else ""


def _saves(request: Request, file: str, requeues: bool) -> bool:
    """Return whether the command or its file looks as if it saves when it is warned."""
    text, path = " ".join(request.command), Path(file or request.command[0])
    with suppress(OSError, ValueError):
        if path.is_file():  # reading a pipe would consume it
            with path.open(encoding="utf-8", errors="replace") as program:
                text += program.read(_LONGEST)
    return bool(_SAVES.search(text) or (requeues and _LIGHTNING.search(text)))
