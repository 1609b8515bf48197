"""The code of the current folder as it is now: a copy for jobs that are to run it, however the folder changes.

hpclaunch-runs/code/NAME has the copy, commit and difference; the name is a hash of the code, so that jobs with the same
code share it. A job script copies it into its run folder. What is big or ignored is a link to the original there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from stat import S_ISLNK, S_ISREG

import msgspec

from hpclaunch.errors import HpclaunchError
from hpclaunch.schedulers.run_folder import CODE, COMMIT, DIFF, RUNS

FOLDER = Path(RUNS, "code")
MOST_BYTES_OF_A_FILE = 50_000_000  # a larger one is linked
_MOST_BYTES, _MOST_FILES = 1_000_000_000, 20_000
_NEVER = {".git", "__pycache__", RUNS}  # neither copied nor linked
# Nothing that a repository's own configuration names is run.
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
_ENVIRONMENT = {"GIT_ALLOW_PROTOCOL": "none", "GIT_OPTIONAL_LOCKS": "0"}
_SECONDS = 30  # that git may take


class Snapshot(msgspec.Struct, frozen=True):
    """The files of the current folder that are copied, their hash, and the files that are too big."""

    name: str
    files: list[str]
    big: list[str]


def look() -> Snapshot:
    """Return what a copy of the current folder would be. Raises HpclaunchError if that is too much."""
    files, big, total = [], [], 0
    for path in sorted(set(_listed("."))):
        with suppress(FileNotFoundError, NotADirectoryError):  # deleted, and still in git's index
            found = Path(path).lstat()
            if S_ISREG(found.st_mode) and found.st_size > MOST_BYTES_OF_A_FILE:
                big.append(path)
            elif S_ISREG(found.st_mode) or S_ISLNK(found.st_mode):
                files.append(path)
                total += found.st_size
    if total > _MOST_BYTES or len(files) > _MOST_FILES:
        raise HpclaunchError(
            f"--snapshot: {len(files):,} files, {total / 1e9:.1f} GB, exceed the limit of {_MOST_FILES:,} and "
            f"{_MOST_BYTES / 1e9:.0f} GB; list data in .gitignore, or use --no-snapshot"
        )
    return Snapshot(_hash(Path(), files), files, big)


def write(name: str) -> None:
    """Write the copy of this name, unless it is there. Raises HpclaunchError if the code is no longer that code."""
    folder, snapshot = FOLDER / name, look()
    if not folder.is_dir():
        new = FOLDER / f".{name}.{os.getpid()}"
        for file in snapshot.files:
            target = new / CODE / file
            target.parent.mkdir(parents=True, exist_ok=True)
            if Path(file).is_symlink():
                target.symlink_to(_target(Path(), file))
            else:
                shutil.copy2(file, target)
        if _hash(new / CODE, snapshot.files) != name:
            shutil.rmtree(new)
            raise HpclaunchError("--snapshot: the code changed while it was copied; submit again")
        for file, text in ((COMMIT, _git("rev-parse", "HEAD")), (DIFF, _difference())):
            (new / file).write_bytes(text)
        with suppress(OSError):  # another process was faster
            new.rename(folder)
        shutil.rmtree(new, ignore_errors=True)
    _link(folder / CODE, {*snapshot.files})


def _listed(folder: str) -> Iterator[str]:
    """Yield the tracked and unignored files below a folder, or without git all but hidden ones and environments."""
    listed = _git("-C", folder, "ls-files", "-coz", "--exclude-standard").decode(errors="surrogateescape").split("\0")
    for path in (os.path.normpath(Path(folder, name)) for name in listed[:-1]):
        if not _NEVER & {*path.split("/")}:
            inner = Path(path).is_dir() and not Path(path).is_symlink()  # a repository in it
            yield from _listed(path) if inner else [path]
    if not listed[:-1]:
        for above, folders, names in os.walk(folder):
            folders[:] = [name for name in folders if _is_code(Path(above, name))]
            yield from (os.path.normpath(Path(above, name)) for name in names if not name.startswith("."))


def _is_code(folder: Path) -> bool:
    environment = (folder / "pyvenv.cfg").exists() or (folder / "conda-meta").exists()
    return not (folder.name.startswith(".") or folder.name in _NEVER or environment)


def _hash(root: Path, files: list[str]) -> str:
    found = hashlib.sha256()
    for file in files:
        path = root / file
        link = path.is_symlink()
        content = os.fsencode(_target(root, file)) if link else path.read_bytes()
        kind = "link" if link else f"{path.stat().st_mode & 0o100}"
        found.update(os.fsencode(f"{file}\0{kind}\0{len(content)}\0") + content)
    return found.hexdigest()[:16]


def _target(root: Path, file: str) -> str:
    """Return where a link leads; out of the folder by its absolute path."""
    target = str((root / file).readlink())
    inside = not os.path.normpath(Path(file).parent / target).startswith("..")
    return target if inside else os.path.normpath(Path.cwd() / root / Path(file).parent / target)


def _link(copy: Path, files: set[str]) -> None:
    """Link what is not copied to the originals: each folder as a whole, if no file in it is copied."""
    above = {str(folder) for file in files for folder in Path(file).parents}
    for folder in above:
        for entry in os.scandir(folder):
            path = os.path.normpath(entry.path)
            if not (path in files or path in above or entry.name in _NEVER):
                with suppress(FileExistsError):  # of an earlier job
                    (copy / path).symlink_to(Path.cwd() / path)


def _difference() -> bytes:
    """Return what `git diff HEAD` prints, with no filter that the repository names."""
    names = _git("config", "--name-only", "--get-regexp", r"^filter\.").decode(errors="surrogateescape").splitlines()
    filters = {name.rpartition(".")[0] for name in names}
    off = [
        word for one in filters for key in ("clean=", "process=", "required=false") for word in ("-c", f"{one}.{key}")
    ]
    return _git(*off, "diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "HEAD")


def _git(*words: str) -> bytes:
    """Return what git prints, or nothing if it fails."""
    with suppress(OSError, subprocess.TimeoutExpired):
        environment = os.environ | _ENVIRONMENT
        done = subprocess.run([*_GIT, *words], env=environment, capture_output=True, timeout=_SECONDS, check=False)
        return done.stdout if done.returncode == 0 else b""
    return b""
