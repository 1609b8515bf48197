"""Groups of runs that were submitted as one, a sweep or a scaling study, each a file in the user's state folder."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from msgspec import structs

from hpclaunch import paths
from hpclaunch.errors import HpclaunchError, SchedulerError
from hpclaunch.runs import registry
from hpclaunch.runs.registry import Run
from hpclaunch.runs.submit import hand_over, note, uninterrupted
from hpclaunch.schedulers import run_folder

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan
    from hpclaunch.schedulers import Scheduler


class Element(msgspec.Struct):
    """What is run once in a group: its number, what is different in it, the ids of its runs, the newest last."""

    number: int
    values: dict[str, Any]
    ids: list[str] = []


class Group(msgspec.Struct, kw_only=True):
    """Elements that were submitted as one, `at_most` to run at once; `array` jobs as an array, whose id it has."""

    id: str
    kind: str
    site: str
    submitted: float  # in seconds since 1970
    elements: list[Element]
    request: dict[str, Any] = {}
    at_most: int | None = None
    about: dict[str, Any] = {}  # what else is known of one of its kind
    array: int = 0

    def array_ids(self, elements: Sequence[Element], kind: Scheduler) -> list[str]:
        """Return the ids of the array's jobs if `elements` are all of a group that is one; else none."""
        return kind.array_ids(self.id, [one.number for one in elements]) if self.array == len(elements) else []


def new(kind: str, site: str, values: Mapping[int, Mapping[str, Any]], **known: Any) -> Group:
    """Return a group of these elements, by number, of which none is submitted yet."""
    elements = [Element(number, dict(mine)) for number, mine in values.items()]
    return Group(id=run_folder.new_name(kind), kind=kind, site=site, submitted=time.time(), elements=elements, **known)


def register(group: Group) -> None:
    """Write the group's file, in place of an older one. Raises OSError if the state folder cannot be written."""
    name = "-".join(quote(word, safe="", errors="surrogateescape") for word in (group.site, group.id))
    (folder := paths.user_state() / "groups").mkdir(parents=True, exist_ok=True)
    paths.write_whole(folder / f"{name}.json", registry.encode(group))


def newest_first() -> list[Group]:
    """Return the groups, the newest first; a file that is not a group's is skipped."""
    found = []
    for path in (paths.user_state() / "groups").glob("*.json"):
        with suppress(OSError, ValueError, RecursionError, msgspec.ValidationError):
            found.append(msgspec.convert(json.loads(path.read_bytes()), Group))
    return sorted(found, key=lambda group: -group.submitted)


def find(name: str) -> tuple[Group, list[Element]] | None:
    """Return the group of a name, GROUP or GROUP:NUMBER, and its elements that are meant; None if there is none."""
    whole, _, number = name.rpartition(":")
    for group in newest_first():
        names = {group.id, group.id.split(".")[0], group.id.split("[")[0]}  # also without PBS's server and brackets
        one = [element for element in group.elements if whole in names and number == str(element.number)]
        if elements := group.elements if name in names else one:
            return group, elements
    return None


def of(chosen: Sequence[Run]) -> tuple[Group, list[Element]] | None:
    """Return the group of which these are the newest runs, and the elements; of all runs with those never submitted."""
    ids = {(run.site, run.id) for run in chosen}
    for group in newest_first():
        found = [one for one in group.elements if one.ids and (group.site, one.ids[-1]) in ids]
        if found and len(found) == len(ids):
            return group, group.elements if len(found) == sum(bool(one.ids) for one in group.elements) else found
    return None


def runs(names: Sequence[str]) -> list[Run]:
    """Return what `registry.find` does; of a group, also if the newest run is of one, the newest of each element.

    Raises HpclaunchError for an element that is not submitted.
    """
    if not names and (newest := of(registry.find([]))):
        names = [newest[0].id]
    found = {name: find(name) for name in names}
    if not any(found.values()):
        return registry.find(names)
    chosen: list[Run] = []
    for name, one in found.items():
        site, ids = (one[0].site, [element.ids[-1] for element in one[1] if element.ids]) if one else ("", [name])
        if not ids:
            raise HpclaunchError(f"{name}: the scheduler has not taken it; use rerun with the sweep's id and --failed")
        chosen += registry.find(ids, site)
    return chosen


def submit(
    group: Group, jobs: Sequence[tuple[Element, Plan, str]], after: Sequence[str], array: Plan | None = None
) -> list[Run]:
    """Submit elements by plan and script, or all by an array's plan, whose id a new group gets; return the runs."""
    most, ids, made = group.at_most or len(jobs), list[list[str]](), list[Run]()  # ids: of each job all attempts
    try:
        if array:
            with uninterrupted():
                (array_id,) = hand_over(array, jobs[0][2], after)
                if not any(element.ids for element in group.elements):
                    group.id, group.array = array_id, len(jobs)
                ids = [[one] for one in array.scheduler.array_ids(array_id, [element.number for element, *_ in jobs])]
                for (element, *_), own in zip(jobs, ids, strict=True):
                    element.ids += own
                _keep(group, ids)
                for (_, plan, script), own in zip(jobs, ids, strict=True):
                    same = made[0].path / run_folder.SCRIPT if made else script
                    made.append(note(plan.about, plan.hidden(), same, own))
            return made
        _keep(group, ids)
        for number, (element, plan, script) in enumerate(jobs):
            earlier = [f"afterany:{ids[number - most][-1]}"] if number >= most else []
            with uninterrupted():
                ids.append(hand_over(plan, script, [*after, *earlier]))
                made.append(note(plan.about, plan.hidden(), script, ids[number]))
                element.ids.append(made[-1].id)
                _keep(group, ids)
    except (SchedulerError, OSError, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt) and len(made) == len(jobs):
            return made  # it came too late
        others = f"to submit the others: hpclaunch rerun {group.id} --failed" if group.kind == "sweep" else group.id
        rest = f"{len(ids)} of {len(jobs)} jobs are submitted; {others}"
        text = "\n".join([str(error) or "interrupted", *([rest] if ids else [])])
        raise (KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else SchedulerError)(text) from None
    return made


def _keep(group: Group, ids: Sequence[object]) -> None:
    """Write the group's file; once jobs are submitted, only warn if it cannot be written. Raises OSError."""
    try:
        register(group)
    except OSError as error:
        if not ids:
            raise
        warnings.warn(
            f"{group.id} is submitted, but {error.filename} cannot be written: {error.strerror}", stacklevel=2
        )


def with_all_attempts(plan: Plan) -> Plan:
    """Return the plan of a job whose attempts are submitted with it, so that others can wait for the last of them."""
    return structs.replace(plan, site=structs.replace(plan.site, resubmit=False))
