"""The rehearsal: any site's job script, run on this machine, with stand-ins for what only the cluster has."""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module
from pathlib import Path


def rehearse(script: str, scheduler: str) -> int:
    """Run the job script here as `scheduler` would, its further attempts too; return the exit code of the last."""
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="hpclaunch-rehearsal-") as folder:
        path = Path(folder, "job.sh")
        path.write_text(script, encoding="utf-8", errors="surrogateescape")
        code: int = import_module(f"hpclaunch.rehearsal.{scheduler}").rehearse(path, Path(folder))
        return code
