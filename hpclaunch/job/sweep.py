"""Sweeps: the values in which jobs of one request differ, and their places in its command, written {NAME}."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from hpclaunch.errors import RequestError, did_you_mean
from hpclaunch.job.consider import make_plan
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import PLACE, Request, Sweep
from hpclaunch.profile.search import Profile

MOST = 10_000  # jobs of a sweep
_NAME = r"[A-Za-z_]\w*"
_RANGE = r"(-?\d{1,9})\.\.(-?\d{1,9})"

Axis = list[dict[str, str]]  # the values of some names that go together


def axis(setting: str) -> Axis:
    """Return the values of `lr=1e-3,3e-4` or `seed=0..4`. Raises RequestError."""
    name, equals, text = setting.partition("=")
    if not (equals and re.fullmatch(_NAME, name, re.ASCII)):
        raise RequestError(f"--sweep {setting}: use NAME=V1,V2 or NAME=A..B, the name of letters, digits and _")
    values: list[str] = []
    for part in text.split(","):
        found = re.fullmatch(_RANGE, part)
        first, last = map(int, found.groups()) if found else (0, 0)
        if not part or last < first or (not found and re.fullmatch(r"-?\d+\.\.[^/]*", part)):
            use = "A..B are whole numbers, the first not above the second; V1,V2 are not empty"
            raise RequestError(f"--sweep {setting}: {part!r} is no value and no range; {use}")
        if found and last - first >= MOST:
            raise RequestError(f"--sweep {setting}: {last - first + 1:,} jobs exceed the limit of {MOST:,} in a sweep")
        values += map(str, range(first, last + 1)) if found else [part]
    return [{name: value} for value in values]


def table(file: str, rows: Sequence[Sequence[str]]) -> Axis:
    """Return the values of a table whose first row has the names. Raises RequestError."""
    names, *found = [row for row in rows if row] or [[]]
    if wrong := [name for name in names if not re.fullmatch(_NAME, name, re.ASCII)]:
        raise RequestError(f"{file}: {wrong[0]!r} in the first row is no name; use letters, digits and _, as lr,seed")
    if len({*names}) < len(names) or not found:
        raise RequestError(f"{file}: {'a name comes twice in' if found else 'there is no row below'} the first row")
    for number, row in enumerate(found, 2):
        if len(row) != len(names):
            raise RequestError(f"{file}: row {number} has {len(row)} values, the first row {len(names)} names")
    return [dict(zip(names, row, strict=True)) for row in found]


def product(axes: Iterable[Axis]) -> dict[int, dict[str, str]]:
    """Return the combinations by their numbers, the last axis changing first. Raises RequestError."""
    axes = list(axes)
    for one, other in itertools.combinations(axes, 2):
        if both := one[0].keys() & other[0].keys():
            raise RequestError(f"--sweep {min(both)}: it is swept twice; give all its values at once")
    if (count := math.prod(map(len, axes))) > MOST:
        raise RequestError(f"{count:,} jobs exceed the limit of {MOST:,} in a sweep; split it")
    for values in axes:
        (most, times), *_ = Counter(tuple(one.items()) for one in values).most_common(1)
        if times > 1:
            raise RequestError(f"{said(dict(most))} comes twice in the sweep; leave one of them out")
    return {i: {k: v for one in of for k, v in one.items()} for i, of in enumerate(itertools.product(*axes))}


def indices(text: str) -> dict[int, dict[str, str]]:
    """Return the elements of an array like 0-9, 0-9:2 or 1,3,7, which have no values. Raises RequestError."""
    found: list[int] = []
    for part in text.split(","):
        read = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?(?::0*([1-9]\d{0,8}))?", part)
        own = range(int(read[1]), int(read[2] or read[1]) + 1, int(read[3] or 1)) if read else range(0)
        if not own or len(own) + len(found) > MOST:
            limit = f"are too many, the limit is {MOST:,}" if own else "is no range"
            raise RequestError(f"--array {text}: {part!r} {limit}; use 0-9, 0-9:2 or 1,3,7 (and --at-most)")
        found += own
    if len({*found}) < len(found):
        raise RequestError(f"--array {text}: {Counter(found).most_common(1)[0][0]} comes twice; leave one of them out")
    return {number: {} for number in found}


def said(values: Mapping[str, object]) -> str:
    """Return values in words: `lr=1e-3 seed=0`."""
    return " ".join(f"{name}={value}" for name, value in values.items())


def swept(request: Request, elements: Mapping[int, Mapping[str, str]]) -> Request:
    """Return the request of the first of the elements, with all of them in `sweep`.

    Raises RequestError for a {name} that is not swept, and a name that the command does not use.
    """
    texts = [*request.command, *request.env.values()]
    names = {name for values in elements.values() for name in values}
    used = {found[2] for text in texts for found in re.finditer(PLACE, text) if names and found[2]}
    if unknown := sorted(used - names):
        text = f"{{{unknown[0]}}} is not swept{did_you_mean(unknown[0], names)}; for the text itself, double the braces"
        raise RequestError(text)
    if unused := sorted(names - used):
        raise RequestError(f"{unused[0]} is not used: write {{{unused[0]}}} in COMMAND or in --env NAME=VALUE")
    sweep = Sweep(elements={i: dict(one) for i, one in elements.items()}, command=request.command, env=request.env)
    return structs.replace(element(structs.replace(request, sweep=sweep), next(iter(elements))), sweep=sweep)


def element(request: Request, number: int, index: str = "") -> Request:
    """Return the request of one element, with its number in the variable `index` if that has a name."""
    sweep = request.sweep or Sweep()
    values = sweep.elements[number]

    def filled(text: str) -> str:
        return re.sub(PLACE, lambda found: found[1] or values[found[2]], text) if values else text

    env = {name: filled(text) for name, text in sweep.env.items()} | ({index: str(number)} if index else {})
    return structs.replace(request, command=[*map(filled, sweep.command)], env=env, sweep=None)


def as_array(profile: Profile, plan: Plan, at_most: int | None) -> Plan | None:
    """Return the plan of a sweep as one array, or None if it must be single jobs.

    An array of PBS has no further attempts: each would be the whole array. Raises RequestError if the site refuses it.
    """
    sweep, kind = plan.request.sweep or Sweep(), plan.scheduler
    numbers = sorted(sweep.elements)
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    even = [*range(numbers[0], numbers[-1] + 1, step)] == numbers
    text = f"{numbers[0]}-{numbers[-1]}{f':{step}' if step > 1 else ''}" if even else ",".join(map(str, numbers))
    fits = 1 < len(numbers) <= (plan.site.max_array or MOST) and (even or kind.array_lists)
    if not (kind.array_directives and plan.site.arrays and fits) or (kind.resubmits and plan.max_attempts > 1):
        return None
    most = f"%{at_most}" if at_most else ""
    lines = [line.format(text + most) for line in kind.array_directives]
    request = structs.replace(plan.request, directive=[*plan.request.directive, *lines])
    array = make_plan(profile, request)
    return structs.replace(array, command=sweep.command or array.command, request=plan.request, array=True)
