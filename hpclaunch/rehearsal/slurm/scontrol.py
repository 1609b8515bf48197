"""A stand-in for scontrol: `show hostnames LIST`, and `requeue ID`, which the rehearsal notices and carries out."""

import os
import sys
from contextlib import suppress
from pathlib import Path

from hpclaunch.rehearsal.processes import MARK


def main() -> int:
    """Answer as scontrol would."""
    match sys.argv[1:]:
        case ["show", "hostnames", hosts]:
            with suppress(BrokenPipeError):  # `| head -n 1`
                print("\n".join(hosts.split(",")), flush=True)
        case ["requeue", _]:
            (Path(os.environ[MARK]) / "requeue").touch()
        case words:
            print(f"scontrol: the stand-in of a rehearsal does not know {' '.join(words)!r}", file=sys.stderr)
            return 1
    return 0
