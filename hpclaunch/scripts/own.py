"""A script of the user's own that is submitted as it is: its text, its plan and its name, from its own directives."""

import re
from pathlib import Path

from msgspec import structs

from hpclaunch.errors import HpclaunchError
from hpclaunch.job.directives import read as directives
from hpclaunch.job.directives.asked import Asked
from hpclaunch.job.directives.options import Directives
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request
from hpclaunch.job.sizes import unchecked_plan
from hpclaunch.profile.model import Partition
from hpclaunch.profile.search import Profile
from hpclaunch.scripts.lines import heredoc_lines, is_shell, split_lines, syntax_error


def read(path: Path, profile: Profile) -> tuple[str, Plan, str]:
    """Return the text of the script at `path`, its plan, and a name for the job if the script gives none.

    Raises HpclaunchError if bash or the scheduler would not run all of it.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise HpclaunchError(f"{path}: cannot be read: {error.strerror}") from None
    lines = split_lines(text)
    shell = is_shell(lines[0])
    if shell and (wrong := syntax_error(text)):
        raise HpclaunchError(f"{path}:{wrong[0]}: {wrong[1]}")
    heredocs = heredoc_lines(lines) if shell else set()
    scheduler = profile.site.scheduler
    own = directives.scheduler_of(lines, scheduler if scheduler in directives.PREFIX else None)
    found = directives.read(lines, own, heredocs) if own else Directives(scheduler)
    if late := [f"{path}:{one.at}: {one.message}" for check, one in found.found if check == "late"]:
        raise HpclaunchError(*late)
    if own != scheduler:
        found = Directives(scheduler)
    own_name = found.last("job-name", "N")
    # sbatch and qsub name a job after its file; these are the characters that qsub takes.
    name = own_name.value if own_name else re.sub(r"[^A-Za-z0-9._+-]", "_", path.name)[:230]
    return text, _plan(profile, found, name, path), "" if own_name else name


def _plan(profile: Profile, found: Directives, name: str, path: Path) -> Plan:
    """Return the plan of what the directives ask for; what they leave open is not filled in from the profile."""
    dialect = directives.dialect(found.scheduler) if found.options else None
    asked = dialect.ask(profile, found, {}) if dialect else Asked(profile, found, Partition())
    values = asked.values
    return structs.replace(
        unchecked_plan(profile, Request(command=[str(path)])),
        job_name=name,
        partition_name=values.get("partition", ""),
        account=values.get("account"),
        qos=None,
        nodes=asked.nodes,
        tasks_per_node=asked.starts,
        gpus_per_node=asked.gpus,
        cpus_per_node=asked.cpus or 1,
        mem_gb_per_node=values.get("mem_gb"),
        jobfs_gb_per_node=values.get("jobfs_gb"),
        seconds=asked.seconds or 0,
        modules=[],
        storage=values.get("storage", []),
        directives=[],
        cost=None,
        max_attempts=1,
    )
