"""What a script's body does: its variables, its modules, and the command that the job is for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from hpclaunch.profile.model import Site
from hpclaunch.scripts.launch import Launch, name_of, unquote, unwrap
from hpclaunch.scripts.lexer import plain
from hpclaunch.scripts.shell import ASSIGNMENT, Body, Command, Statement


class Start(Struct):
    """A command that a job could be for, and where it stands."""

    statement: Statement
    command: Command
    launch: Launch


class Program(Struct):
    """A script's body, understood as far as it can be."""

    body: Body
    variables: dict[str, str]
    starts: list[Start]

    @property
    def main(self) -> list[Start]:
        """Return what the job is for: the parallel starts, else the last python, else the last command."""
        if parallel := [start for start in self.starts if start.launch.parallel]:
            return parallel
        starts = [start for start in self.starts if start.launch.python] or self.starts
        return [*_beside(self.body, starts), *starts[-1:]]


def _beside(body: Body, starts: list[Start]) -> list[Start]:
    """Return what runs in the background beside the last of `starts` as its equal: each on a GPU of its own, say."""
    on_own_gpus = starts and any(word.startswith("CUDA_VISIBLE_DEVICES=") for word in starts[-1].launch.env)
    if not starts or not (_in_background(starts[-1]) or on_own_gpus):
        return []
    order = {id(command): i for i, command in enumerate(body.commands())}
    last = order[id(starts[-1].command)]
    waits = [order[id(command)] for command in body.commands() if command.words[:1] == ["wait"]]
    waited = max((at for at in waits if at < last), default=-1)
    return [start for start in starts[:-1] if _in_background(start) and order[id(start.command)] > waited]


def _in_background(start: Start) -> bool:
    return "&" in (start.command.joint, start.statement.commands[-1].joint)


def understand(body: Body, site: Site) -> Program:
    """Return what the body does at this site."""
    own = dict.fromkeys([*site.removed_commands, *(site.allocation.command[:1] if site.allocation else [])], "")
    own |= {name: stands_for or "" for name, stands_for in site.own_commands.items()}
    variables = _variables(body)
    starts = [
        Start(statement, command, launch)
        for statement in body.statements
        for command in statement.commands
        if (launch := unwrap(command, variables, own)) is not None
    ]
    return Program(body, variables, starts)


def assignments(command: Command) -> Iterator[tuple[str, str, bool]]:
    """Yield (name, raw value, whether exported) for what a command only sets."""
    settings, words = command.split()
    exported = bool(words) and words[0] in ("export", "declare", "readonly", "typeset")
    if words and not exported:
        return
    for word in settings if not words else words[1:]:
        if found := ASSIGNMENT.fullmatch(word):
            yield found[1], found[3], exported and words[0] == "export"


def _variables(body: Body) -> dict[str, str]:
    """Return the variables that are set once, outside of loops and functions, with the text that they stand for."""
    times: Counter[str] = Counter()
    found: dict[str, str] = {}
    for statement in body.statements:
        for command in statement.commands:
            for name, value, _ in assignments(command):
                times[name] += 1
                if not statement.block and all(one.joint in ("", ";") for one in statement.commands):
                    found[name] = unquote(value)
    return {name: text for name, text in found.items() if times[name] == 1}


def modules(body: Body) -> Iterator[tuple[int, str]]:
    """Yield (line, module) for each that is loaded, in that order."""
    for command in body.commands():
        words = command.words
        if not words or name_of(words[0]) not in ("module", "ml"):
            continue
        rest = words[1:]
        if words[0] == "module" or rest[:1] == ["load"]:
            if rest[:1] not in (["load"], ["add"]):
                continue
            rest = rest[1:]
        elif rest[:1] in (["purge"], ["use"], ["list"], ["unload"], ["avail"]):
            continue
        for word in rest:
            if (module := plain(word)) and not module.startswith("-"):
                yield command.line, module
