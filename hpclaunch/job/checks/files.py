"""The files of a job that are not its command's: the image that it runs in, and what is staged."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hpclaunch.job.checks.check import partition_key
from hpclaunch.job.diagnostic import Found
from hpclaunch.job.plan import Plan


def container(plan: Plan) -> Iterator[Found]:
    """Refuse an image that is not there or not in the site's folders, and pyxis without srun; warn of a --venv."""
    image, machine, runtime = plan.request.container, plan.request.machine, plan.site.container.runtime
    if not image:
        return
    if machine.image_problem:
        yield Found(machine.image_problem, warns=not machine.files_are_final)
    folders = [*plan.site.container.folders, *machine.image_folders]
    if folders and not image.startswith(tuple(f"{folder.rstrip('/')}/" for folder in folders)):
        text = f"{image} lies in none of {', '.join(plan.site.container.folders)}, the only folders for images; "
        key, known = ("container", "folders"), not any("$" in folder for folder in machine.image_folders)
        yield Found(f"{text}copy it there", key, warns=not (known and machine.image_folders))
    if runtime == "pyxis" and (plan.launcher == "mpirun" or not plan.scheduler.starts_ranks):
        how = f"{plan.launcher} on {plan.site.scheduler}"
        text = f"pyxis starts containers by srun only, and {how} does not use it; use a profile with another runtime"
        yield Found(text, ("container", "runtime"))
    if plan.request.venv:
        text = f"--venv {plan.request.venv} is made for the nodes' python, not the image's; leave one of them out"
        yield Found(text, warns=True, at="venv")


def staging(plan: Plan) -> Iterator[Found]:
    """Refuse to stage what is not there, more than the node's disk holds, or to places outside of it."""
    machine, most, size = plan.request.machine, plan.partition.jobfs_gb_per_node, plan.request.machine.staged_gb
    if not plan.staging:
        return
    for source in machine.files_missing:
        yield Found(f"there is no {source} to stage", warns=not machine.files_are_final)
    places = [(f"--stage-in {source}:{target}", target) for source, target, _ in plan.staging.copies_in]
    for option, place in places + [(f"--stage-out {source}", source) for source, _ in plan.staging.copies_out]:
        if place.startswith(("/", "~", "$")) or ".." in place.split("/"):
            yield Found(f"{option}: {place} must be a path below the node's disk, $HPCLAUNCH_LOCAL; use a relative one")
    if size > (given := plan.jobfs_gb_per_node or most or math.inf):
        text = f"{size:.3g} GB are staged on each node, but its disk has {given:g} GB for the job"
        fits = most and size <= most and plan.site.ask_jobfs
        key = partition_key(plan, "jobfs_gb_per_node")
        yield Found(text, key, suggestions=[{"jobfs_gb": math.ceil(size)}] if fits else [])
