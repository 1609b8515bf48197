"""What a check is, what it yields, and the diagnostic that users get of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan
    from hpclaunch.job.request import Request
    from hpclaunch.profile.model import Site
    from hpclaunch.profile.search import Profile
    from hpclaunch.profile.yamlfile import Key
    from hpclaunch.scripts.directives import Directives

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


class Check(Struct, frozen=True):
    """A rule: of a plan, or (`words`) of a request for which there may be no plan. Its docstring is what it refuses.

    `reads` are the profile's keys, `options` the request's, `source` is where a rule of no profile is written down, on
    Slurm `slurm_source` if there is one. One of scripts only has its sentence in `text`, and `warns` or refuses.
    """

    function: Callable[[Plan], Iterable[Found]] | None = None
    words: Callable[[Profile, Request], Iterable[Found]] | None = None
    reads: str = ""
    options: str = ""
    source: str = ""
    slurm_source: str = ""
    text: str = ""
    warns: bool = False

    @property
    def sentence(self) -> str:
        """Return what the check refuses, in one sentence."""
        return self.text or ((self.function or self.words).__doc__ or "").partition("\n")[0]


def partition_key(plan: Plan, *rest: str | int) -> Key:
    """Return the place in the profile of a key of the plan's partition."""
    return ("partitions", plan.partition_name, *rest)


def is_unconfirmed(site: Site, key: Key) -> bool:
    """Tell whether the profile lists `key`, or what holds it, among those whose source is weak."""
    if key[0] != "partitions":
        return key[0] in site.unconfirmed
    if len(key) < 3:
        return False
    partition = site.partitions.get(str(key[1]))
    if partition is None:
        return False
    if key[2] == "qos" and len(key) > 4 and key[4] in partition.qos[int(key[3])].unconfirmed:
        return True
    return key[2] in partition.unconfirmed


def judged(profile: Profile, name: str, check: Check, found: Found) -> Diagnostic:
    """Return the diagnostic of what a check found: refused or warned of, with its source."""
    key = found.key or ()
    weak = found.key is not None and is_unconfirmed(profile.site, found.key)
    on_slurm = check.slurm_source if profile.site.scheduler == "slurm" else ""
    source = profile.where(key) or found.source or on_slurm or check.source
    source += ", not confirmed" if weak else ""
    return Diagnostic(
        name,
        found.message,
        not (found.warns or weak or check.warns),
        source,
        ".".join(map(str, key)),
        suggestions=found.suggestions,
        edits=found.edits,
        certain=found.certain,
        at=found.at,
    )
