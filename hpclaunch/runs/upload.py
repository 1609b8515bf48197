"""What travels to another host: the project's files, tracked and unignored by git, to one folder for each run."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpclaunch.errors import HpclaunchError, counted
from hpclaunch.paths import WORKLOADS
from hpclaunch.schedulers import run_folder, ssh
from hpclaunch.schedulers.command import ONCE

MOST_MB = 500  # above it nothing is sent unasked
UPLOADED = f"{ONCE}/uploaded"  # empty; its time is the upload's end, and what is newer was made by the job
PROGRAMS = f"{ONCE}/workloads"  # a copy of the bundled workloads
_OWN_WORKLOADS = WORKLOADS["mnist"].parent


def files(project: Path) -> list[str]:
    """Return the files of a folder that travel: those that git tracks or does not ignore, else all of them.

    Never those of run folders; without git, no hidden ones, caches and environments. Raises HpclaunchError.
    """
    names = ["."]
    try:
        words = ["git", "-C", str(project), "ls-files", "-coz", "--exclude-standard"]
        git = subprocess.run(words, capture_output=True, check=False)
        if git.returncode == 0:
            names = os.fsdecode(git.stdout).split("\0")[:-1]
        elif b"not a git repository" not in git.stderr:
            raise HpclaunchError(f"git ls-files: {git.stderr.decode(errors='replace').strip()}")
    except FileNotFoundError:
        pass
    found = [file for name in dict.fromkeys(names) for file in _below(project, name)]
    return [name for name in found if not name.startswith((f"{run_folder.RUNS}/", f"{ONCE}/"))]


def _below(project: Path, name: str) -> Iterator[str]:
    """Yield the file, or the files of a folder, as of a repository inside of the repository."""
    path = project / name
    if path.is_symlink() or path.is_file():
        yield name
        return
    for root, folders, found in os.walk(path):
        links = [folder for folder in folders if Path(root, folder).is_symlink()]
        folders[:] = sorted(folder for folder in folders if folder not in links and _travels(Path(root, folder)))
        yield from (os.path.relpath(Path(root, file), project) for file in (*found, *links) if not file.startswith("."))


def _travels(folder: Path) -> bool:
    """Tell whether a folder is none that is hidden, a cache, or an environment."""
    known = folder.name.startswith(".") or folder.name in ("__pycache__", run_folder.RUNS)
    return not (known or (folder / "pyvenv.cfg").exists() or (folder / "conda-meta").exists())


def measured(project: Path, names: Sequence[str], confirmed: bool) -> str:
    """Return how many files these are and how large. Raises HpclaunchError if that is too much, unless `confirmed`."""
    sizes = {name: (project / name).lstat().st_size for name in names}
    size = f"{counted(len(names), 'file')}, {megabytes(sum(sizes.values()))}"
    if sum(sizes.values()) > MOST_MB * 1e6 and not confirmed:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:5]
        listed = ", ".join(f"{name} ({megabytes(sizes[name])})" for name in largest)
        raise HpclaunchError(
            f"{size} exceed {MOST_MB} MB, the most that is sent unasked; the largest are {listed}",
            "name what the job does not need in .gitignore, or use --yes",
        )
    return size


def megabytes(size: float) -> str:
    """Return a size in words."""
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def send(host: str, folder: str, project: Path, script: str) -> None:
    """Bring the project to its folder on `host`, once; only what differs from the last upload is sent.

    The bundled workloads are sent along if the script runs one. Raises SchedulerError.
    """
    name = folder.rpartition("/")[2]
    others = f"../{name.rsplit('-', 3)[0]}-[0-9]*"
    newest = f"ls -dr {others} 2>/dev/null | grep -vF {name} | head -n 1"
    words = f"mkdir -p {shlex.quote(f'{folder}/{ONCE}')} && cd {shlex.quote(folder)} || exit"
    answer = ssh.output(host, f"{words}\nif [ -e {UPLOADED} ]; then echo {UPLOADED}; else {newest}; fi").strip()
    if answer == UPLOADED:
        return
    options = ["-ltE", "--partial", "--from0", "--files-from=-"]
    last = [f"--copy-dest={answer}"] if answer else []
    names = files(project)
    ssh.rsync(host, *options, *last, f"{project}/", f"{host}:{folder}/", stdin="".join(f"{name}\0" for name in names))
    if f"{folder}/{PROGRAMS}/" in script:
        ssh.rsync(host, "-t", *map(str, _OWN_WORKLOADS.glob("*.py")), f"{host}:{folder}/{PROGRAMS}/")
    ssh.output(host, f"touch {shlex.quote(f'{folder}/{UPLOADED}')}")


def with_programs(folder: str, script: str) -> str:
    """Return the script with the bundled workloads where they are in a run's folder on another host."""
    return script.replace(f"{_OWN_WORKLOADS}/", f"{folder}/{PROGRAMS}/")
