"""The checks of scripts only: what a request cannot hold. The others are those of a request, hpclaunch.job.checks."""

import re
from collections.abc import Iterator

from hpclaunch.job.checks.check import QSUB, SBATCH, Check
from hpclaunch.job.checks.sizes import LIGHTNING_SLURM
from hpclaunch.job.diagnostic import Edit, Found
from hpclaunch.job.directives.read import PREFIX
from hpclaunch.job.plan import Plan

Named = tuple[str, Found]

_OPENPBS = "OpenPBS 23.06, seen"
_PBSDSH = "https://github.com/openpbs/openpbs/blob/master/doc/man1/pbsdsh.1B"


def site_directives(plan: Plan) -> Iterator[Found]:
    """Warn of a script without a directive that every job of the site should have."""
    script, part, prefix = plan.script, plan.partition, PREFIX[plan.site.scheduler]
    if script is None or not (plan.gpus_per_node or part.cores_per_node):
        return
    for i, line in enumerate(plan.site.directives):
        names = re.findall(r"^--([a-z-]+)", line)
        hint = ["threads-per-core"] if names == ["hint"] else []
        if names and not script.directives.last(*names, *hint):
            text = f"{prefix} {line} is missing, which the site's own examples have"
            cores = 2 * plan.tasks_per_node * (plan.request.cpus_per_task or 0)  # what the hint makes of them
            more = hint and cores > (plan.gpus_per_node * (part.cpus_per_gpu or 0) or part.cores_per_node or 0)
            edits = [] if more else [Edit(script.last, "$", f"\n{prefix} {line}")]
            yield Found(text, ("directives", i), True, at=script.last, edits=edits)


def ntasks(plan: Plan) -> Iterator[Found]:
    """Refuse a script's --ntasks without --ntasks-per-node, which Lightning refuses."""
    given = plan.script.directives if plan.script else None
    option = given.last("ntasks") if given else None
    if given is None or option is None or given.last("ntasks-per-node") or not plan.gpus_per_node:
        return
    starts = -(-int(option.value) // plan.nodes) if option.value.isdecimal() else 1
    once = not (plan.script and plan.script.parallel)
    if plan.nodes * starts > 1 and not (once and starts > plan.gpus_per_node):  # that is what `tasks` is for
        right = f"--ntasks-per-node={starts}" + ("" if given.last("nodes") else f" --nodes={plan.nodes}")
        edit = Edit(option.line, option.pattern, right)
        text = f"{option.directive} without --ntasks-per-node; use {right}"
        yield Found(text, warns=once, at=option.line, edits=[edit])


def at_line(check: str, line: int, message: str, *, refuses: bool = True) -> Named:
    """Return what `check` found in a line, with the check's name."""
    return check, Found(message, warns=not refuses, at=line)


def _check(text: str, source: str, slurm_source: str = "", *, warns: bool = False) -> Check:
    return Check(text=text, source=source, sources={"slurm": slurm_source or source}, warns=warns)


SCRIPT_CHECKS = {
    # The file.
    "shell": _check("bash cannot read the script: a quote or a block that is never closed, for example.", "bash(1)"),
    "crlf": _check("Lines end as on Windows: qsub and sbatch refuse such a script.", _OPENPBS, SBATCH),
    "scheduler": _check("The script has no directives, or another scheduler's than the site's.", QSUB, SBATCH),
    "late": _check("Directives stand after the first command, where they are ignored.", QSUB, SBATCH, warns=True),
    "almost": _check("A line looks like a directive and is a comment.", _OPENPBS, SBATCH, warns=True),
    "site-directive": Check(site_directives, reads="directives"),
    "ntasks": Check(ntasks, source=LIGHTNING_SLURM),
    # Commands.
    "fan-out": _check("The training is started on one node, or as one rank, where the job has more.", LIGHTNING_SLURM),
    "layout": _check("A launcher is started once for each of a node's tasks.", LIGHTNING_SLURM),
    "wait": _check("A program is started in the background and nothing waits for it.", QSUB, SBATCH),
    "early-variable": _check(
        "$SLURM_PROCID or the like is expanded before srun: 0 on every node.", "https://slurm.schedmd.com/srun.html"
    ),
    "fixed-port": _check(
        "A fixed port on a node that other jobs share.", "https://docs.pytorch.org/docs/stable/elastic/run.html"
    ),
    "pbsdsh": _check("pbsdsh starts a copy on every core, or has an option of Torque's.", _PBSDSH),
    "node-count": _check("The lines of $PBS_NODEFILE are counted as nodes: there is one for each core.", _PBSDSH),
    "folder": _check("No `cd`: PBS starts a job in the home folder.", QSUB),
}
