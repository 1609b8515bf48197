"""Which site a script is for, where nobody says."""

from contextlib import suppress

from hpclaunch.errors import HpclaunchError
from hpclaunch.job.directives.read import dialect, read
from hpclaunch.profile import search
from hpclaunch.profile.search import Profile


def guess(lines: list[str], scheduler: str) -> list[Profile]:
    """Return the profiles of which the directives name a partition, or an account that is for one of them."""
    found = []
    for name in search.available():
        with suppress(HpclaunchError):
            profile = search.load(name)
            site = profile.site
            if site.scheduler == scheduler and not site.any_partition:
                asked = dialect(scheduler).ask(profile, read(lines, scheduler, set()), {})
                named = asked.values.get("partition")
                if named and (named in site.restricted or asked.partition in site.partitions.values()):
                    found.append(profile)
    return found
