"""How a script asks for a plan: keys of the request as directives, and what to change in them."""

from __future__ import annotations

import re
from typing import Any

from hpclaunch.job.diagnostic import Edit
from hpclaunch.job.directives.options import Directives
from hpclaunch.job.directives.read import PREFIX, dialect
from hpclaunch.job.plan import Plan

_SIZES = {"nodes", "gpus_per_node", "tasks_per_node", "cpus_per_task"}


def written(plan: Plan, key: str, value: Any) -> str:
    """Return a key of the request with its value as a directive."""
    return dialect(plan.site.scheduler).WORDS.get(key, f"{key.replace('_', ' ')} {{}}").format(value)


def changed(after: Plan, keys: set[str]) -> list[tuple[str, str]]:
    """Return the directives, by name, by which a script would ask for the plan `after`, of those about `keys`."""
    own, has = dialect(after.site.scheduler), after.script.directives if after.script else Directives("")
    sizes = _SIZES if own.TOGETHER and keys & _SIZES else set()
    found = []
    for name, (key, value, text) in own.planned(after).items():
        option = has.first(name)
        total = sizes and key in ("mem_gb", "jobfs_gb") and option
        if (
            value
            and (option or not re.fullmatch("0|gpu:0", value))
            and (key in keys | sizes or total)
            and not (option and own.same(option) == value)
        ):
            found.append((name, text))
    return found


def edits(after: Plan, keys: set[str]) -> list[Edit]:
    """Return the changes in a script's directives that make it ask for the plan `after`, of those about `keys`."""
    if (script := after.script) is None:
        return []
    found, has = [], script.directives
    for name, text in changed(after, keys):
        option = has.first(name) if name.startswith("l.") else has.last(name)
        if option is None:
            found.append(Edit(script.last, "$", f"\n{PREFIX[after.site.scheduler]} {text}"))
        elif name.startswith("l."):
            found.append(Edit(option.line, rf"\b{name[2:]}={re.escape(option.value)}(?=[,\s]|$)", text[3:]))
        else:
            found.append(Edit(option.line, option.pattern, text))
    return found
