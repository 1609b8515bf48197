"""The file systems that a job must name, found in the paths that it uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hpclaunch.job.basis import Basis
from hpclaunch.job.request import Request
from hpclaunch.profile.model import Site


def named_by(site: Site, account: str | None, texts: Iterable[str]) -> list[str]:
    """Return the file systems of the paths in `texts`, in order, without those that every job sees.

    `texts` are words of a command, lines of shell, search paths: /g/data/ab12 is found anywhere in them.
    """
    given = {line.replace("{account}", account or "") for line in site.storage_given}
    roots = site.storage_roots.items()
    found = dict.fromkeys(name for text in texts for root, prefix in roots for name in _below(text, root, prefix))
    return [name for name in found if name not in given]


def _below(text: str, root: str, prefix: str) -> Iterator[str]:
    """Yield `prefix/FOLDER` for each folder below `root` in `text`, unless root stands inside of a longer path.

    Every job is searched, so there is no pattern: compiling one takes longer than all the searches.
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
    unused = [] if modules else named_by(site, None, site.module_paths)
    requested = [("site.storage", name) for name in site.storage if name not in unused]
    for key, entry in requested + [("request.storage", name) for name in request.storage]:
        name, basis = as_named(site, entry), Basis((f"{key}:{entry}",))
        if name in links:
            start, target = links[name]
            basis = Basis((), f"{name}, for {'the working folder' if start == '.' else start}, which leads to {target}")
        found.setdefault(name, basis)
    public = request.hidden().env.values()
    paths: dict[str, Iterable[str] | dict[str, str]] = {
        "site.module_paths": site.module_paths if modules else (),
        "site.setup": site.setup,
        "site.teardown": site.teardown,
        "site.env": site.env,
        "site.datasets": site.datasets if datasets else (),
        "request.command": command,
        "request.setup": request.setup,
        "request.teardown": request.teardown,
        "request.env": request.env,
        "request.venv": [request.venv] if request.venv else (),
    }
    for key, texts in paths.items() if site.storage_roots else ():
        for item, text in texts.items() if isinstance(texts, dict) else zip(texts, texts, strict=True):
            words = f", for {text}" if key != "request.env" or text in public else ""
            for name in named_by(site, request.account or site.account, [text]):
                found.setdefault(name, Basis((f"{key}:{item}",), words and name + words))
    return found
