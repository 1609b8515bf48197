"""What around a command decides what it does, and is lost where hpclaunch starts the command itself."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hpclaunch.scripts.asked import Asked
from hpclaunch.scripts.complete import step_size
from hpclaunch.scripts.launch import name_of
from hpclaunch.scripts.program import Start
from hpclaunch.scripts.setup import words_of

# Behind `||`, these only tell that the command failed, which the job's exit code does.
_AT_FAILURE = ("exit", "echo", "printf", "true", ":")


def joined(start: Start) -> Iterator[tuple[int, str]]:
    """Yield what in the command's own statement decides whether it runs, gives it its input or takes its output."""
    commands = start.statement.commands
    at = next(i for i, command in enumerate(commands) if command is start.command)
    if start.command.negated:
        yield start.command.line, "a `!` before the command: its exit code would be another"
    carried = ("", ";", "&&") if not start.statement.block else ("", ";", "&")
    first = at
    while first and (not start.statement.block or commands[first - 1].joint in ("&&", "||", "|", "|&")):
        first -= 1
    for command in commands[first:at]:
        if command.joint not in carried:
            text = f"`{words_of(command)[:60]} {command.joint}` before the command: "
            yield (
                command.line,
                text + ("it feeds it" if "|&".startswith(command.joint) else "it decides whether it runs"),
            )
    for before, command in pairwise(commands[at:]):
        name = name_of(command.words[0]) if command.words else ""
        if before.joint in ("|", "|&") and name != "tee":
            yield (
                command.line,
                f"`{words_of(command)[:60]}` reads what the command prints: that is in a log for each rank",
            )
        elif before.joint == "||" and name not in _AT_FAILURE:
            yield command.line, f"`{words_of(command)[:60]}` runs where the command fails: do that in a job of its own"
        elif before.joint not in ("&&", "||", "|", "|&"):
            return


def part(asked: Asked, start: Start, fan_out: bool) -> Iterator[tuple[int, str]]:
    """Yield that srun starts the command in a part of the job only: hpclaunch starts it in all of it."""
    if start.launch.layer("srun") is None:
        return
    nodes, per_node = step_size(asked, start.launch, fan_out)
    own = start.launch.layer("torchrun", "accelerate", "deepspeed")
    if nodes < asked.nodes or (per_node < asked.starts and own is None):
        what = f"srun starts {nodes * per_node} on {nodes} of the job's {asked.nodes} nodes"
        yield start.launch.line, f"{what}, the directives ask for {asked.nodes * asked.starts}: ask for what it uses"
