"""Groups of runs that were submitted as one: a sweep, a scaling study.

Each group is one file in the user's state folder, written whole before its first job is submitted and after each.
"""

from __future__ import annotations

import json
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

    The id of an array's group is the array's. `submitted` is in seconds since 1970.
    """

    id: str
    kind: str
    site: str
    submitted: float
    elements: list[Element]
    request: dict[str, Any] = {}
    at_most: int | None = None
    about: dict[str, Any] = {}  # what else is known of one of its kind
    array: bool = False

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
            found.append(msgspec.convert(json.loads(path.read_bytes()), Group))
        except (OSError, ValueError, RecursionError, msgspec.ValidationError):
            sys.stderr.write(f"hpclaunch: {quote(str(path))}: not a group's file, skipped\n")
    return sorted(found, key=lambda group: -group.submitted)


def find(name: str, site: str = "") -> tuple[Group, list[Element]] | None:
    """Return the group of this name and those of its elements that are meant; None if there is none.

    GROUP is all of them, GROUP:NUMBER one; with `site` the id of an element's run there is that element. An id may be
    shortened to the part before its first dot or bracket. Raises HpclaunchError for an unknown number.
    """
    whole, _, number = name.rpartition(":")
    for group in newest_first():
        names = {group.id, group.id.split(".")[0], group.id.split("[")[0]}
        if name in names:
            return group, group.elements
        for element in group.elements:
            if (site == group.site and name in element.ids) or (whole in names and number == str(element.number)):
                return group, [element]
        if whole in names:
            raise HpclaunchError(f"{name}: {whole} has no element {number!r}; `hpclaunch status {whole}` lists them")
    return None


def runs_of(group: Group, elements: Iterable[Element]) -> dict[int, Run]:
    """Return the newest run of each of these elements that is submitted, by their numbers."""
    known = {run.id: run for run in reversed(registry.newest_first()) if run.site == group.site}
    ids = {element.number: element.ids[-1] for element in elements if element.ids}
    there = {run_id: run for run_id in ids.values() if (run := known.get(run_id)) and run.path.is_dir()}
    return {number: there.get(run_id) or registry.find([run_id])[0] for number, run_id in ids.items()}


def runs(names: Sequence[str]) -> list[Run]:
    """Return the runs of these names as `registry.find` does, of a group the newest of each element.

    Without a name it is the newest run, with the group that it is of. Raises HpclaunchError for an unknown name, and
    for a group of which nothing is submitted.
    """
    if not names:
        (newest,) = registry.find([])
        found = find(newest.id, newest.site)
        return list(runs_of(found[0], found[0].elements).values()) if found else [newest]
    of_groups = {name: list(runs_of(*found).values()) for name in names if (found := find(name))}
    if none := next((name for name, mine in of_groups.items() if not mine), None):
        raise HpclaunchError(f"{none} is not submitted; use: hpclaunch rerun {none} --failed")
    plain = [name for name in names if name not in of_groups]
    of_groups |= dict(zip(plain, ([run] for run in registry.find(plain)), strict=True)) if plain else {}
    return [run for name in names for run in of_groups[name]]


def of(chosen: Sequence[Run]) -> tuple[Group, list[Element]] | None:
    """Return the group of which all these are the newest runs of elements, and those elements; None if there is none.

    With all that are submitted, the elements that are not are among them.
    """
    ids = {(run.site, run.id) for run in chosen}
    for group in newest_first():
        found = [one for one in group.elements if one.ids and (group.site, one.ids[-1]) in ids]
        if len(found) == len(ids):
            whole = len(found) == sum(bool(one.ids) for one in group.elements)
            return group, group.elements if whole else found
    return None


def arrays(chosen: Sequence[Run]) -> list[Run]:
    """Return the arrays of which all jobs are among these, to be cancelled at once, each as a run."""
    found = of(chosen)
    return [structs.replace(chosen[0], id=found[0].id)] if found and found[0].array and found[1] else []


def submit(
    group: Group,
    jobs: Sequence[tuple[Element, Plan, str]],
    after: Sequence[str] = (),
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
        earlier = len(ends) - (group.at_most or len(jobs))
        try:
            ids = hand_over(plan, script, [*after, *([f"afterany:{ends[earlier]}"] if earlier >= 0 else [])])
        except SchedulerError as error:
            if not any(one.ids for one in group.elements):
                _file(group).unlink()
            if not made:
                raise
            text = f"{len(made)} of {len(jobs)} jobs are submitted; for the others: hpclaunch rerun {group.id} --failed"
            raise SchedulerError(*str(error).splitlines(), text) from None
        element.ids.append(ids[0])
        submitted(element)
        _update(group)
        made.append(note(plan.about, plan.hidden(), script, ids))
        ends.append(ids[-1])
    return made


def submit_array(
    group: Group,
    elements: Sequence[Element],
    plans: Sequence[Plan],
    array: Plan,
    script: str,
    after: Sequence[str] = (),
    submitted: Callable[[Element], None] = lambda _: None,
) -> list[Run]:
    """Submit an array of these elements, each with its plan; return the runs. A new group gets the array's id.

    `submitted` gets the first element as soon as all have their ids. Raises SchedulerError.
    """
    (array_id,) = hand_over(array, script, after)
    if not any(element.ids for element in group.elements):
        group.id, group.array = array_id, True
    ids = array.scheduler.array_ids(array_id, [element.number for element in elements])
    for element, run_id in zip(elements, ids, strict=True):
        element.ids.append(run_id)
    submitted(elements[0])
    _update(group)
    return [note(plan.about, plan.hidden(), script, [run_id]) for plan, run_id in zip(plans, ids, strict=True)]


def _update(group: Group) -> None:
    try:
        register(group)
    except OSError as error:
        text = f"jobs of {group.id} are submitted, but {_file(group)} cannot be written: {error.strerror}"
        warnings.warn(text, stacklevel=3)


def with_all_attempts(plan: Plan) -> Plan:
    """Return the plan of a job whose attempts are submitted with it, so that others can wait for the last of them."""
    return structs.replace(plan, site=structs.replace(plan.site, resubmit=False))
