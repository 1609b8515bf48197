"""submitit's executors over our job scripts, for Python functions; nothing else imports submitit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpclaunch.executors.parameters import plan_of

if TYPE_CHECKING:
    from hpclaunch.executors.script import ScriptExecutor


def executor(site: str, **options: Any) -> ScriptExecutor:
    """Return a submitit executor for a site: `executor("jean-zay", nodes=2).submit(train, lr)` gives a submitit Job.

    The options are those of the command line, by their names with underscores. Raises HpclaunchError if the site
    would refuse them.
    """
    from hpclaunch.executors.script import ScriptExecutor

    return ScriptExecutor(plan_of({"site": site, **options}))
