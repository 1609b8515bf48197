"""What the words of schedulers, exit codes and error messages mean: the site's messages, then the shipped ones."""

import re
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from hpclaunch import paths
from hpclaunch.profile.model import Messages
from hpclaunch.profile.rules import messages_mistakes
from hpclaunch.profile.yamlfile import Document, convert

T = TypeVar("T")
_MOST = 400  # characters of a line that patterns are searched in: a site's may be slow


def combined(scheduler: str, site: Messages | None = None) -> Messages:
    """Return the messages of a site, followed by those of its scheduler and the common ones; of one key the first."""
    folder = paths.shipped("site_profiles") / "messages"
    files = [path for name in (scheduler, "common") if (path := folder / f"{name}.yaml").is_file()]
    layers = [site or Messages(), *(convert([Document.read(path)], Messages, messages_mistakes) for path in files)]
    tables: dict[str, Any] = {name: {} for name in Messages.__struct_fields__}
    for layer in layers:
        for name, table in tables.items():
            table |= {key: value for key, value in getattr(layer, name).items() if key not in table}
    return Messages(**tables)


def waits(messages: Messages, reason: str, job_id: str) -> str:
    """Explain why a job waits."""
    for pattern, text in messages.waits.items():
        if fnmatchcase(reason, pattern):
            return text.replace("JOB", job_id)
    return f"The scheduler's reason: {reason}."


def exit_code(messages: Messages, code: int) -> str:
    """Explain an exit code: 0 to 255 as in a shell, a scheduler's own below 0 or 256 + signal."""
    if code in messages.exit_codes:
        return messages.exit_codes[code]
    if code < 0:
        return "the scheduler ended it; the code is the scheduler's, not your program's"
    if code > 128:
        with suppress(ValueError):
            name = signal.Signals(code - (256 if code > 256 else 128)).name
            return f"{name}: {messages.signals.get(name, 'ended by that signal')}"
    return "your program's own code"


def hint(messages: Messages, lines: Iterable[str]) -> str:
    """Return what may help, by the last of `lines` that says something known, or "" if none does."""
    found = (first(messages.hints, line[:_MOST]) for line in reversed([*lines]))
    return next(filter(None, found), "")


def first(table: Mapping[str, T], text: str) -> T | None:
    """Return the value of the first regular expression that is found in `text`."""
    return next((value for pattern, value in table.items() if re.search(pattern, text)), None)
