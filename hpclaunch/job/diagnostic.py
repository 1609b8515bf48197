"""What is wrong with a job, or may be: as a check finds it, and as users get it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from hpclaunch.profile.yamlfile import Key

# Keys of a request with the values that are right instead; None leaves the option out.
Suggestion = dict[str, Any]


class Edit(Struct, frozen=True):
    """A change in one line of a script: what the pattern `old` finds there becomes `new`."""

    line: int
    old: str
    new: str


class Found(Struct, frozen=True):
    """What a check yields: the message, and the profile's key that it rests on (None: a rule of its own).

    `source` is where that rule is written down, if not where the check's others are. `suggestions` are what to request
    instead, the best first; the message does not name them, as some may be refused themselves. `at` is what it is
    about, where that is not the check's first option: a key of the request, a text of it, or a line of the script. In
    a script the first suggestion is a fix if it is `certain`, and `edits` are one.
    """

    message: str
    key: Key | None = None
    warns: bool = False
    source: str = ""
    suggestions: Sequence[Suggestion] = ()
    at: str | int = ""
    certain: bool = False
    edits: Sequence[Edit] = ()


class Diagnostic(Struct, frozen=True):
    """One thing that is wrong, or may be. `source` is FILE:LINE of the profile, or where the rule is written down.

    `line` is the script's, 0 if it is about the whole. A `fatal` one leaves nothing to plan, so nobody can force it.
    """

    check: str
    message: str
    refuses: bool = True
    source: str = ""
    key: str = ""
    line: int = 0
    fatal: bool = False
    suggestions: Sequence[Suggestion] = ()
    edits: Sequence[Edit] = ()
    certain: bool = False
    at: str | int = ""

    def __str__(self) -> str:
        return f"{self.check}: {self.message}" + (f" [{self.source}]" if self.source else "")

    def record(self) -> dict[str, Any]:
        """Return the diagnostic for JSON, the same for every command."""
        names = ("check", "refuses", "message", "source", "key", "line", "suggestions")
        return {name: getattr(self, name) for name in names}
