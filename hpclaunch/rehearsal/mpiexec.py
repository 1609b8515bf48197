"""A stand-in for mpiexec of HPE's PALS and of MPICH, which is Intel MPI's too: starts all ranks on this machine.

As those: an unknown option is refused, and the failure of one rank ends the others.
http://wiki.mpich.org/mpich/index.php/Using_the_Hydra_Process_Manager
"""

import argparse
import os
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
    environments = []
    for rank in range(options.n):
        node, local_rank = divmod(rank, options.ppn)
        place = {"PALS_RANKID": rank, "PALS_NODEID": node, "PALS_LOCAL_RANKID": local_rank}
        place = place if pals else {"PMI_RANK": rank}
        environments.append(os.environ | {name: str(value) for name, value in place.items()})
    return max(run_together(options.command, environments, end_others=True))
