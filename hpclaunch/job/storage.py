"""The file systems that a job must name, read from the paths that it touches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hpclaunch.job.request import Request
from hpclaunch.profile.model import Site


def named_by(site: Site, account: str | None, texts: Iterable[str]) -> list[str]:
    """Return the names of the file systems below which `texts` have a path, in order; not what every job sees.

    `texts` are words of a command, lines of shell, search paths: /g/data/ab12 is found anywhere in one.
    """
    given = {line.replace("{account}", account or "") for line in site.storage_given}
    roots = site.storage_roots.items()
    found = dict.fromkeys(name for text in texts for root, prefix in roots for name in _below(text, root, prefix))
    return [name for name in found if name not in given]


def _below(text: str, root: str, prefix: str) -> Iterator[str]:
    """Yield the name, which begins with `prefix`, of each folder next below `root`; a root in a longer path is none.

    By plain looks, since each job is looked through: a pattern of its own takes longer than all of them.
    """
    start = text.find(root := root.rstrip("/"))
    while start >= 0:
        rest = text[start + len(root) :]
        inside = start and (text[start - 1].isalnum() or text[start - 1] in "_.~}-" or text[:start].endswith(":/"))
        if rest.startswith("/") and not inside:
            folder = rest.lstrip("/")
            length = next((i for i, c in enumerate(folder) if not (c.isalnum() or c in "_-")), len(folder))
            if folder[:length].isascii() and folder[:1].isalnum():
                yield f"{prefix}/{folder[:length]}"
        start = text.find(root, start + 1)


def as_named(site: Site, name: str) -> str:
    """Return the name that `name` means where it is a path: /g/data/ab12 is gdata/ab12."""
    found = named_by(site, None, [name]) if name.startswith("/") else []
    return found[0] if found else name


def of_job(site: Site, request: Request, command: list[str], *, modules: bool, datasets: bool) -> list[str]:
    """Name the file systems of the profile, of --storage, and of every path that the job is known to touch.

    `modules` and `datasets` tell whether it touches those of the site.
    """
    paths = site.module_paths if modules else []
    unused = [] if paths else named_by(site, None, site.module_paths)
    touched = [
        *paths,
        *site.setup,
        *site.teardown,
        *site.env.values(),
        *(site.datasets.values() if datasets else ()),
        *command,
        *request.setup,
        *request.teardown,
        *request.env.values(),
        request.venv or "",
        *request.links.values(),
    ]
    own = [name for name in site.storage if name not in unused]
    asked = [as_named(site, name) for name in own + request.storage]
    return list(dict.fromkeys(asked + named_by(site, request.account or site.account, touched)))
