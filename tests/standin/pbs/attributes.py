"""The values of qsub's options: what each may be, and what it means."""

from __future__ import annotations

import re
from collections.abc import Mapping

from standin.pbs.refusal import Refusal

# OpenPBS 23.06, seen: up to 230 of these, of which any but a point may come first.
NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]*")
ARRAY = re.compile(r"(\d+)-(\d+)(?::(\d+))?(?:%(\d+))?")
DEPENDENCY = re.compile(r"(afterok|afternotok|afterany|after)((?::\d+(?:\[\])?(?:\.[\w.-]+)?)+)")


CHOICES = {"j": "oe|eo|n", "r": "[yn]", "k": "n|[oe]{1,2}d?|d[oe]{1,2}"}


class IllegalValueError(Exception):
    """An option's value is wrong; the argument is the option's letter."""


def check(option: str, value: str) -> None:
    """Raise IllegalValueError, or Refusal, if an option cannot have this value."""
    if option == "N":
        name(value)
    elif option == "J":
        array(value)
    elif option in CHOICES and not re.fullmatch(CHOICES[option], value):
        raise IllegalValueError(option)


def name(text: str) -> str:
    """Return a job's name.

    Raises Refusal if it is too long, IllegalValueError if PBS cannot have it.
    """
    if len(text) > 230:
        raise Refusal("Job name is too long", 2)
    if not NAME.fullmatch(text):
        raise IllegalValueError("N")
    return text


def array(text: str) -> tuple[list[int], int]:
    """Return the indices of -J, `0-3`, `1-4:2` or `0-3%2`, and how many run at a time (0: all).

    Raises IllegalValueError: single numbers and `0-0` are refused (OpenPBS 23.06, seen).
    """
    found = ARRAY.fullmatch(text)
    if not found or int(found[1]) >= int(found[2]) or found[3] == "0":
        raise IllegalValueError("J")
    return list(range(int(found[1]), int(found[2]) + 1, int(found[3] or 1))), int(found[4] or 0)


def additional(text: str) -> dict[str, str]:
    """Return the pairs of -W; a comma without a name after it belongs to the value before it."""
    pairs: dict[str, str] = {}
    last = ""
    for item in text.split(","):
        key, equals, value = item.partition("=")
        if equals:
            last, pairs[key.strip()] = key.strip(), value
        elif last:
            pairs[last] += f",{item}"
        else:
            raise IllegalValueError("W")
    return pairs


def dependencies(text: str, server: str) -> list[list[str]]:
    """Return `afterok:ID:ID,afterany:ID` as lists of type and whole ids."""
    found = []
    for item in text.split(","):
        match = DEPENDENCY.fullmatch(item)
        if not match:
            raise IllegalValueError("W")
        ids = match[2].split(":")[1:]
        found.append([match[1], *(job_id if "." in job_id else f"{job_id}.{server}" for job_id in ids)])
    return found


def variables(text: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of -v.

    Quotes and backslashes protect commas and are eaten, so JSON does not survive; a name without a value is looked up
    in qsub's own environment, and must be there (OpenPBS 23.06, seen).

    Raises Refusal: a variable without a value is not set.
    """
    found = {}
    for item in _split(text):
        name, equals, value = item.partition("=")
        if not equals and name not in environment:
            raise Refusal("cannot send environment with the job", 3)
        found[name] = value if equals else environment[name]
    return found


def _split(text: str) -> list[str]:
    items, quote = [""], ""
    letters = iter(text)
    for letter in letters:
        if letter == "\\" and quote != "'":
            items[-1] += next(letters, "")
        elif quote and letter == quote:
            quote = ""
        elif not quote and letter in "'\"":
            quote = letter
        elif letter == "," and not quote:
            items.append("")
        else:
            items[-1] += letter
    return [item for item in items if item]
