"""What the keys of a profile mean, for editors and the docs: the comments in its model, and its JSON Schema."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from hpclaunch.profile.model import Site

_KEY = r"^(?:    # (.*)\n)?    (\w+): .*?(?:  # (.*))?$"  # with its comment above it or behind it


def meanings(part: type[Struct]) -> dict[str, str]:
    """Return what the keys of a part of a profile mean, those that have a comment."""
    found = re.findall(_KEY, inspect.getsource(part), re.MULTILINE)
    return {key: above or behind for above, key, behind in found if above or behind}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a profile."""
    made = msgspec.json.schema(Site)
    for part in set(parts(Site)):
        definition = made["$defs"][part.__name__]
        for key, text in meanings(part).items():
            definition["properties"][key]["description"] = text
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def parts(kind: Any) -> Iterator[type[Struct]]:
    """Yield the parts of a profile that a type names, and those inside them, some several times."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        yield kind
        for one in msgspec.structs.fields(kind):
            yield from parts(one.type)
    for inner in getattr(kind, "__args__", ()):
        yield from parts(inner)
