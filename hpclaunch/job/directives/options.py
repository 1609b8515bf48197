"""The options of directives, and a script as the checks see it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from hpclaunch.job.diagnostic import Diagnostic, Found


class Option(Struct, frozen=True):
    """One option of a directive: its own name (`time`, `l.walltime`, `N`), its value, and as it was written."""

    line: int
    name: str
    value: str
    written: str

    @property
    def pattern(self) -> str:
        """Return a pattern of the option with its value as it stands in its line; of a resource, only NAME=VALUE."""
        if self.name.startswith("l."):
            return rf"\b{self.name[2:]}={re.escape(self.value)}(?=[,\s]|$)"
        return rf"(?<!\S){re.escape(self.written)}[=\s]*{re.escape(self.value)}(?!\S)"

    @property
    def directive(self) -> str:
        """Return the option with its value, as a directive has it."""
        joint = "=" if self.written.startswith(("--", "-l ")) else " "
        return f"{self.written}{joint}{self.value}" if self.value else self.written


class Directives(Struct):
    """The options that a scheduler reads in a script, in their order, and what was found wrong, by check."""

    scheduler: str
    options: list[Option] = []
    found: list[tuple[str, Found]] = []
    lines: list[int] = []
    complete: str = ""  # what follows is about another part of the job, for this reason

    def all(self, *names: str) -> Iterator[Option]:
        """Yield all options of these names."""
        return (option for option in self.options if option.name in names)

    def first(self, *names: str) -> Option | None:
        """Return the first option of one of these names, which is what PBS goes by with its resources."""
        return next(self.all(*names), None)

    def last(self, *names: str) -> Option | None:
        """Return the last option of one of these names, which is what Slurm goes by."""
        return next(reversed([*self.all(*names)]), None)

    def value(self, option: Option | None, read: Callable[[str], Any]) -> Any:
        """Return an option's value as `read` reads it; None if there is no option, or it cannot be read."""
        try:
            return option and read(option.value)
        except ValueError as error:
            if option and not re.search("[$<]|HH:MM", option.value):  # said of a variable or a placeholder
                self.say(option.line, f"{option.directive}: {error}")
            return None

    def say(self, line: int, message: str, check: str = "directives", **more: Any) -> None:
        """Note what is wrong in a line."""
        self.found.append((check, Found(message, at=line, **more)))


class Script(Struct, frozen=True):
    """Somebody's script as the checks see it: its directives, and the line of each key and text of the request.

    `cpus` are the cores of the whole job as the script counts them, None if it does not; `threads` of its cpus are one
    core. `steps` tells whether it starts anything with the scheduler's own launcher, `parallel` whether something
    starts its program's ranks, `traps` whether its shell handles signals.
    """

    directives: Directives
    lines: dict[str, int] = {}
    cpus: int | None = None
    steps: bool = True
    parallel: bool = True
    threads: int = 1
    traps: bool = False
    modules: list[tuple[int, str]] = []

    @property
    def last(self) -> int:
        """Return the line of the last directive, where one that is missing would stand."""
        return self.directives.lines[-1] if self.directives.lines else 0

    def place(self, one: Diagnostic, keys: Iterable[str]) -> int:
        """Return the line of a diagnostic of a check of these keys."""
        if isinstance(one.at, int):
            return one.at
        return next((self.lines[key] for key in (one.at, *keys) if key in self.lines), self.last)
