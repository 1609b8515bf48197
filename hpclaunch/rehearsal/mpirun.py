"""A stand-in for mpirun on several nodes: this machine's own, with all ranks on this machine."""

import os
import shutil
import sys
from pathlib import Path

from hpclaunch.rehearsal.processes import MARK


def main() -> int:
    """Run Open MPI's mpirun without the mapping to nodes; return its exit code."""
    own = Path(os.environ[MARK]) / "bin"
    real = shutil.which("mpirun", path=os.environ["PATH"].replace(f"{own}:", ""))
    if real is None:
        print("rehearsal: --launcher mpirun needs Open MPI on this machine: no mpirun on PATH", file=sys.stderr)
        return 127
    words = sys.argv[1:]
    for option in ("--map-by", "--host"):
        if option in words:
            place = words.index(option)
            del words[place : place + 2]
    # Else Open MPI asks the scheduler that these variables belong to.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PBS_"))}
    return os.spawnvpe(os.P_WAIT, real, [real, "--oversubscribe", *words], environment)
