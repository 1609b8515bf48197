"""Where a value was said, an option, the environment, the config file, a key of a profile, and how that is named."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from hpclaunch.job.request import quote
from hpclaunch.paths import shown
from hpclaunch.profile.yamlfile import Document, Key, place_of

_LONG = 100  # words of a value; the script has it in full


class Origin(Struct, frozen=True, kw_only=True):
    """One reason for a line.

    `kind` is profile, option, environment, config, template or computed; `where` is FILE:LINE, or the name of the
    option or the variable; `key` is the key in that file, the request's, the plan's, or a template's block; `value` is
    what was said there; `formula` is how it was computed, or under which condition a template prints, in words.
    """

    kind: str
    where: str | None = None
    key: str | None = None
    value: Any = None
    formula: str | None = None

    def __str__(self) -> str:
        """Return the origin in a few words."""
        if self.formula:
            field = f"{self.key}: " if self.key and self.key.isidentifier() else ""
            return field + self.formula + (f" ({self.where})" if self.where else "")
        value = _words(self.value)
        if self.kind == "option":
            return f"{self.where} {value} (command line)"
        if self.kind == "environment":
            return f"{self.where}={value} (environment)"
        return f"{self.key}: {value} ({self.where})"


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={_words(item)}" for name, item in value.items())
    if isinstance(value, list):
        return " ".join(map(_words, value))
    text = str(value).lower() if isinstance(value, bool) or value is None else str(value)
    text = text if text.isprintable() else quote(text)
    return text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."


class Source(Struct, frozen=True):
    """How a part of the request came in: the kind of its origin, a name for it, and for a config file that file."""

    kind: str
    name: str
    document: Document | None = None

    def origin(self, key: str, value: Any, item: str | int | None = None) -> Origin:
        """Return the origin of the request's `key`, or of one item of it."""
        if self.document is None:
            return Origin(kind=self.kind, where=self.name, key=key, value=value)
        place = (key,) if item is None else (key, item)
        return Origin(kind=self.kind, where=_place(self.document, place), key=_dotted(place), value=value)


def profile_origin(layers: list[Document], key: Key) -> Origin | None:
    """Return where the first of the layers that has it says `key`; None where none does."""
    for layer in layers:
        value: Any = layer.data
        try:
            for part in key:
                value = value[part]
        except (LookupError, TypeError):
            continue
        return Origin(kind="profile", where=_place(layer, key), key=_dotted(key), value=value)
    return None


def _place(document: Document, key: Key) -> str:
    """Return FILE:LINE of a key; the file alone where the key came by YAML's << and has no line."""
    return place_of([document], key) or shown(document.path)


def _dotted(key: Key) -> str:
    return ".".join(map(str, key))
