"""What is said of a line of a script, by a check's name."""

from __future__ import annotations

from hpclaunch.job.diagnostic import Found
from hpclaunch.profile.yamlfile import Key

Remark = tuple[str, Found]


def remark(
    check: str,
    line: int,
    message: str,
    *,
    refuses: bool | None = None,
    mended: bool = False,  # noqa: ARG001 - for commands, which no fix changes
    key: Key | None = None,
) -> Remark:
    """Return what `check` found in a line."""
    return check, Found(message, key, warns=refuses is False, at=line)
