"""Whether a new script would be the same job as the old one, and what each of its ranks must do for that."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hpclaunch.job.checks.words import RESERVED
from hpclaunch.scripts.asked import Asked
from hpclaunch.scripts.launch import name_of
from hpclaunch.scripts.lexer import plain
from hpclaunch.scripts.program import Start, assignments, modules
from hpclaunch.scripts.setup import words_of
from hpclaunch.scripts.shell import Command
from hpclaunch.scripts.tables import words

if TYPE_CHECKING:
    from hpclaunch.scripts.examine import Report
    from hpclaunch.scripts.rewrite import Rewrite

# What the job's shell may do once for all ranks, who would all find the same.
_ONCE = words(". cd conda date echo hostname nvidia-smi printenv pwd set source ulimit umask")
_OTHER_MPI = re.compile(r"(?i)intel-?mpi|\bimpi\b|intel-oneapi-mpi|mpich|mvapich|mpt\b")


def kept(asked: Asked, start: Start, values: dict[str, Any], result: Rewrite) -> list[Command]:
    """Return what each rank does before the command, inside of its quotes; the job's shell does it once for all."""
    ranks, by_node = values["tasks_per_node"], start.launch.layer("torchrun", "accelerate", "deepspeed")
    if asked.nodes * (1 if by_node else ranks) == 1:
        return []
    found: list[Command] = []
    for command in start.launch.before:
        head = name_of((command.split()[1] or [""])[0])
        settings = list(assignments(command))
        same = all(plain(value) is not None or name in RESERVED for name, value, _ in settings)
        once = head in _ONCE or (head in ("", "export") and bool(settings) and same)
        if head in ("module", "ml") or (once and not found):
            continue
        found.append(command)
        if by_node and not settings and head not in _ONCE:
            text = f"`{words_of(command)[:60]}` is done once on each node, the new script knows ranks only"
            result.problems.append((start.launch.line, text))
    return found


def sure(report: Report, start: Start, values: dict[str, Any], result: Rewrite) -> None:
    """Say where the new script would be another job, or starts otherwise what the old one left to the program."""
    launch, asked, line = start.launch, report.asked, start.launch.line
    assert asked is not None and report.program is not None  # noqa: S101, PT018
    if any(one.check == "no-queue" for one in report.remarks):
        result.problems.append((0, "no queue is named, and which one the site would choose is not known: --partition"))
    if mpi := launch.layer("mpirun"):
        others = [name for _, name in modules(report.program.body) if _OTHER_MPI.search(name)]
        others += ["mpiexec.hydra"] if any(name_of(word) == "mpiexec.hydra" for word in start.command.words) else []
        others += [f"-{name}" for name in ("ppn", "perhost", "genv", "genvall") if name in mpi.options]
        if others:
            text = f"{others[0]} is not Open MPI, whose mpirun and variables hpclaunch uses: give --launcher tasks"
            result.problems.append((line, f"{text}, if the program does without MPI"))
    elif not launch.parallel and launch.words:
        if asked.nodes > 1 and (not asked.gpus or not launch.bare):
            text = (
                f"`{' '.join(launch.words)[:60]}` is started once on {asked.nodes} nodes, hpclaunch starts it on each"
            )
            result.problems.append((line, f"{text}: give the command that each rank runs, or ask for one node"))
        elif values["launcher"] == "lightning":
            ranks = asked.nodes * values["tasks_per_node"]
            text = f"one process that uses {values['tasks_per_node']} GPUs is started with --launcher lightning, as a "
            text += f"trainer's that starts the others itself (WORLD_SIZE={ranks}); for any other program give "
            result.told.append((line, f"{text}--tasks-per-node 1 --launcher tasks"))
    for number, directive in asked.carried:
        if re.match(r"--signal[\s=]\s*R?B", directive):
            text = (
                f"`{directive}`: it goes to the old script's shell alone; --max-attempts 2 warns the ranks and goes on"
            )
            result.notes.append((number, text))
