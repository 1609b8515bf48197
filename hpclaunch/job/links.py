"""Where the paths of a request lead: what only this machine knows, looked up before the plan is made."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

from hpclaunch import paths
from hpclaunch.job.request import Request
from hpclaunch.job.storage import as_named, named_by
from hpclaunch.profile.model import Site


def followed(site: Site, request: Request, here: bool = False) -> Request:
    """Return the request with its links, and with the file systems that they lead to among its --storage.

    So the script's first lines, given on another machine, make the same script. Where the site wants to know no paths,
    none is looked up. Where the job runs `here`, as at the site `local` it does, the cores of this machine count.
    """
    if here or site.scheduler == "local":
        request = structs.replace(request, cores=len(os.sched_getaffinity(0)))
    if site.scheduler == "local" or not (site.storage_roots or site.home_gb):
        return request
    links = dict(_links(site, request))
    account = request.account or site.account
    asked = [as_named(site, name) for name in request.storage]
    behind = [name for name in named_by(site, account, links.values()) if name not in site.storage + asked]
    return structs.replace(request, links=links, storage=[*request.storage, *behind])


def _links(site: Site, request: Request) -> Iterator[tuple[str, str]]:
    """Yield each path of a request that leads to a file system that must be named, or into the home folder as ~."""
    home = paths.home().resolve()
    for word in _paths(request):
        try:
            path = Path(word).expanduser()
            real = path.resolve(strict="/" not in word)
        except (OSError, RuntimeError, ValueError):  # not there, a loop, an unknown ~user, a null byte
            continue
        if real != home and real.is_relative_to(home):
            yield word, f"~/{real.relative_to(home)}"
        elif str(real) != word and (named_by(site, None, [str(real)]) or path.is_relative_to(paths.home())):
            yield word, str(real)


def _paths(request: Request) -> Iterator[str]:
    """Yield the working folder and each word, or part of one, that may be a path; --data=x and a:b are parted."""
    yield "."
    texts = [*request.command, *request.env.values(), request.venv or ""]
    texts += [word for line in request.setup for word in line.split()]
    for text in texts:
        if "\n" not in text and "://" not in text and len(text) < 4096:
            yield from dict.fromkeys(part.strip("\"'") for part in (text, *re.split(r"[=:]", text)) if part)


def missing_folders(folders: set[str], here: bool, beside: Path = Path()) -> dict[str, bool]:
    """Return those folders that are not there, seen from here or `beside`; and whether that is sure.

    Where this machine is not the site's, not `here`, another may have what is missing.
    """
    found = {}
    for folder in folders:
        try:
            there = any((root / Path(folder).expanduser()).is_dir() for root in (Path(), beside))
        except (OSError, RuntimeError, ValueError):
            there = False
        if not there:
            found[folder] = here or not folder.startswith("/")
    return found
