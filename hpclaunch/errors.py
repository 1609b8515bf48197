"""What can go wrong for a reason that a person can mend, and how it is said. All else is a bug, with its traceback."""

from __future__ import annotations

from collections.abc import Iterable


class HpclaunchError(Exception):
    """An expected error: its text is the whole message, its exit code the command's."""

    exit_code = 1

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))


class ProfileError(HpclaunchError):
    """A YAML file of a person's (site profile or config) says something that it may not say."""


class RequestError(HpclaunchError):
    """The site would refuse the request, or silently mishandle it."""


class TemplateError(HpclaunchError):
    """A template is missing, or does not render."""


class SchedulerError(HpclaunchError):
    """The scheduler refused, or is out of reach; its own words are in the message."""

    exit_code = 3


NOT_SHIPPED = "not shipped with hpclaunch:"  # profiles and templates that may be a cloned repository's


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean X?)` for the nearest known word, the whole list if none is near."""
    from difflib import get_close_matches

    known = sorted(known)
    near = get_close_matches(word, known, n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else f" (known: {', '.join(known) or 'none'})"


def printable(text: str, kept: str = "\n\t\xa0\u2009\u202f") -> str:
    """Return `text` with control characters, but for those `kept`, spelled as Python does."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in kept else repr(c)[1:-1] for c in text)


def counted(number: int, word: str) -> str:
    """Return a number with its word, which has an s but for 1."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
