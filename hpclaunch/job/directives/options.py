"""The options of directives, and a script as the checks see it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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
        """Return a pattern of the option with its value, as it stands in its line."""
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
    complete: bool = False  # what follows is about another part of the job

    def last(self, *names: str) -> Option | None:
        """Return the last option of one of these names, which is what Slurm goes by."""
        return next((option for option in reversed(self.options) if option.name in names), None)

    def first(self, *names: str) -> Option | None:
        """Return the first option of one of these names, as PBS does with its resources."""
        return next((option for option in self.options if option.name in names), None)

    def all(self, *names: str) -> Iterator[Option]:
        """Yield all options of these names."""
        return (option for option in self.options if option.name in names)

    def say(self, line: int, message: str, check: str = "directives", **more: Any) -> None:
        """Note what is wrong in a line."""
        self.found.append((check, Found(message, at=line, **more)))


class Script(Struct, frozen=True):
    """Somebody's script as the checks see it: its directives, and the line of each key and text of the request.

    `cpus` are the cores of the whole job as the script counts them, None if it does not. `steps` tells whether it
    starts anything with the scheduler's own launcher, `traps` whether its shell handles signals. `missing` are the
    folders of its output that are not there, `unsure` those that another machine may have.
    """

    directives: Directives
    lines: dict[str, int] = {}
    cpus: int | None = None
    steps: bool = True
    traps: bool = False
    modules: list[tuple[int, str]] = []
    missing: frozenset[str] = frozenset()
    unsure: frozenset[str] = frozenset()

    @property
    def last(self) -> int:
        """Return the line of the last directive, where one that is missing would stand."""
        return self.directives.lines[-1] if self.directives.lines else 0

    def place(self, one: Diagnostic, keys: Iterable[str]) -> int:
        """Return the line of a diagnostic of a check of these keys."""
        if isinstance(one.at, int):
            return one.at
        return next((self.lines[key] for key in (one.at, *keys) if key in self.lines), self.last)
