"""A stand-in for mpiexec of HPE's PALS and of MPICH, which is Intel MPI's too: starts all ranks on this machine.

As those: an unknown option is refused, and the failure of one rank ends the others.
http://wiki.mpich.org/mpich/index.php/Using_the_Hydra_Process_Manager
"""

import argparse
import os
import subprocess
import sys

from hpclaunch.rehearsal.processes import run_together


def main() -> int:
    """Run the ranks; return the exit code."""
    pals = "--ppn" in sys.argv
    parser = argparse.ArgumentParser(prog="mpiexec", allow_abbrev=False)
    parser.add_argument("-n", type=int, required=True)
    parser.add_argument("--ppn" if pals else "-ppn", type=int, required=True)
    for option in ("--depth", "--cpu-bind") if pals else ():
        parser.add_argument(option, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    tasks = []
    for rank in range(options.n):
        node, local_rank = divmod(rank, options.ppn)
        places = (
            {"PALS_RANKID": rank, "PALS_NODEID": node, "PALS_LOCAL_RANKID": local_rank} if pals else {"PMI_RANK": rank}
        )
        environment = {**os.environ, **{name: str(value) for name, value in places.items()}}
        tasks.append(
            subprocess.Popen(options.command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
        )
    return max(run_together(tasks, end_others=True))
