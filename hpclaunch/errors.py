"""Expected errors, which users can fix, and the words of their messages; any other exception is a bug."""

from __future__ import annotations

from collections.abc import Iterable


class HpclaunchError(Exception):
    """An expected error: its text is the whole message, its exit code the command's."""

    exit_code = 1

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))


class ProfileError(HpclaunchError):
    """A site profile or a config file has a mistake."""


class RequestError(HpclaunchError):
    """The site would refuse the request, or silently mishandle it."""


class TemplateError(HpclaunchError):
    """A template is missing, or does not render."""


class SchedulerError(HpclaunchError):
    """The scheduler refused, or is out of reach; the message has its own words."""

    exit_code = 3


NOT_SHIPPED = "not shipped with hpclaunch:"  # profiles and templates that may be a cloned repository's


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean X?)` for the nearest known word, the whole list if none is near."""
    known = sorted(known)
    return nearest(word, known) or f" (known: {', '.join(known) or 'none'})"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean X?)` for the nearest known word, "" if none is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def printable(text: str, kept: str = "\n\t\xa0\u2009\u202f") -> str:
    """Return `text` with control characters, but for those `kept`, spelled as Python does."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in kept else repr(c)[1:-1] for c in text)


def counted(number: int, word: str) -> str:
    """Return a number with its word, which has an s but for 1."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
