"""What only this machine knows of a request, looked up before the plan is made: links, the command's program, cores."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from msgspec import structs

from hpclaunch import paths
from hpclaunch.errors import nearest
from hpclaunch.job.request import Request
from hpclaunch.job.storage import as_named, named_by
from hpclaunch.profile.model import Site
from hpclaunch.profile.search import match_host
from hpclaunch.schedulers import scheduler

# These run the first file among their arguments, if they run a file; and what may stand before them.
_INTERPRETER = r"(?:python|bash|sh|zsh|dash|torchrun)[\d.]*"
_WRAPPER = "env|time|nice|nohup|timeout|numactl|stdbuf|nsys|uv|srun|mpirun|mpiexec"
_NO_FILE = r"-|-[A-Za-z]*[cm]|--module|--no[-_]python"
# Lines of setup that create no files and do not change the folder; and what makes a command find its files elsewhere.
_KEEPS = r"\s*(?:(?:export|module|ulimit|conda|(?:source|\.)\s+\S*/activate)\b[^;&|]*)?"
_MOVES = r"\b(?:PATH|PYTHONPATH|chdir|directory)\b|(?<!\S)-[CD]\b"
# What stands in a program that saves at a signal and continues later; Lightning does so by itself on Slurm.
_SAVES = r"SIGUSR1|SIGTERM|\bUSR1\b|HPCLAUNCH_|hpclaunch|EX_TEMPFAIL|exit\w*\W{1,2}75\b"
_LIGHTNING = r"\b(?:pytorch_)?lightning\b"
_SMALLEST_IMAGE = 100_000  # bytes: less is a page of an error, or a pointer of git LFS
_MOST_FILES = 20_000  # of a folder, whose sizes are looked up
_LONGEST = 1_000_000  # characters of a program that are read


def follow_links(site: Site, request: Request, here: bool = False) -> Request:
    """Return the request with its links, and with the file systems that they lead to added to its storage.

    The provenance line thus makes the same script on another machine. No path is looked up if the site needs none.
    If the job runs `here`, as with the scheduler `local`, the request also gets the number of this machine's cores.
    """
    if here or scheduler(site.scheduler).here:
        request = _with(request, cores=len(os.sched_getaffinity(0)))
    if scheduler(site.scheduler).here or not (site.storage_roots or site.home_gb):
        return request
    return with_links(site, request, dict(_links(site, request)))


def with_links(site: Site, request: Request, links: dict[str, str]) -> Request:
    """Return the request with its links, and with the file systems that they lead to added to its storage."""
    requested = site.storage + [as_named(site, name) for name in request.storage]
    behind = [name for name in named_by(site, request.account or site.account, links.values()) if name not in requested]
    return structs.replace(_with(request, links=links), storage=[*request.storage, *behind])


def _with(request: Request, **known: Any) -> Request:
    return structs.replace(request, machine=structs.replace(request.machine, **known))


def look_up_program(site: Site, request: Request, starts: bool) -> Request:
    """Return the request with what is known here of its command's program.

    With `starts` the command starts from this folder, so that a file missing here is sure to be missing then.
    """
    if not request.command:
        return request
    file = _file(request.command)
    kind = scheduler(site.scheduler)
    problem = _program_problem(request, kind.here)
    in_image = request.container and file.startswith("/")
    if not problem and file and not in_image and not _exists(file):
        problem = f"there is no file {file}{_nearest(file)}"
    words = [*request.setup, *request.env, *request.directive, *request.command]
    moves = re.search(_MOVES, " ".join(words)) or not all(re.fullmatch(_KEEPS, line) for line in request.setup)
    visible = kind.here or not file.startswith("/")
    requeues = kind.lightning_requeues and (request.launcher or site.launcher) == "tasks"
    return _with(
        request,
        program_problem=problem,
        program_is_final=starts and visible and not moves,
        program_saves=(request.max_attempts or site.max_attempts) == 1 or _saves(request, file, requeues),
    )


def look_up_files(site: Site, request: Request, starts: bool) -> Request:
    """Return the request with what is missing here of its image and of what it stages, and the size of the latter."""
    sources = [item.partition(":")[0] for item in request.stage_in]
    if not (request.container or sources):
        return request
    sizes = {source: _size(_expanded(source)) for source in sources if "$" not in _expanded(source)}
    return _with(
        request,
        image_problem=_image_problem(request.container or ""),
        image_folders=[os.path.expandvars(folder) for folder in site.container.folders],
        files_missing=[source for source, size in sizes.items() if size is None],
        files_are_final=starts or match_host() == request.site,
        staged_gb=sum(size or 0 for size in sizes.values()) / 1e9,
    )


def _expanded(text: str) -> str:
    return os.path.expandvars(os.path.expanduser(text))  # noqa: PTH111 - Path raises for an unknown ~user


def _image_problem(image: str) -> str:
    """Return why `image` cannot run, or "" if it may; a name in a registry is not looked up."""
    path = _expanded(image)
    if "$" in path or not re.match(r"[/.]|.*\.(sif|sqsh|squashfs|img)$", path):
        return ""
    if (size := _size(path)) is None:
        return f"there is no image {image}{_nearest(path)}"
    if Path(path).is_file() and size < _SMALLEST_IMAGE:
        return f"{image} is no image, as it has only {size} bytes; build or download it again"
    return ""


def _size(path: str) -> int | None:
    """Return the bytes of a file, or those of the first files of a folder, or None if there is none."""
    with suppress(OSError, ValueError):
        first = Path(path).stat()
        below = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        return first.st_size + sum(file.lstat().st_size for file in islice(below, _MOST_FILES))
    return None


def look_up_folders(site: Site, request: Request, here: bool) -> Request:
    """Return the request with the folders of its output that are not there, which is sure where it is submitted."""
    if not request.directive:
        return request
    from hpclaunch.job.checks.directives import output_folders  # only few requests have directives
    from hpclaunch.job.directives.read import read_options

    folders = output_folders(read_options(request.directive, site.scheduler))
    missing = missing_folders(folders, here or (bool(folders) and match_host() == request.site))
    return _with(request, missing_folders=missing)


def missing_folders(folders: set[str], here: bool, beside: Path = Path()) -> dict[str, bool]:
    """Return those folders that are not there, seen from here or from `beside`; with `here` that is sure."""
    found = {}
    for folder in folders:
        with suppress(OSError, RuntimeError, ValueError):
            if any((root / Path(folder).expanduser()).is_dir() for root in (Path(), beside)):
                continue
        found[folder] = here
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
    texts = [*request.command, *request.env.values(), *request.stage_in, request.venv or "", request.container or ""]
    texts += [word for line in request.setup for word in line.split()]
    for text in texts:
        if "\n" not in text and "://" not in text and len(text) < 4096:
            yield from dict.fromkeys(part.strip("\"'") for part in (text, *re.split(r"[=:]", text)) if part)


def _file(words: list[str]) -> str:
    """Return the script that a command runs, or "" if it cannot be known."""
    names = [Path(word).name for word in words]
    if not re.fullmatch(_INTERPRETER, names[0]) and not re.fullmatch(_WRAPPER, names[0]):
        return ""
    start = next((i for i, name in enumerate(names) if re.fullmatch(_INTERPRETER, name)), len(words))
    for before, word in pairwise(words[start:]):
        if "$" in word or re.fullmatch(_NO_FILE, word):
            return ""
        if word.endswith((".py", ".sh")):
            return word
        if not (word.startswith("-") or before.startswith("-")):  # a script of another name
            return ""
    return ""


def _program_problem(request: Request, here: bool) -> str:
    """Return why the first word of a command is no program, or "" if it may be one."""
    word = request.command[0]
    use = f"use {'python' if word.endswith('.py') else 'bash'} {word}"
    script = word.endswith((".py", ".sh"))
    if request.container:
        return ""  # it is the image's
    installs = request.venv or request.setup or request.module
    if "$" in word or not word.strip() or (word.startswith("/") and not here):
        return ""
    places = [f"{request.venv}/bin", f"{request.venv}/.venv/bin", os.environ.get("PATH", os.defpath)]
    if shutil.which(word, path=os.pathsep.join(places)):
        return ""
    if "/" in word:
        fix = use if script else f"use chmod +x {word}"
        return f"{word} is not executable; {fix}" if _exists(word) else f"there is no program {word}{_nearest(word)}"
    if script and (_exists(word) or not installs):
        return f"{word} is no program on PATH{f'; {use}' if _exists(word) else _nearest(word)}"
    return f"there is no program {word} on PATH" if here and not installs else ""


def _exists(file: str) -> bool:
    return os.path.exists(file)  # noqa: PTH110 - Path.exists raises for a name that is too long


def _nearest(file: str) -> str:
    """Return ` (did you mean FILE?)` for the file in the same folder with the same suffix and the nearest name."""
    path = Path(file)
    with suppress(OSError, ValueError):
        return nearest(str(path), [str(other) for other in path.parent.iterdir() if other.suffix == path.suffix])
    return ""


def _saves(request: Request, file: str, requeues: bool) -> bool:
    """Return whether the command's script, if it can be read, or the command looks as if it saves when it is warned."""
    text = " ".join(request.command)
    with suppress(OSError, ValueError):
        if not Path(file).is_file():  # reading a pipe would consume it
            return not file or bool(re.search(_SAVES, text))
        with Path(file).open(encoding="utf-8", errors="replace") as program:
            text += program.read(_LONGEST)
    return bool(re.search(_SAVES, text) or (requeues and re.search(_LIGHTNING, text)))
