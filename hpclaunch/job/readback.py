"""Whether a job script asks for what its plan says: for templates that people wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from hpclaunch.errors import TemplateError
from hpclaunch.job.directives.options import Directives
from hpclaunch.job.directives.read import PREFIX, dialect, read
from hpclaunch.paths import shown
from hpclaunch.profile.search import Profile
from hpclaunch.schedulers.walltime import clock

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan


def check(plan: Plan, script: str, templates: Iterable[Path]) -> None:
    """Compare the script that users' own templates made with its plan: the tests do so for the shipped ones.

    Raises TemplateError with every difference.
    """
    if plan.run_id or plan.fewest_nodes or plan.site.scheduler not in PREFIX or "repeated" in plan.request.force:
        return
    where = ", ".join(map(shown, templates))
    if found := [f"{where}: {line}" for line in differences(plan, script)]:
        raise TemplateError(*found, "fix the template, or use --force repeated")


def differences(plan: Plan, script: str) -> Iterator[str]:
    """Yield what the script's directives ask for otherwise than the plan, or do not ask for."""
    slurm = plan.scheduler.starts_ranks
    found = read(script.split("\n"), plan.site.scheduler, set())
    # Without the partitions' sizes the reader leaves every number as it stands, PBS's totals too.
    profile = Profile(plan.name, [], structs.replace(plan.site, partitions={}))
    asked = dialect(plan.site.scheduler).ask(profile, found, {})
    nodes, has = asked.nodes, asked.values
    words = "{cpus}{gpus}" if plan.site.totals else "".join(plan.site.chunk)
    if slurm:
        words = plan.site.gpu_directive + ("" if "cpus" in plan.site.omit else "{cpus}")
    cpus_per_node = plan.cpus_per_start * plan.starts_per_node if slurm else plan.cpus_per_node
    rows = [
        ("nodes", nodes, plan.nodes if slurm or found.first("l.select") else None),
        ("cpus", nodes * (asked.cpus or 1), plan.nodes * cpus_per_node if "{cpus}" in words else None),
        ("GPUs", nodes * asked.gpus, plan.nodes * plan.gpus_per_node if "{gpus}" in words else None),
        ("walltime", clock(asked.seconds or 0), plan.walltime),
        ("account", has.get("account"), plan.account),
        ("tasks on each node", asked.starts, plan.starts_per_node if slurm else None),
        ("GB of memory", nodes * has.get("mem_gb", 0), plan.nodes * (plan.mem_gb_per_node or 0)),
        ("GB of jobfs", nodes * has.get("jobfs_gb", 0), plan.nodes * (plan.jobfs_gb_per_node or 0)),
        ("QoS", has.get("qos"), plan.qos.name if slurm and plan.qos and not plan.qos.default else None),
    ]
    yield from (f"{name}: {of_script or 'none'} in the script, {of_plan} in the plan"
                for name, of_script, of_plan in rows if of_plan and of_script != of_plan)  # fmt: skip
    missing = set(plan.storage) - set(has.get("storage", [])) if plan.site.storage_roots and not slurm else ()
    yield from (f"storage: no {name} in the script" for name in sorted(missing))
    yield from _absent(plan, found)


def _absent(plan: Plan, found: Directives) -> Iterator[str]:
    """Yield the directives of the partition, the profile and the request that are not among those `found`."""
    partition = plan.partition.directives
    if partition is None:
        partition = [dialect(found.scheduler).WORDS["partition"].format(plan.partition_name)]
    lines = [f"{PREFIX[found.scheduler]} {line}" for line in [*partition, *plan.directives]]
    has = {(option.name, option.value) for option in found.options}
    for option in read(lines, found.scheduler, set()).options:
        if (option.name, option.value) not in has:
            yield f"{option.directive}: not in the script"
