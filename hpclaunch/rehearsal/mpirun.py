"""A stand-in for mpirun on several nodes: this machine's own, told that all its ranks fit here."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from hpclaunch.rehearsal.programs import MARK


def main() -> int:
    """Become Open MPI's mpirun, without the mapping to nodes."""
    own = str(Path(os.environ[MARK]) / "bin")
    path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if part != own)
    real = shutil.which("mpirun", path=path)
    if real is None:
        print("rehearsal: --launcher mpirun needs Open MPI on this machine: no mpirun on PATH", file=sys.stderr)
        return 127
    words = sys.argv[1:]
    if "--map-by" in words:
        place = words.index("--map-by")
        del words[place : place + 2]
    # A resource manager that only the variables speak of must not be asked.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PBS_"))}
    return os.spawnvpe(os.P_WAIT, real, [real, "--oversubscribe", *words], environment)
