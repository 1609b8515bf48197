"""The directives of a script: which lines are some, and the options that its scheduler reads in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from hpclaunch.job.directives.options import Directives, Option

if TYPE_CHECKING:
    from hpclaunch.job.directives.asked import Asked
    from hpclaunch.job.plan import Plan
    from hpclaunch.profile.search import Profile

PREFIX = {"pbs": "#PBS", "slurm": "#SBATCH"}
DIRECTIVE = {"pbs": re.compile(r"\s*#PBS"), "slurm": re.compile("#SBATCH")}  # PBS takes indented ones too
# Misspelt prefixes and such with a blank; `##SBATCH` is how people switch a directive off.
_ALMOST = r"(?i)\s*#\s*(PBS|P\w\w(?= +-l +\w+=)|S?S?BA?TA?CH?|SBACTH|SBTACH)\s+(?=--?[A-Za-z])"


class Dialect(Protocol):
    """How a scheduler's directives are read and written; a module with these names."""

    WORDS: Mapping[str, str]  # a key of the request, and how it is written with its value
    TOGETHER: bool  # the sizes are totals of the job: one that changes changes the others

    def read_line(self, found: Directives, number: int, text: str) -> None:
        """Add the options of one directive, `text` being what follows the prefix."""

    def ask(self, profile: Profile, directives: Directives, typed: Mapping[str, Any]) -> Asked:
        """Return what directives ask for; options `typed` on the command line win."""

    def planned(self, plan: Plan) -> dict[str, tuple[str, str | None, str]]:
        """Return by its name each option that asks for a plan: the request's key, its value, the directive."""

    def same(self, option: Option) -> str:
        """Return an option's value as `planned` writes it."""


def dialect(scheduler: str) -> Dialect:
    """Return how the directives of a scheduler are read and written."""
    return cast("Dialect", import_module(f"hpclaunch.job.directives.{scheduler}"))


def scheduler_of(lines: list[str], wanted: str | None = None) -> str | None:
    """Return the scheduler whose directives a script begins with, or has anywhere; None if it has none.

    One that has those of several is for the `wanted` one too.
    """
    top = lines[: first_command(lines)]
    if wanted and any(DIRECTIVE[wanted].match(line) for line in top):
        return wanted
    return next((name for line in [*top, *lines] for name in PREFIX if DIRECTIVE[name].match(line)), None)


def first_command(lines: list[str]) -> int:
    """Return the index of the first line that is neither blank nor a comment; directives end there."""
    return next((i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), len(lines))


def read_options(lines: Iterable[str], scheduler: str) -> Directives:
    """Return what `scheduler` reads in directives without their prefix; nothing if it reads none."""
    return read([f"{PREFIX[scheduler]} {line}" for line in lines], scheduler) if scheduler in PREFIX else Directives("")


def option_of(directive: str, scheduler: str) -> Option:
    """Return the option of a profile's directive, the {names} in it as they are; an empty one for ""."""
    return next(iter(read_options(filter(None, [directive]), scheduler).options), Option(0, "", "", ""))


def read(lines: list[str], scheduler: str, heredocs: Iterable[int] = ()) -> Directives:
    """Return what `scheduler` reads in a script. `heredocs` are the numbers of lines that are some other file's."""
    found, almost = Directives(scheduler), Directives(scheduler)
    end, prefix, read_line = first_command(lines), PREFIX[scheduler], dialect(scheduler).read_line
    late = []
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r")
        if number <= end and DIRECTIVE[scheduler].match(line):
            found.lines.append(number)
            read_line(found, number, text.lstrip()[len(prefix) :])
        elif DIRECTIVE[scheduler].match(line) and number not in heredocs:
            late.append(number)
        elif number not in heredocs and (match := re.match(_ALMOST, text)) and match[1][0].upper() == prefix[1]:
            read_line(almost, number, f" {text[match.end() :]}")
    if late:
        which = f" (lines {late[0]}-{late[-1]})" if len(late) > 1 else ""
        text = f"{len(late)} directives{which} are" if which else "a directive is"
        text += f" ignored after the first command, line {end + 1}; move {'them' if which else 'it'} up"
        found.say(late[0], text, "late")
    names = {option.name for option in found.options}
    for number in dict.fromkeys(option.line for option in almost.options if option.name not in names):
        found.say(number, f"a comment to the scheduler; the line must begin with {prefix}", "almost")
    return found


def split(found: Directives, number: int, text: str, commenters: str) -> list[str]:
    """Return the words of a directive, quotes removed."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, commenters
    try:
        return list(lexer)
    except ValueError:
        found.say(number, f"a quote is never closed: {text.strip()}")
        return []


def words(text: str) -> set[str]:
    """Return the words of a text."""
    return set(text.split())
