"""Sweeps: the values in which jobs of one request differ, and their places in its command, written {NAME}."""

from __future__ import annotations

import csv
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import structs

from hpclaunch.errors import RequestError, did_you_mean
from hpclaunch.job.consider import make_plan
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request
from hpclaunch.profile.search import Profile

MOST = 10_000  # jobs of a sweep
_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_PLACE = rf"\{{(\{{{_NAME}\}})\}}|\{{({_NAME})\}}"  # {{NAME}} is the text {NAME}


def axis(setting: str) -> list[dict[str, str]]:
    """Return the values of `lr=1e-3,3e-4` or `seed=0..4`. Raises RequestError."""
    name, _, text = setting.partition("=")
    values: list[str] = []
    for part in text.split(","):
        numbers = re.fullmatch(r"(-?\d{1,9})\.\.(-?\d{1,9})", part)
        first, last = map(int, numbers.groups()) if numbers else (0, 0)
        wrong = not 0 <= last - first < MOST or (not numbers and re.fullmatch(r"-?\d+\.\.[^/]*", part))
        if wrong or not part or not re.fullmatch(_NAME, name):
            raise RequestError(f"--sweep {setting}: {part!r}: use NAME=V1,V2 or NAME=A..B, at most {MOST:,} numbers")
        values += map(str, range(first, last + 1)) if numbers else [part]
    return [{name: value} for value in values]


def table(file: Path) -> list[dict[str, str]]:
    """Return the values of a CSV file whose first row has the names. Raises RequestError, and OSError."""
    rows: list[list[str]] = []
    with file.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as text, suppress(csv.Error):
        rows = [row for row in csv.reader(text, strict=True) if row]
    names, *found = rows or [[]]
    wrong = [row for row in found if len(row) != len(names) or "\0" in "".join(row)]
    if wrong or not found or len({*names}) < len(names) or not all(re.fullmatch(_NAME, name) for name in names):
        row = ",".join(wrong[0] if wrong else names)
        raise RequestError(f"{file}: {row!r}: use a first row of names, each once, and rows with a value for each name")
    return [dict(zip(names, row, strict=True)) for row in found]


def product(axes: Sequence[list[dict[str, str]]]) -> dict[int, dict[str, str]]:
    """Return the combinations by their numbers, the last axis changing first. Raises RequestError."""
    names = Counter(name for one in axes for name in one[0])
    all_rows = itertools.islice(itertools.product(*axes), MOST + 1)
    if len(found := [{name: row[name] for row in rows for name in row} for rows in all_rows]) > MOST:
        raise RequestError(f"these are more than {MOST:,} jobs, the limit of a sweep; split it")
    twice = [*names.items(), *Counter(" ".join(f"{k}={v!r}" for k, v in one.items()) for one in found).items()]
    if taken := sorted({"element", "state", "exit_code", "job", "note"} & names.keys()):
        raise RequestError(f"{taken[0]} is a column of the results; sweep it by another name")
    if wrong := next((what for what, times in twice if times > 1), None):
        raise RequestError(f"{wrong} is swept twice; leave one of them out")
    return dict(enumerate(found))


def indices(text: str) -> dict[int, dict[str, str]]:
    """Return the elements of an array like 0-9, 0-9:2 or 1,3,7, which have no values. Raises RequestError."""
    found: list[int] = []
    for part in text.split(","):
        read = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?(?::0*([1-9]\d{0,8}))?", part)
        own = range(int(read[1]), int(read[2] or read[1]) + 1, int(read[3] or 1)) if read else range(0)
        if not own or len(found) + len(own) > MOST or {*own} & {*found}:
            raise RequestError(f"--array {text}: {part!r}: use 0-9, 0-9:2 or 1,3,7, each index once, at most {MOST:,}")
        found += own
    return {number: {} for number in found}


def swept(template: Request, elements: Mapping[int, Mapping[str, str]]) -> Request:
    """Return the request of the first job, which knows their number. Raises RequestError for a name without a place."""
    names = {name for values in elements.values() for name in values}
    texts = [*template.command, *template.env.values()] if names else []
    used = {found[2] for text in texts for found in re.finditer(_PLACE, text) if found[2]}
    if unknown := sorted(used - names):
        raise RequestError(f"{{{unknown[0]}}} is not swept{did_you_mean(unknown[0], names)}; as text it is {{{{...}}}}")
    if unused := sorted(names - used):
        raise RequestError(f"{unused[0]} is not used: write {{{unused[0]}}} in COMMAND or in --env NAME=VALUE")
    return structs.replace(element(template, template, next(iter(elements.values()))), jobs=len(elements))


def element(request: Request, template: Request, values: Mapping[str, str]) -> Request:
    """Return the request of one job, with its values in their places of the template's command and variables."""
    fill = partial(re.sub, _PLACE, lambda found: found[1] or values[found[2]]) if values else str
    env = {name: fill(text) for name, text in template.env.items()}
    return structs.replace(request, command=[*map(fill, template.command)], env=env, jobs=1)


def as_array(profile: Profile, plan: Plan, jobs: Mapping[int, Plan], at_most: int | None) -> Plan | None:
    """Return the plan of these jobs as one array, or None if they must be single jobs. Raises RequestError."""
    kind, numbers = plan.scheduler, sorted(jobs)
    step = (numbers[1:] or [numbers[0] + 1])[0] - numbers[0]
    even = [*range(numbers[0], numbers[-1] + 1, step)] == numbers
    text = f"{numbers[0]}-{numbers[-1]}" + (f":{step}" if step > 1 else "") if even else ",".join(map(str, numbers))
    fits = 1 < len(numbers) <= (plan.site.max_array or MOST) and (even or kind.array_lists)
    if not (kind.array_directives and plan.site.arrays and fits) or (kind.resubmits and plan.max_attempts > 1):
        return None  # each attempt would be the whole array again
    lines = [line.format(text + (f"%{at_most}" if at_most else "")) for line in kind.array_directives]  # replace jobs=
    array = make_plan(profile, structs.replace(plan.request, jobs=1, directive=[*plan.request.directive, *lines]))
    differ = any(one.request != jobs[numbers[0]].request for one in jobs.values())
    return structs.replace(array, request=plan.request, array=dict(jobs) if differ else {})
