"""The pbsdsh of a rehearsal, on nodes that may be dead."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from standin.pbs import nodes
from standin.pbs.server import Server

from hpclaunch.rehearsal.pbs import pbsdsh
from hpclaunch.rehearsal.processes import MARK


def main() -> int:
    """Start a program on nodes of the job; return pbsdsh's exit code."""
    return pbsdsh.main(partial(nodes.silent, Server(Path(os.environ[MARK]))))
