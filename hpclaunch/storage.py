"""The file systems that a job must name, read from the paths that it touches."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hpclaunch.site import Site


def named_by(site: Site, account: str | None, texts: Iterable[str]) -> list[str]:
    """Return the names of the file systems below which `texts` have a path, in order; not what every job sees.

    `texts` are words of a command, lines of shell, search paths: /g/data/ab12 is found anywhere in one.
    """
    if not site.storage_roots:
        return []
    given = {line.replace("{account}", account or "") for line in site.storage_given}
    roots = "|".join(re.escape(root.rstrip("/")) for root in site.storage_roots)
    names = {root.rstrip("/"): name for root, name in site.storage_roots.items()}
    found = dict.fromkeys(
        f"{names[root]}/{folder}"
        for text in texts
        for root, folder in re.findall(rf"(?<![\w.}}~-])({roots})/+([A-Za-z0-9][\w-]*)", text)
    )
    return [name for name in found if name not in given]


def as_named(site: Site, name: str) -> str:
    """Return the name that `name` means where it is a path: /g/data/ab12 is gdata/ab12."""
    found = named_by(site, None, [name]) if name.startswith("/") else []
    return found[0] if found else name
