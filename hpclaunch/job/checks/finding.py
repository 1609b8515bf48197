"""What a check is, what it finds, and how sure that is."""

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


# Keys of a request with the values that are right instead; None leaves the option out.
Suggestion = dict[str, Any]


class Found(Struct, frozen=True):
    """What a check yields: the message, and the profile's key that it rests on (None: a rule of its own).

    `source` is where that rule is written down, if not where the check's others are. `suggestions` are what to ask for
    instead, the best first; the message does not name them, as some may be refused themselves.
    """

    message: str
    key: Key | None = None
    warns: bool = False
    source: str = ""
    suggestions: Sequence[Suggestion] = ()


class Finding(Struct, frozen=True):
    """One thing that is wrong, or may be. `source` is FILE:LINE of the profile, or where the rule is written down.

    A `fatal` one leaves nothing to plan, so nobody can force it.
    """

    check: str
    message: str
    refuses: bool = True
    source: str = ""
    key: str = ""
    fatal: bool = False
    suggestions: Sequence[Suggestion] = ()

    def __str__(self) -> str:
        return f"{self.check}: {self.message}" + (f" [{self.source}]" if self.source else "")


class Check(Struct, frozen=True):
    """A rule: of a plan, or (`words`) of a request for which there may be no plan. Its docstring is what it refuses.

    `reads` are the profile's keys, `options` the request's, `source` is where a rule of no profile is written down,
    on Slurm `slurm_source` where there is one.
    """

    function: Callable[[Plan], Iterable[Found]] | None = None
    words: Callable[[Profile, Request], Iterable[Found]] | None = None
    reads: str = ""
    options: str = ""
    source: str = ""
    slurm_source: str = ""

    @property
    def sentence(self) -> str:
        """Say what the check refuses, in one sentence."""
        return ((self.function or self.words).__doc__ or "").partition("\n")[0]


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


def judged(profile: Profile, name: str, check: Check, found: Found) -> Finding:
    """Return the finding that `found` is: refused or warned of, with its source."""
    key = found.key or ()
    weak = found.key is not None and is_unconfirmed(profile.site, found.key)
    on_slurm = check.slurm_source if profile.site.scheduler == "slurm" else ""
    source = profile.where(key) or found.source or on_slurm or check.source
    source += ", not confirmed" if weak else ""
    return Finding(
        name, found.message, not (found.warns or weak), source, ".".join(map(str, key)), suggestions=found.suggestions
    )
