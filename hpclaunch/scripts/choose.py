"""Which site a script is for, where nobody says."""

from __future__ import annotations

from hpclaunch.errors import HpclaunchError
from hpclaunch.job.directives.read import read
from hpclaunch.profile import search
from hpclaunch.profile.search import Profile


def guess(lines: list[str], scheduler: str) -> list[Profile]:
    """Return the profiles whose partitions or accounts' suffixes the directives name; those of any site left out."""
    options = read(lines, scheduler, set()).options
    named = [option.value for option in options if option.name in ("q", "partition", "constraint")]
    words = {word.removesuffix("-exec") for value in named for word in value.replace("|", ",").split(",")}
    accounts = [option.value for option in options if option.name == "account"]
    found = []
    for name in search.available():
        try:
            profile = search.load(name)
        except HpclaunchError:
            continue
        own = profile.site
        if own.scheduler != scheduler or own.any_partition:
            continue
        suffixes = {suffix for part in own.partitions.values() for suffix in part.account_suffixes}
        fits = words and all(own.find_partition(word) or word in own.restricted for word in words if word)
        if fits or (not words and any(account.endswith(tuple(suffixes)) for account in accounts if suffixes)):
            found.append(profile)
    return found
