"""Walltimes: what people type, seconds, and the HH:MM:SS that every scheduler reads alike."""

from __future__ import annotations

import re

_CLOCK = r"(?a)(?:(?P<days>\d{1,5})-)?(?P<hours>\d{1,4}):(?P<minutes>[0-5]\d):(?P<seconds>[0-5]\d)"
_UNITS = r"(?a)(?:(?P<days>\d{1,5})d)?(?:(?P<hours>\d{1,6})h)?(?:(?P<minutes>\d{1,8})m)?(?:(?P<seconds>\d{1,9})s)?"
_SECONDS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}


def parse(text: str) -> int:
    """Return the seconds that `text` stands for: `HH:MM:SS`, `D-HH:MM:SS`, `2h`, `1h30m`, `90m`.

    Raises ValueError for anything else. `48:00` is refused too: minutes to PBS and Slurm, hours to who typed it.
    """
    if re.fullmatch(r"\d{1,4}:[0-5]\d", text, re.ASCII):
        first, second = map(int, text.split(":"))
        use = f"write {clock(3600 * first + 60 * second)} or {clock(60 * first + second)}"
        raise ValueError(f"{text!r} is no walltime, it could be hours or minutes: {use}")
    match = re.fullmatch(_CLOCK, text) or re.fullmatch(_UNITS, text)
    seconds = sum(_SECONDS[unit] * int(n) for unit, n in match.groupdict(default="0").items()) if match else 0
    if not seconds:
        raise ValueError(f"{text!r} is no walltime: write HH:MM:SS (48:00:00), D-HH:MM:SS, or 2h, 90m, 1h30m")
    return seconds


def clock_seconds(text: str) -> int:
    """Return the seconds of an `HH:MM:SS` that a profile's model has checked already."""
    hours, minutes, seconds = map(int, text.split(":"))
    return hours * 3600 + minutes * 60 + seconds


def clock(seconds: int) -> str:
    """Return `seconds` as HH:MM:SS, hours beyond 24 kept."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
