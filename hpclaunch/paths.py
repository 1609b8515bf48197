"""Where site profiles, templates and the config file are looked for, and how such files are named to people."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent
KINDS = ("site_profiles", "templates")
ENTRY_POINTS = "hpclaunch.sites"  # each names a package whose folder has site_profiles and templates
_PROGRAMS = PACKAGE / "workloads"
# The programs that come along.
WORKLOADS = {name: _PROGRAMS / f"{name}.py" for name in ("mnist", "resnet", "env", "allreduce", "preflight")}
# What programs import, and may be copied too.
MODULES = {"resume": _PROGRAMS / "resume.py"}
# What a workload imports from its own folder, and a copy of it needs beside it.
COMPANIONS = {
    "mnist": ("digits.py", "training.py", "layout.py", "resume.py"),
    "resnet": ("training.py", "layout.py", "resume.py"),
}


@cache
def shipped(kind: str) -> Path:
    """Return the folder of the shipped `site_profiles` or `templates`: inside a wheel, else beside the package."""
    inside = PACKAGE / kind
    return (inside if inside.is_dir() else PACKAGE.parent / kind).resolve()


def home() -> Path:
    """Return the home folder; one that does not exist if neither HOME nor the passwd file names one."""
    with suppress(RuntimeError):
        if (found := Path.home()).is_absolute():
            return found
    return Path("/nonexistent")


def _user(variable: str, below: str) -> Path:
    """Return our folder in an XDG base directory; that specification ignores a relative one."""
    named = Path(os.environ.get(variable, ""))
    return (named if named.is_absolute() else home() / below) / "hpclaunch"


def user_config() -> Path:
    """Return the user's config folder (XDG base directory specification)."""
    return _user("XDG_CONFIG_HOME", ".config")


def user_cache() -> Path:
    """Return the user's cache folder (XDG base directory specification)."""
    return _user("XDG_CACHE_HOME", ".cache")


def user_state() -> Path:
    """Return the user's state folder (XDG base directory specification)."""
    return _user("XDG_STATE_HOME", ".local/state")


def _extra() -> list[Path]:
    return [Path(part) for part in os.environ.get("HPCLAUNCH_PATH", "").split(os.pathsep) if part]


def search_path(kind: str) -> list[Path]:
    """List the folders that may hold `site_profiles` or `templates`, first wins.

    A folder of $HPCLAUNCH_PATH holds them in a subfolder of that name, or directly.
    """
    extra = (folder for part in _extra() for folder in (part / kind, part))
    return list(dict.fromkeys([Path(kind), *extra, user_config() / kind, shipped(kind)]))


@cache
def packs() -> dict[Path, str]:
    """Return the folders of installed site packs and the names of their distributions, for what is not found nearer.

    A pack is not imported. The look-up takes longer than all else of a short command.
    """
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    found = {}
    for entry in entry_points(group=ENTRY_POINTS):
        with suppress(ImportError, ValueError, OSError):
            spec = find_spec(entry.module.partition(".")[0])
            for folder in (spec and spec.submodule_search_locations) or ():
                found[Path(folder, *entry.module.split(".")[1:])] = entry.dist.name if entry.dist else entry.name
    return found


def in_packs(kind: str) -> list[Path]:
    """List the folders of installed site packs that may hold `site_profiles` or `templates`."""
    return [folder / kind for folder in packs()]


def is_shipped(path: Path) -> bool:
    """Tell whether a profile or a template came with hpclaunch."""
    return any(path.resolve().is_relative_to(shipped(kind)) for kind in KINDS)


def is_trusted(path: Path) -> bool:
    """Tell whether commands that a profile or a template names may be run: see docs/trust.md.

    It is a shipped one, in the user's config folder, or, outside of the current folder, in one of $HPCLAUNCH_PATH or
    in an installed site pack.
    """
    names = {Path(os.path.abspath(path)), path.resolve()}  # noqa: PTH100 - links in the config folder are the user's
    if is_shipped(path) or any(name.is_relative_to(user_config()) for name in names):
        return True
    if any(name.is_relative_to(Path.cwd()) for name in names):
        return False
    return any(name.is_relative_to(folder.resolve()) for folder in (*_extra(), *packs()) for name in names)


def shown(path: Path | str) -> str:
    """Name a file as briefly as it can be found: a shipped one by its name, others from here or from ~."""
    full = Path.cwd() / path
    full = full.parent.resolve() / full.name
    for kind in KINDS:
        if full.is_relative_to(root := shipped(kind)):
            return str(full.relative_to(root))
    names = [str(full)]
    if full.is_relative_to(here := Path.cwd().resolve()):
        below = str(full.relative_to(here))
        names.append(below if "/" in below else f"./{below}")  # a plain name is a shipped file's
    if full.is_relative_to(own := home().resolve()):
        names.append(f"~/{full.relative_to(own)}")
    return min(names, key=len)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that nobody ever reads half of it. Raises OSError, and then leaves nothing behind."""
    import tempfile

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".new")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
