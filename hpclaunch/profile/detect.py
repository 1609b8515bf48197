"""A first site profile, from the description that the machine's scheduler gives; the user finishes it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from hpclaunch.errors import ProfileError, SchedulerError
from hpclaunch.schedulers import known, scheduler

if TYPE_CHECKING:
    from hpclaunch.schedulers.machine import Machine


def drafted(name: str) -> tuple[str, Machine]:
    """Return the text of a profile for this machine, and what it was made of.

    Raises SchedulerError if no scheduler is here, none answers, or no profile can be made of the answer.
    """
    from hpclaunch.profile.draft import write
    from hpclaunch.profile.model import Site
    from hpclaunch.profile.rules import site_mistakes
    from hpclaunch.profile.yamlfile import Document, convert

    machine = _ask()
    text = write(name, machine)
    try:
        convert([Document.parse(Path(f"{name}.yaml"), text)], Site, site_mistakes)
    except ProfileError as error:
        raise SchedulerError(
            f"{machine.source}: no profile can be made of what it says", *str(error).splitlines()
        ) from None
    return text, machine


def _ask() -> Machine:
    every = [scheduler(name) for name in known()]
    able = [one for one in every if one.describes]
    here = [one for one in able if all(map(shutil.which, one.describes))]
    if not here:
        wanted = " or ".join(" and ".join(one.describes) for one in able)
        raise SchedulerError(f"no scheduler here: {wanted} not found; run this on a login node of the site")
    refusals = []
    for one in here:
        try:
            return one.detect()
        except SchedulerError as error:
            refusals.append(str(error))
    raise SchedulerError(*refusals)
