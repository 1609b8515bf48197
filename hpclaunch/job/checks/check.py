"""What a check is, and the diagnostic that it makes of what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from hpclaunch.job.diagnostic import Diagnostic, Found
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request
from hpclaunch.profile.model import Site
from hpclaunch.profile.search import Profile
from hpclaunch.profile.yamlfile import Key

QSUB = "https://github.com/openpbs/openpbs/blob/master/doc/man1/qsub.1B"
SBATCH = "https://slurm.schedmd.com/sbatch.html"


class Check(Struct, frozen=True):
    """A rule: of a plan, or (`words`) of a request for which there may be no plan. Its docstring is what it refuses.

    `reads` are the profile's keys, `options` the request's, `source` is where a rule of no profile is written down,
    `sources` where for one scheduler. One of scripts only has its sentence in `text`, and `warns` or refuses.
    """

    function: Callable[[Plan], Iterable[Found]] | None = None
    reads: str = ""
    options: str = ""
    source: str = ""
    sources: dict[str, str] = {}
    words: Callable[[Profile, Request], Iterable[Found]] | None = None
    text: str = ""
    warns: bool = False

    @property
    def sentence(self) -> str:
        """Return what the check refuses, in one sentence."""
        return self.text or ((self.function or self.words).__doc__ or "").partition("\n")[0]


def partition_key(plan: Plan, *rest: str | int) -> Key:
    """Return the place in the profile of a key of the plan's partition."""
    return ("partitions", plan.partition_name, *rest)


def own_key(plan: Plan, name: str) -> Key:
    """Return the place of a key that the plan's partition may have instead of its site."""
    return (name,) if getattr(plan.partition, name) is None else partition_key(plan, name)


def is_unconfirmed(site: Site, key: Key) -> bool:
    """Tell whether the profile lists `key`, or what holds it, among those whose source is weak."""
    if key[0] != "partitions":
        return key[0] in site.unconfirmed
    partition = site.partitions.get(str(key[1])) if len(key) > 2 else None
    if partition is None:
        return False
    of_qos = key[2] == "qos" and len(key) > 4 and key[4] in partition.qos[int(key[3])].unconfirmed
    return of_qos or key[2] in partition.unconfirmed


def judged(profile: Profile, name: str, check: Check, found: Found) -> Diagnostic:
    """Return the diagnostic of what a check found: refused or warned of, with its source."""
    key = found.key or ()
    weak = bool(key) and is_unconfirmed(profile.site, key)
    own = found.source or check.sources.get(profile.site.scheduler, check.source)
    source = (profile.where(key) or own) + (", not confirmed" if weak else "")
    refuses = not (found.warns or weak or check.warns)
    more = {field: getattr(found, field) for field in ("suggestions", "edits", "certain", "at")}
    return Diagnostic(name, found.message, refuses, source, ".".join(map(str, key)), **more)
