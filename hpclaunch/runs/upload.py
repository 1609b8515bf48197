"""What travels to another host: the project's files, tracked and unignored by git, to one folder for each run."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from hpclaunch.errors import HpclaunchError, counted
from hpclaunch.paths import WORKLOADS
from hpclaunch.schedulers import ssh
from hpclaunch.schedulers.run_folder import RUNS

MOST = 500_000_000  # bytes; more is sent only if the user says so
_UPLOADED = "uploaded"  # as remote.sh says it
_PROGRAMS = WORKLOADS["mnist"].parent
_ENVIRONMENTS = {"pyvenv.cfg", "conda-meta"}


def files() -> list[str]:
    """Return the files of this folder that travel: those that git tracks or does not ignore, not those of run folders.

    Without git they are all but hidden ones, caches and environments.
    """
    names = ["."]
    with suppress(OSError, subprocess.SubprocessError):
        words = ["git", "-c", "core.fsmonitor=false", "ls-files", "-coz", "--exclude-standard"]
        names = os.fsdecode(subprocess.run(words, capture_output=True, check=True).stdout).split("\0")
    found = (file for name in dict.fromkeys(names) if name for file in _below(Path(name)))
    return [file for file in found if not file.startswith(f"{RUNS}/")]


def _below(path: Path) -> Iterator[str]:
    """Yield a file, or those of a folder, as of a repository in the repository."""
    if path.is_symlink() or path.is_file():
        yield str(path)
    for entry in sorted(path.iterdir()) if path.is_dir() and not path.is_symlink() else ():
        hidden = entry.name.startswith(".") or entry.name in ("__pycache__", RUNS)
        if not (hidden or any((entry / name).exists() for name in _ENVIRONMENTS)):
            yield from _below(entry)


def measured(names: Sequence[str], confirmed: bool) -> str:
    """Return how many files these are and how large. Raises HpclaunchError if that is too much, unless `confirmed`."""
    sizes = {name: Path(name).lstat().st_size for name in names}
    size = f"{counted(len(names), 'file')}, {megabytes(sum(sizes.values()))}"
    if sum(sizes.values()) > MOST and not confirmed:
        largest = ", ".join(f"{name} ({megabytes(sizes[name])})" for name in sorted(sizes, key=lambda n: -sizes[n])[:5])
        text = f"{size} exceed the limit of {megabytes(MOST)}; the largest are {largest}"
        raise HpclaunchError(text, "list in .gitignore what the job does not need, or use --yes")
    return size


def megabytes(size: float) -> str:
    """Return a size in words."""
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def stays(names: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the files and folders here that a command names and that are not among those that travel."""
    inside = {os.path.normpath(part) for word in words for part in (word, word.partition("=")[2]) if part}
    there = {"."}.union(*({name, *map(str, Path(name).parents)} for name in names))
    return sorted(path for path in inside - there if not path.startswith(("/", "..")) and os.path.exists(path))  # noqa: PTH110 - Path.exists raises for a name that is too long


def send(host: str, folder: str, project: str, script: str) -> None:
    """Bring the project to its folder on `host`, once; only what differs from the last upload is sent.

    The bundled workloads are sent along if the script runs one. Raises SchedulerError.
    """
    before = ssh.answer(host, "prepare", folder).strip()
    if before == _UPLOADED:
        return
    os.chdir(project)
    options = ["-ltE", "--partial", "--from0", "--files-from=-", *([f"--copy-dest={before}"] if before else [])]
    ssh.rsync(host, *options, "./", f"{host}:{folder}/", stdin="\0".join(files()))
    if there(folder) in script:
        ssh.rsync(host, "-t", *map(str, _PROGRAMS.glob("*.py")), f"{host}:{there(folder)}")
    ssh.answer(host, "at", folder, "touch", f".hpclaunch/{_UPLOADED}")


def there(folder: str, script: str | None = None) -> str:
    """Return the folder of the bundled workloads in a run's folder, or the script with them in it."""
    own = f"{folder}/.hpclaunch/workloads/"
    return own if script is None else script.replace(f"{_PROGRAMS}/", own)
