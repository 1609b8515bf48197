"""Where site profiles are found, and a profile as it was loaded."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

from msgspec import Struct

from hpclaunch import paths
from hpclaunch.errors import HpclaunchError, ProfileError, did_you_mean
from hpclaunch.profile.model import Site
from hpclaunch.profile.rules import site_mistakes
from hpclaunch.profile.yamlfile import Document, Key, convert, locate, place_of

_HOST_KEYS = "(?m)^(?:hostnames|detect): .*"  # shipped profiles have each on one line


class Profile(Struct, frozen=True):
    """A site as it was loaded: its name, its files (its own first, then those it extends), the checked model."""

    name: str
    layers: list[Document]
    site: Site

    @property
    def foreign(self) -> list[str]:
        """Name the files that are not shipped ones."""
        return [layer.shown for layer in self.layers if not layer.is_shipped]

    def where(self, key: Key) -> str:
        """Return FILE:LINE of `key` or of the nearest key above it, or "" if there is none."""
        return place_of(self.layers, key)


def available(packs: bool = True) -> dict[str, Path]:
    """Return the profiles on the search path and in site packs, name to file, without shadowed ones, by name."""
    folders = [*paths.search_path("site_profiles"), *(paths.in_packs("site_profiles") if packs else ())]
    files = (path for folder in reversed(folders) for path in folder.glob("*.yaml") if path.is_file())
    return dict(sorted({path.stem: path for path in files}.items()))


def load(name: str) -> Profile:
    """Load the profile `name`, or the file if `name` is a path.

    Raises ProfileError with every mistake, or HpclaunchError if there is no such profile.
    """
    as_path = name.endswith((".yaml", ".yml")) or "/" in name
    layers = [Document.read(Path(name) if as_path else _find(name, []))]
    while (parent := layers[-1].data.get("extends")) is not None:
        if not isinstance(parent, str):
            raise ProfileError(locate(layers, ("extends",), "expected the name of one profile")[-1])
        layers.append(Document.read(_find(parent, [layer.path for layer in layers])))
    return Profile(Path(name).stem if as_path else name, layers, convert(layers, Site, site_mistakes))


def _find(name: str, passed: list[Path]) -> Path:
    """Return the first file of that name on the search path but for `passed`: a user's gadi may extend the shipped."""
    seen = {path.resolve() for path in passed}
    for folders in paths.search_path, paths.in_packs:
        for folder in folders("site_profiles"):
            path = folder / f"{name}.yaml"
            if path.is_file() and path.resolve() not in seen:
                return path
    where = f"{passed[-1]}: extends: " if passed else ""
    loop = f" besides {', '.join(map(str, passed))}" if name in {path.stem for path in passed} else ""
    raise HpclaunchError(f"{where}no site profile {name!r}{loop}{did_you_mean(name, available())}")


def match_host(*hostnames: str) -> str | None:
    """Return the name of the profile whose login nodes' patterns match one of `hostnames`.

    Without them the names of this host count, and what profiles detect here. Unreadable profiles are skipped; None if
    no other matches.
    """
    hosts = hostnames or _hosts()
    for name in _names():
        with suppress(HpclaunchError):
            patterns, detect = _host_keys(name)
            if any(fnmatch(host, pattern) for host in hosts for pattern in patterns):
                return name
            here = (Path(k).exists() if k[0] == "/" else fnmatch(os.environ.get(k, ""), v) for k, v in detect.items())
            if detect and not hostnames and all(here):
                return name
    return None


def _host_keys(name: str) -> tuple[list[str], dict[str, str]]:
    """Return `hostnames` and `detect` of a profile, of a shipped one without the time that all its keys take."""
    if not (path := _find(name, [])).parent.samefile(paths.shipped("site_profiles")):
        site = load(name).site
        return site.hostnames, site.detect
    keys = Document.parse(path, "\n".join(re.findall(_HOST_KEYS, path.read_text(encoding="utf-8")))).data
    return keys.get("hostnames", []), keys.get("detect", {})


def _names() -> Iterator[str]:
    """Yield the names of profiles, those of site packs last: to find these takes time."""
    yield from (near := available(packs=False))
    yield from (name for name in available() if name not in near)


def site_of_this_host() -> str:
    """Return the name of the profile that knows this host. Raises HpclaunchError if none does."""
    if name := match_host():
        return name
    raise HpclaunchError(
        f"which site? No profile knows this host, {' or '.join(_hosts())}",
        f"use --site, set HPCLAUNCH_SITE, or write `site:` into hpclaunch.yaml; known: {', '.join(available())}",
    )


def _hosts() -> list[str]:
    import socket

    return list(dict.fromkeys((socket.gethostname(), socket.getfqdn())))
