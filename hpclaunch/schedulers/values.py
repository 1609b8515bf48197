"""Values of directives as the schedulers read them."""

from __future__ import annotations

import math
import re

_PBS_TIME = r"(?a)(?:(?:(\d{1,6}):)?(\d{1,6}):)?(\d{1,9})(?:\.\d+)?"
_DAYS = r"(?a)(\d{1,5})-(\d{1,6})(?::(\d{1,6})(?::(\d{1,6}))?)?"
_CLOCK = r"(?a)(\d{1,7})(?::(\d{1,6})(?::(\d{1,6}))?)?"
_PBS_SIZE = r"(?ia)(\d{1,18})([kmgtp]?)([bw]?)"
_SLURM_SIZE = r"(?ia)(\d{1,15})(?:\.\d+)?([kmgt]?)b?"
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def pbs_seconds(text: str) -> int:
    """Return the seconds of `[[HH:]MM:]SS`: a bare number is seconds, `48:00` is 48 minutes (OpenPBS 23.06, seen).

    Raises ValueError.
    """
    if not (found := re.fullmatch(_PBS_TIME, text)):
        raise ValueError(f"{text!r} is no walltime; use HH:MM:SS")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def slurm_seconds(text: str) -> int:
    """Return the seconds of `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M`, `D-H:M:S`. https://slurm.schedmd.com/sbatch.html.

    Raises ValueError.
    """
    if found := re.fullmatch(_DAYS, text):
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return days * 86400 + hours * 3600 + minutes * 60 + seconds
    if not (found := re.fullmatch(_CLOCK, text)):
        raise ValueError(f"{text!r} is no walltime; use HH:MM:SS or D-HH:MM:SS")
    parts = [int(part) for part in found.groups() if part is not None]
    hours, minutes, seconds = parts if len(parts) == 3 else [0, *parts, 0][:3]
    return hours * 3600 + minutes * 60 + seconds


def pbs_gb(text: str) -> float:
    """Return the GB of `190GB`, `760g`, `4000mb`; a bare number is bytes. Raises ValueError for 1.5GB and 4GiB too."""
    if not (found := re.fullmatch(_PBS_SIZE, text)):
        raise ValueError(f"{text!r} is no size: write a whole number and a unit, like 190GB")
    word = 8 if found[3].lower() == "w" else 1
    return int(found[1]) * word * 1024.0 ** (_POWER[found[2].lower()] - 3)


def slurm_gb(text: str) -> float:
    """Return the GB of `64G`, `4000M`; a bare number is MB. Raises ValueError."""
    if not (found := re.fullmatch(_SLURM_SIZE, text)):
        raise ValueError(f"{text!r} is no size: write a whole number and a unit, like 64G")
    return int(found[1]) * 1024.0 ** (_POWER[found[2].lower() or "m"] - 3)


def whole_gb(size: float) -> int:
    """Return a size in whole GB, rounded up."""
    return max(math.ceil(size - 1e-9), 1)


def whole(text: str) -> int | None:
    """Return the number that a text is, or None if it is none."""
    return int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else None


def count(text: str, least: int = 1) -> int:
    """Return a whole number. Raises ValueError."""
    if (number := whole(text)) is None or number < least:
        raise ValueError(f"{text!r} is no number of at least {least}")
    return number


def array_size(text: str) -> int:
    """Count the jobs of 0-15:4%2 or 1,3,5-7."""
    parts = re.findall(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", text.partition("%")[0])
    return sum(len(range(int(first), int(last or first) + 1, int(step or 1) or 1)) for first, last, step in parts)
