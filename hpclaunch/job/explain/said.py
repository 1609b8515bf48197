"""What was said by a person or a profile, and where: the origins of a plan's inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpclaunch.job.explain.origin import Origin, Source, profile_origin
from hpclaunch.job.plan import Plan
from hpclaunch.profile.search import Profile
from hpclaunch.profile.yamlfile import Key


class Said:
    """A plan's request, how that came in, and its profile; a key that nobody said has no origins."""

    def __init__(self, plan: Plan, profile: Profile, sources: Mapping[str, Source]) -> None:
        self.plan, self.site, self.request, self.partition = plan, plan.site, plan.request, plan.partition
        self.layers = profile.layers
        self.sources = sources

    def asked(self, name: str, item: Any = None) -> list[Origin]:
        """Return how a part of the request came in, or that item of it."""
        value = getattr(self.request, name)
        if value in (None, [], {}) or (item is not None and item not in value):
            return []
        place = None
        if item is not None:
            place, value = (value.index(item), item) if isinstance(value, list) else (item, {item: value[item]})
        source = self.sources.get(name) or Source("option", f"--{name.replace('_', '-')}")
        return [source.origin(name, value, place)]

    def profile(self, key: Key, item: Any = None) -> list[Origin]:
        """Return where the profile says a key, or that item of it; or the default of what no profile says."""
        value: Any = self.site
        for part in key:
            value = value.get(part) if isinstance(value, dict) else getattr(value, str(part), None)
        if item is not None:
            if not value or item not in value:
                return []
            key = (*key, value.index(item) if isinstance(value, list) else item)
        if found := profile_origin(self.layers, key):
            return [found]
        if value in (None, [], {}, "", False) or callable(value):
            return []
        return [computed(str(key[-1]), f"{value}, hpclaunch's own default", value)]

    def of_partition(self, key: str, item: Any = None) -> list[Origin]:
        """Return where the profile says a key of the plan's partition."""
        return self.profile(("partitions", self.plan.partition_name, key), item)

    def asked_or_profile(self, name: str, key: str | None = None) -> list[Origin]:
        """Return how a part of the request came in, else where the profile says it."""
        return self.asked(name) or self.profile((key or name,))


def computed(key: str, formula: str, value: Any = None) -> Origin:
    """Return the origin of what was computed."""
    return Origin(kind="computed", key=key, value=value, formula=formula)
