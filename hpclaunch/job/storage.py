"""The file systems that a job must name, read from the paths that it touches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hpclaunch.job.request import Request
from hpclaunch.job.sizes import Basis
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


def file_systems(
    site: Site, request: Request, command: list[str], *, modules: bool, datasets: bool
) -> dict[str, Basis]:
    """Return the file systems that a job must name: the profile's, the request's, and those of every known path.

    `modules` and `datasets` say whether the job uses those of the site.
    """
    found: dict[str, Basis] = {}
    behind = {path: named_by(site, None, [target]) for path, target in request.machine.links.items()}
    unused = [] if modules else named_by(site, None, site.module_paths)
    own = [name for name in site.storage if name not in unused]
    for key, names in (("site.storage", own), ("request.storage", request.storage)):
        for entry in names:
            name = as_named(site, entry)
            links = (path for path, others in behind.items() if name in others)
            basis = Basis((f"{key}:{entry}",)) if (path := next(links, None)) is None else _linked(request, name, path)
            found.setdefault(name, basis)
    if not site.storage_roots:
        return found
    public = request.hidden().env
    for key, value in (
        ("site.module_paths", site.module_paths if modules else []),
        ("site.setup", site.setup),
        ("site.env", site.env),
        ("site.datasets", site.datasets if datasets else {}),
        ("request.command", command),
        ("request.setup", request.setup),
        ("request.env", request.env),
        ("request.venv", [request.venv] if request.venv else []),
        ("request.machine", request.machine.links),
    ):
        for item, text in value.items() if isinstance(value, dict) else zip(value, value, strict=True):
            secret = key == "request.env" and public[item] != text
            whole = key in ("request.command", "request.venv")
            for name in named_by(site, request.account or site.account, [text]):
                words = "" if secret else f"{name}, for {text}"
                basis = Basis((key if whole else f"{key}:{item}",), words)
                found.setdefault(name, _linked(request, name, item) if key == "request.machine" else basis)
    return found


def _linked(request: Request, name: str, path: str) -> Basis:
    start = "the working folder" if path == "." else path
    return Basis((), f"{name}, for {start}, which leads to {request.machine.links[path]}")
