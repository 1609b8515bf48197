"""What a job copies to its nodes' own disks, and back."""

from __future__ import annotations

import re
from pathlib import PurePath

from msgspec import Struct

from hpclaunch.job.request import Request

MANY_NODES = 16  # which pass a file on rather than that each reads it from the shared file system


class Staging(Struct, frozen=True):
    """The copies to each node: source, place on its disk, and tar or zip if it is unpacked there; and those back.

    With `broadcasts` the nodes pass on what one of them has read.
    """

    copies_in: list[tuple[str, str, str]] = []
    copies_out: list[tuple[str, str]] = []
    broadcasts: bool = False


def make_staging(request: Request, nodes: int) -> Staging | None:
    """Return what a request stages, or None if that is nothing; `nodes` can pass files on to each other."""
    copies_in = []
    for source, _, target in (item.partition(":") for item in request.stage_in):
        archive = re.search(r"\.(?:(tar|tar\.(?:gz|bz2|xz|zst)|tgz)|zip)$", source)
        kind = ("tar" if archive[1] else "zip") if archive else ""
        copies_in.append((source, target or ("" if kind else PurePath(source).name), kind))
    pairs = (item.partition(":")[::2] for item in request.stage_out)
    copies_out = [(source, target or f"$HPCLAUNCH_RUN_DIR/{source}") for source, target in pairs]
    return Staging(copies_in, copies_out, nodes >= MANY_NODES and bool(copies_in)) if copies_in or copies_out else None
