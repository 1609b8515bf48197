"""What is said of a line of a script, by a check's name."""

from __future__ import annotations

from hpclaunch.job.diagnostic import Found

Remark = tuple[str, Found]


def remark(check: str, line: int, message: str, *, refuses: bool | None = None) -> Remark:
    """Return what `check` found in a line."""
    return check, Found(message, warns=refuses is False, at=line)
