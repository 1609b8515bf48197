"""Profiles and templates that are not shipped with hpclaunch: each command that uses them names them on stderr."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hpclaunch import paths
from hpclaunch.cli.echo import talk
from hpclaunch.errors import NOT_SHIPPED
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import quote
from hpclaunch.profile import search


def announce(files: Iterable[str]) -> None:
    """Name on stderr the profiles and templates that are not shipped: they may belong to a cloned repository."""
    if named := " ".join(map(quote, files)):
        talk(f"{NOT_SHIPPED} {named}")


def load_site(name: str) -> search.Profile:
    """Load the profile `name` and announce those of its files that are not shipped."""
    profile = search.load(name)
    announce(profile.foreign)
    return profile


def rendered(plan: Plan) -> str:
    """Render the job script and announce the templates that are not shipped."""
    return rendered_from(plan)[0]


def rendered_from(plan: Plan) -> tuple[str, list[Path]]:
    """Do as `rendered`, and return those templates too."""
    from hpclaunch.job.render import Cache, fill, noted

    script, templates = fill(plan, Cache(paths.user_cache()))
    if templates:
        from hpclaunch.scripts.readback import check

        check(plan, script, templates)
    announce(map(paths.shown, templates))
    return noted(script, plan, templates), templates
