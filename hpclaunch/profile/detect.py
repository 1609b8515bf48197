"""A first site profile from what the machine's own scheduler says, for a person to read and finish."""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from hpclaunch.errors import ProfileError, SchedulerError

if TYPE_CHECKING:
    from hpclaunch.schedulers.machine import Machine

# The commands that show a scheduler, and the module that asks it.
ASKERS = {
    ("scontrol",): "hpclaunch.schedulers.slurm.detect",
    ("qstat", "pbsnodes"): "hpclaunch.schedulers.pbs.detect",
}


def drafted(name: str) -> tuple[str, Machine]:
    """Return the text of a profile for this machine, and what it was made of.

    Raises SchedulerError where no scheduler is here, or none answers, or no profile can be made of the answer.
    """
    from hpclaunch.profile.draft import write
    from hpclaunch.profile.model import Site
    from hpclaunch.profile.yamlfile import Document, convert

    machine = _ask()
    text = write(name, machine)
    try:
        convert([Document.parse(Path(f"{name}.yaml"), text)], Site)
    except ProfileError as error:
        raise SchedulerError(
            f"{machine.said_by}: no profile can be made of what it says", *str(error).splitlines()
        ) from None
    return text, machine


def _ask() -> Machine:
    here = [module for programs, module in ASKERS.items() if all(map(shutil.which, programs))]
    if not here:
        wanted = " or ".join(" and ".join(programs) for programs in ASKERS)
        raise SchedulerError(f"no scheduler here: {wanted} not found; run this on a login node of the site")
    refusals = []
    for module in here:  # some Slurm sites have a qstat of Slurm's own, so Slurm comes first
        try:
            machine: Machine = import_module(module).ask()
        except SchedulerError as error:
            refusals.append(str(error))
        else:
            return machine
    raise SchedulerError(*refusals)
