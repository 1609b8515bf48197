"""Where site profiles, templates and the config file are looked for, and how such files are named to people."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).parent
# The programs that come along.
WORKLOADS = {name: PACKAGE / "workloads" / f"{name}.py" for name in ("mnist", "env", "allreduce")}
# What a workload imports from its own folder, and a copy of it needs beside it.
COMPANIONS = {"mnist": ("digits.py", "layout.py", "report.py")}


def shipped(kind: str) -> Path:
    """Return the folder of the shipped `site_profiles` or `templates`: inside a wheel, else beside the package."""
    inside = PACKAGE / kind
    return inside if inside.is_dir() else PACKAGE.parent / kind


def user_config() -> Path:
    """Return the person's config folder (XDG base directory specification)."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "hpclaunch"


def user_cache() -> Path:
    """Return the person's cache folder (XDG base directory specification)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpclaunch"


def user_state() -> Path:
    """Return the person's state folder (XDG base directory specification)."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "hpclaunch"


def search_path(kind: str) -> list[Path]:
    """List the folders that may hold `site_profiles` or `templates`, first wins.

    A folder of $HPCLAUNCH_PATH holds them in a subfolder of that name, or directly.
    """
    extra = [Path(part) for part in os.environ.get("HPCLAUNCH_PATH", "").split(os.pathsep) if part]
    folders = [Path(kind), *(f for part in extra for f in (part / kind, part)), user_config() / kind, shipped(kind)]
    return list(dict.fromkeys(folders))


def shown(path: Path | str) -> str:
    """Name a file as briefly as it can be found: a shipped one by its name, others from here or from ~."""
    full = Path.cwd() / path
    full = full.parent.resolve() / full.name
    for kind in ("site_profiles", "templates"):
        if full.is_relative_to(root := shipped(kind).resolve()):
            return str(full.relative_to(root))
    names = [str(full)]
    if full.is_relative_to(here := Path.cwd().resolve()):
        below = str(full.relative_to(here))
        names.append(below if "/" in below else f"./{below}")  # a plain name is a shipped file's
    if full.is_relative_to(home := Path.home().resolve()):
        names.append(f"~/{full.relative_to(home)}")
    return min(names, key=len)
