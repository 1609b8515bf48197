"""What is said of a line of a script, and what the lines are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from hpclaunch.errors import HpclaunchError
from hpclaunch.profile.yamlfile import Key
from hpclaunch.scripts.traps import TRAPS

LONGEST = 300_000  # bytes; job scripts have a few thousand


class Remark(Struct, frozen=True):
    """A finding at a line of the script (0: the script as a whole).

    A `mended` one is about how the script says it: what hpclaunch would write instead has it right. `key` is the
    profile's on which it rests, where that is not the first that the trap reads.
    """

    line: int
    check: str
    message: str
    refuses: bool = True
    source: str = ""
    mended: bool = False
    key: Key | None = None


def remark(
    check: str, line: int, message: str, *, refuses: bool | None = None, mended: bool = False, key: Key | None = None
) -> Remark:
    """Return the remark of a trap of TRAPS, as sure as its source unless told otherwise."""
    trap = TRAPS[check]
    return Remark(line, check, message, trap.refuses if refuses is None else refuses, trap.source, mended, key)


class Option(Struct, frozen=True):
    """One option of a directive: its own name (`time`, `l.walltime`, `N`), its value, and as it was written."""

    line: int
    name: str
    value: str
    written: str

    @property
    def directive(self) -> str:
        """Return the option with its value, as a directive has it."""
        joint = "=" if self.written.startswith(("--", "-l ")) else " "
        return f"{self.written}{joint}{self.value}" if self.value else self.written


class Directives(Struct):
    """The options that a scheduler reads in a script, in their order, and what there is to say of its directives."""

    scheduler: str
    options: list[Option] = []
    remarks: list[Remark] = []
    lines: list[int] = []

    def last(self, *names: str) -> Option | None:
        """Return the last option of one of these names, which is what Slurm goes by."""
        return next((option for option in reversed(self.options) if option.name in names), None)

    def first(self, *names: str) -> Option | None:
        """Return the first option of one of these names, as PBS does with its resources."""
        return next((option for option in self.options if option.name in names), None)

    def all(self, *names: str) -> Iterator[Option]:
        """Yield all options of these names."""
        return (option for option in self.options if option.name in names)


def load(path: Path) -> str:
    """Return a script's text.

    Raises HpclaunchError where it cannot be read, or is no script.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST + 1)
    except OSError as error:
        raise HpclaunchError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > LONGEST:
        raise HpclaunchError(f"{path}: more than {LONGEST // 1000} kB: no job script is that long")
    if b"\0" in data:
        raise HpclaunchError(f"{path}: a binary file, no job script")
    if not data.strip():
        raise HpclaunchError(f"{path}: an empty file, no job script")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")
