"""What travels to another host: the project's files, tracked and unignored by git, to one folder for each run."""

import os
from collections.abc import Sequence
from pathlib import Path

from hpclaunch.errors import HpclaunchError, counted
from hpclaunch.paths import WORKLOADS
from hpclaunch.runs.snapshot import listed
from hpclaunch.schedulers import ssh

MOST = 500_000_000  # bytes; more is sent only if the user says so
_UPLOADED = "uploaded"  # as remote.sh says it
_PROGRAMS = WORKLOADS["mnist"].parent


def files() -> list[str]:
    """Return the files of this folder that travel: those that git tracks or does not ignore, or those of a snapshot."""
    return sorted(path for path in {*listed(".")} if Path(path).is_symlink() or Path(path).is_file())


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
