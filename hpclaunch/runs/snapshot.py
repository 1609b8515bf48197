"""The code of the current folder as it is now: a copy for jobs that are to run it, however the folder changes.

hpclaunch-runs/code/NAME has the copy, commit and difference; the name is a hash of the code. A job script copies it
into its run folder. What is big or ignored is a link to the original there.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from stat import S_IFLNK, S_ISLNK, S_ISREG

from hpclaunch.errors import HpclaunchError
from hpclaunch.schedulers.run_folder import CODE, COMMIT, DIFF, RUNS

FOLDER = Path(RUNS, "code")
MOST_BYTES_OF_A_FILE = 50_000_000  # a larger one is linked
_MOST_GB, _MOST_FILES = 1, 20_000
_NEVER = {".git", "__pycache__", RUNS, "..", ""}  # neither copied nor linked; nor what is not below the folder
# With no monitor, hook or transport that a repository's own configuration names.
_GIT = ("env", "GIT_ALLOW_PROTOCOL=none", "git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


def look() -> tuple[str, list[str], list[str]]:
    """Return the name of the current code, its files, and those too big. Raises HpclaunchError if that is too much."""
    sizes: dict[str, int] = {}
    for path in sorted({*listed(".")}):
        with suppress(FileNotFoundError, NotADirectoryError):  # deleted, and still in git's index
            found = Path(path).lstat()
            target = os.path.normpath(Path(path, "..", Path(path).readlink())) if S_ISLNK(found.st_mode) else ""
            if S_ISREG(found.st_mode) or (target and not target.startswith(("/", ".."))):
                sizes[path] = found.st_size
    files = [path for path, size in sizes.items() if size <= MOST_BYTES_OF_A_FILE]
    total = sum(map(sizes.__getitem__, files))
    if total > _MOST_GB * 1e9 or len(files) > _MOST_FILES:
        size = f"{len(files):,} files, {total / 1e9:.1f} GB, exceed the limit of {_MOST_FILES:,} and {_MOST_GB} GB"
        raise HpclaunchError(f"--snapshot: {size}; list data in .gitignore, or use --no-snapshot")
    return _hash(Path(), files), files, [*sizes.keys() - {*files}]


def write(name: str) -> None:
    """Write the copy of this name, unless it is there. Raises HpclaunchError if the code is no longer that code."""
    folder, (_, files, _) = FOLDER / name, look()
    if not folder.is_dir():
        new = FOLDER / f".{name}.{os.getpid()}"
        (new / CODE).mkdir(parents=True)
        (new / COMMIT).write_bytes(_git("rev-parse", "HEAD"))
        (new / DIFF).write_bytes(_difference())
        for file in files:
            (new / CODE / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, new / CODE / file, follow_symlinks=False)
        if _hash(new / CODE, files) == name:
            with suppress(OSError):  # another process was faster
                new.rename(folder)
        shutil.rmtree(new, ignore_errors=True)
        if not folder.is_dir():
            raise HpclaunchError("--snapshot: the code changed while it was copied; submit again")
    # What is not copied is linked, a folder as a whole if no file in it is copied.
    copied = {*files, *(above := {str(parent) for file in ("x", *files) for parent in Path(file).parents})}
    for entry in (entry for parent in above for entry in os.scandir(parent)):
        path = os.path.normpath(entry.path)
        if path not in copied and entry.name not in _NEVER:
            with suppress(FileExistsError, FileNotFoundError):  # of an earlier job, in a folder that is new
                (folder / CODE / path).symlink_to(Path.cwd() / path)


def listed(folder: str) -> Iterator[str]:
    """Yield the tracked and unignored files below a folder, or without git all but hidden ones and environments."""
    tracked = _git("-C", folder, "ls-files", "-coz", "--exclude-standard").decode(errors="surrogateescape").split("\0")
    for path in (os.path.normpath(Path(folder, name)) for name in tracked[:-1]):
        if not _NEVER & {*path.split("/")}:  # a folder is a repository in this one
            yield from listed(path) if Path(path).is_dir() and not Path(path).is_symlink() else [path]
    for above, folders, names in os.walk(folder) if tracked == [""] else ():
        environment = {"pyvenv.cfg", "conda-meta"} & {*names, *folders}
        folders[:] = [one for one in folders if not (environment or one[0] == "." or one in _NEVER)]
        links = [one for one in folders if Path(above, one).is_symlink()]
        found = [] if environment else [*names, *links]
        yield from (os.path.normpath(Path(above, one)) for one in found if one[0] != ".")


def _hash(root: Path, files: list[str]) -> str:
    found = hashlib.sha256()
    for path in (root / file for file in files):
        content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        kind = path.lstat().st_mode & (S_IFLNK | 0o100)
        found.update(os.fsencode(f"{path.relative_to(root)}\0{kind}\0{len(content)}\0") + content)
    return found.hexdigest()[:16]


def _difference() -> bytes:
    """Return what `git diff HEAD` prints, with no filter that the repository names."""
    keys = _git("config", "--name-only", "--get-regexp", r"^filter\.").decode(errors="surrogateescape").splitlines()
    empty = {f"{key.rpartition('.')[0]}.{what}" for key in keys for what in ("clean=", "process=", "required=false")}
    off = [word for setting in empty for word in ("-c", setting)]
    return _git(*off, "diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "HEAD")


def _git(*words: str) -> bytes:
    """Return what git prints, or nothing if it fails."""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run([*_GIT, *words], capture_output=True, timeout=30, check=True).stdout
    return b""
