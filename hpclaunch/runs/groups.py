"""Groups of runs that were submitted as one: a sweep, a scaling study.

Each group is one file in the user's state folder, written whole before its first job is submitted and after each.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from msgspec import structs

from hpclaunch import paths
from hpclaunch.errors import HpclaunchError, SchedulerError
from hpclaunch.runs import registry
from hpclaunch.runs.registry import Run
from hpclaunch.runs.submit import hand_over, note
from hpclaunch.schedulers import run_folder

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan

Value = str | int | float


class Element(msgspec.Struct):
    """What is run once in a group: its number, what is different in it, the ids of its runs, the newest last."""

    number: int
    values: dict[str, Value]
    ids: list[str] = []


class Group(msgspec.Struct, kw_only=True):
    """Elements that were submitted as one; `request` makes an element's with its values, `at_most` run at once.

    The id of one that is an array is the array's. `submitted` is in seconds since 1970.
    """

    id: str
    kind: str
    site: str
    submitted: float
    elements: list[Element]
    request: dict[str, Any] = {}
    at_most: int | None = None

    @property
    def names(self) -> list[str]:
        """Return the names of the values, in the order of their first use."""
        return list(dict.fromkeys(name for element in self.elements for name in element.values))


def new(kind: str, site: str, values: Mapping[int, Mapping[str, Value]], **known: Any) -> Group:
    """Return a group of these elements, by number, of which none is submitted yet."""
    elements = [Element(number, dict(mine)) for number, mine in values.items()]
    return Group(id=run_folder.new_name(kind), kind=kind, site=site, submitted=time.time(), elements=elements, **known)


def register(group: Group) -> None:
    """Write the group's file, in place of an older one. Raises OSError if the state folder cannot be written."""
    _file(group).parent.mkdir(parents=True, exist_ok=True)
    paths.write_whole(_file(group), registry.encode(group))


def _file(group: Group) -> Path:
    names = (quote(name, safe="", errors="surrogateescape") for name in (group.site, group.id))
    return paths.user_state() / "groups" / f"{'-'.join(names)}.json"


def newest_first() -> list[Group]:
    """Return the groups, the newest first; a file that is not a group's is named on stderr and skipped."""
    found = []
    for path in (paths.user_state() / "groups").glob("*.json"):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Group))
        except (OSError, msgspec.DecodeError):
            sys.stderr.write(f"hpclaunch: {quote(str(path))}: not a group's file, skipped\n")
    return sorted(found, key=lambda group: -group.submitted)


def find(name: str, of_run: bool = False) -> tuple[Group, list[Element]] | None:
    """Return the group of this name and those of its elements that are meant; None if there is none.

    GROUP is all of them, GROUP:NUMBER one; with `of_run` the id of an element's run is that element. An id may be
    shortened to the part before its first dot or bracket. Raises HpclaunchError for an unknown number.
    """
    whole, _, number = name.rpartition(":")
    for group in newest_first():
        names = {group.id, group.id.split(".")[0], group.id.split("[")[0]}
        if name in names:
            return group, group.elements
        for element in group.elements:
            ids = {one for run_id in element.ids for one in (run_id, run_id.split(".")[0])} if of_run else ()
            if name in ids or (whole in names and number == str(element.number)):
                return group, [element]
        if whole in names:
            raise HpclaunchError(f"{name}: {whole} has no element {number!r}; `hpclaunch status {whole}` lists them")
    return None


def runs(names: Iterable[str]) -> list[Run]:
    """Return the runs of these names as `registry.find` does, of a group the newest of each element.

    Raises HpclaunchError for an unknown name, and for a group of which nothing is submitted.
    """
    ids: list[str] = []
    names = list(names)
    for name in names:
        found = find(name)
        mine = [element.ids[-1] for element in found[1] if element.ids] if found else [name]
        if not mine:
            raise HpclaunchError(f"{name} is not submitted; use: hpclaunch rerun {name} --failed")
        ids += mine
    return registry.find(ids)


def submit(
    group: Group,
    jobs: Sequence[tuple[Element, Plan, str]],
    after: Mapping[str, Sequence[str]] = {},
    submitted: Callable[[Element], None] = lambda _: None,
) -> list[Run]:
    """Submit a job for each of these elements, with its plan and script; return the runs.

    If `at_most` of the group run at once, each of the others starts after the end of an earlier one. `submitted` gets
    each element as soon as it has its id. Raises SchedulerError, with how to go on if some are submitted.
    """
    register(group)
    made: list[Run] = []
    ends: list[str] = []
    for element, plan, script in jobs:
        before = ends[-group.at_most :][:1] if group.at_most and len(ends) >= group.at_most else []
        chained = {**after, "afterany": [*after.get("afterany", ()), *before]} if before else after
        try:
            ids = hand_over(plan, script, chained)
        except SchedulerError as error:
            if not any(one.ids for one in group.elements):
                _file(group).unlink()
            if not made:
                raise
            text = f"{len(made)} of {len(jobs)} jobs are submitted; for the others: hpclaunch rerun {group.id} --failed"
            raise SchedulerError(*str(error).splitlines(), text) from None
        element.ids.append(ids[0])
        submitted(element)
        try:
            register(group)
        except OSError as error:
            warnings.warn(f"job {ids[0]} is submitted, but {_file(group)}: {error.strerror}", stacklevel=2)
        made.append(note(plan.about, plan.hidden(), script, ids))
        ends.append(ids[-1])
    return made


def with_all_attempts(plan: Plan) -> Plan:
    """Return the plan of a job whose attempts are submitted with it, so that others can wait for the last of them."""
    return structs.replace(plan, site=structs.replace(plan.site, resubmit=False))
