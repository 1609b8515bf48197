"""The file systems that a job must name, found in the paths that it uses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from hpclaunch.job.request import NONE, Basis, Request
from hpclaunch.profile.model import Site


def named_by(site: Site, account: str | None, texts: Iterable[str]) -> list[str]:
    """Return the file systems of the paths in `texts`, in order, without those that every job sees.

    `texts` are words of a command, lines of shell, search paths: /g/data/ab12 is found anywhere in them.
    """
    given = {line.replace("{account}", account or "") for line in site.storage_given}
    found = [
        f"{prefix}/{name}".rstrip("/")
        for text in texts
        for root, prefix in site.storage_roots.items()
        if root.rstrip("/") in text
        for name in _below(root, site.storage_whole).findall(text)
    ]
    return [name for name in dict.fromkeys(found) if name not in given]


@cache
def _below(root: str, whole: bool) -> re.Pattern[str]:
    """Return a pattern of each folder below `root`, or of root itself, unless root stands inside of a longer path."""
    name = r"()(?![\w.-])" if whole else r"/+([A-Za-z0-9][A-Za-z0-9_-]*)"
    return re.compile(rf"(?<![\w.~}}-])(?<!:/){re.escape(root.rstrip('/'))}{name}")


def as_named(site: Site, name: str) -> str:
    """Return the file system of `name` if it is a path: gdata/ab12 for /g/data/ab12."""
    found = named_by(site, None, [name]) if name.startswith("/") else []
    return found[0] if found else name


def file_systems(
    site: Site, request: Request, command: list[str], *, modules: bool, datasets: bool
) -> dict[str, Basis]:
    """Return the file systems that a job must name: the profile's, the request's, and those of every known path.

    `modules` and `datasets` say whether the job uses those of the site.
    """
    found: dict[str, Basis] = {}
    links = {name: link for link in request.machine.links.items() for name in named_by(site, None, [link[1]])}
    bare = request.storage[:1] == NONE
    unused = site.storage if bare else [] if modules else named_by(site, None, site.module_paths)
    requested = [("site.storage", name) for name in site.storage if name not in unused]
    for key, entry in requested + [("request.storage", name) for name in request.storage[bare:]]:
        name, basis = as_named(site, entry), Basis((f"{key}:{entry}",))
        if name in links:
            start, target = links[name]
            basis = Basis((), f"{name}, for {'the working folder' if start == '.' else start}, which leads to {target}")
        found.setdefault(name, basis)
    paths: dict[str, Iterable[str] | dict[str, str]] = {
        "site.module_paths": site.module_paths if modules and not bare else (),
        "site.setup": site.setup,
        "site.teardown": site.teardown,
        "site.env": site.env,
        "site.datasets": site.datasets if datasets else (),
        "request.command": command,
        "request.setup": request.setup,
        "request.teardown": request.teardown,
        "request.env": request.env,
        "request.stage_in": request.stage_in,
        "request.stage_out": [item.rpartition(":")[2] for item in request.stage_out],
        "site.container": site.container.binds if request.container else (),
        "request.container": [request.container] if request.container else (),
        "request.venv": [request.venv] if request.venv else (),
    }
    for key, texts in paths.items() if site.storage_roots else ():
        for item, text in texts.items() if isinstance(texts, dict) else zip(texts, texts, strict=True):
            for name in named_by(site, request.account or site.account, [text]):
                found.setdefault(name, Basis((f"{key}:{item}",)))
    return found
