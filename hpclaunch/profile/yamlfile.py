"""YAML files into typed structs; every mistake is reported at once, with file, line and key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import yaml

from hpclaunch import paths
from hpclaunch.errors import ProfileError, did_you_mean

T = TypeVar("T")
Key = tuple[str | int, ...]

_SEXAGESIMAL = r"\d+(:[0-5]?\d)+"
# Limits to the memory and time that a file may take; the largest shipped profile has 14 KB, 1,500 values and 5 levels.
_MOST_BYTES, _MOST_VALUES, _MOST_LEVELS, _MOST_CHARACTERS, _MOST_MISTAKES = 1_000_000, 20_000, 50, 10_000, 50


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader, libyaml's if it is built in; a repeated key is a mistake."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node.tag == "tag:yaml.org,2002:str" and isinstance(node, yaml.ScalarNode):
            return node.value  # most are text: a short cut of half a millisecond
        return super().construct_object(node, deep)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]  # before << is filled in
        if len(names) != len(set(names)):
            twice = next(key for i, (key, _) in enumerate(node.value) if key.value in names[:i])
            raise yaml.constructor.ConstructorError(None, None, f"{twice.value}: given twice", twice.start_mark)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def _check_size(text: str) -> None:
    """Raise MarkedYAMLError if the text is nested too deeply, or makes too many values with its aliases and merges."""
    sizes: dict[str | None, int] = {}
    open_ones: list[tuple[str | None, int]] = [(None, 0)]  # anchor and size of what has begun
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            open_ones.append((event.anchor, 1))
        elif isinstance(event, (yaml.CollectionEndEvent, yaml.NodeEvent)):
            anchor, size = (event.anchor, 1) if isinstance(event, yaml.NodeEvent) else open_ones.pop()
            if isinstance(event, yaml.AliasEvent):
                size = sizes.get(anchor, _MOST_VALUES + 1)  # inside of its own anchor it would have no end
            else:
                sizes[anchor] = size
            open_ones[-1] = (open_ones[-1][0], open_ones[-1][1] + size)
        wrong = ""
        if len(open_ones) > _MOST_LEVELS + 1:
            wrong = f"nested in more than {_MOST_LEVELS} levels"
        elif open_ones[-1][1] > _MOST_VALUES:
            wrong = f"more than {_MOST_VALUES:,} values, aliases counted"
        elif isinstance(event, yaml.ScalarEvent) and len(event.value) > _MOST_CHARACTERS:
            wrong = f"a value of more than {_MOST_CHARACTERS:,} characters"
        if wrong:
            mark: Any = event.start_mark
            raise yaml.MarkedYAMLError(None, None, wrong, mark)


class Document(msgspec.Struct, frozen=True):
    """One YAML file whose top level is a mapping, with the line of each key."""

    path: Path
    root: Any  # the YAML node
    data: dict[str, Any]
    shown: str  # as messages name it
    is_shipped: bool

    @classmethod
    def read(cls, path: Path) -> Document:
        """Read `path`. Raises ProfileError if it cannot be read or is not a YAML mapping."""
        try:
            if path.exists() and not (path.is_file() or path.is_dir()):
                raise ProfileError(f"{path}: no regular file")
            with path.open("rb") as file:
                content = file.read(_MOST_BYTES + 1)
            if len(content) > _MOST_BYTES:
                raise ProfileError(f"{path}: larger than {_MOST_BYTES:,} bytes: that is no profile and no config file")
            text = content.decode()
        except OSError as error:
            raise ProfileError(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise ProfileError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from None
        return cls.parse(path, text)

    @classmethod
    def parse(cls, path: Path, text: str) -> Document:
        """Parse `text`, the content of `path`. Raises ProfileError if it is not a YAML mapping."""
        try:
            if not (shipped := paths.is_shipped(path)):  # a shipped one takes 2 ms of each command
                _check_size(text)
            loader = _Loader(text)
            root = loader.get_single_node()
            data = loader.construct_document(root) if root else {}
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f"{path}:{mark.line + 1}" if mark else str(path)
            raise ProfileError(f"{where}: {error.problem or error.context}") from None
        except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:  # `!!bool x`, 2026-99-99
            raise ProfileError(f"{path}: no valid YAML: {str(error).splitlines()[0]}") from None
        data = {} if data is None else data
        if not isinstance(data, dict):
            raise ProfileError(f"{path}:1: expected keys and values, got a {type(data).__name__}")
        return cls(path, root, data, paths.shown(path), shipped)

    def find(self, key: Key) -> tuple[yaml.Node, int] | None:
        """Return the node of the value at `key` and the line of its name (from 1), or None if there is none."""
        node, line = self.root, 1
        for part in key:
            if isinstance(node, yaml.MappingNode):
                pairs = {name.value: (value, name.start_mark.line + 1) for name, value in node.value}
            elif isinstance(node, yaml.SequenceNode):
                pairs = {str(i): (item, item.start_mark.line + 1) for i, item in enumerate(node.value)}
            else:
                return None
            if str(part) not in pairs:
                return None
            node, line = pairs[str(part)]
        return node, line


def merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return `base` updated with `change`: mappings key by key, other values replaced, keys with null removed."""
    merged = dict(base)
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def merged(layers: Sequence[Document]) -> dict[str, Any]:
    """Return the layers merged; earlier ones override later ones."""
    return reduce(merge, (layer.data for layer in reversed(layers)), {})


def convert(
    layers: list[Document], model: type[T], rules: Callable[[T], Iterable[tuple[Key, str]]] = lambda _: ()
) -> T:
    """Return the struct that the merged layers make; `rules` yields what is wrong with it if each value is fine.

    Raises ProfileError with a line for each mistake: `FILE:LINE: key: what is wrong (what would be right)`.
    """
    data = merged(layers)
    try:
        made = msgspec.convert(data, model)
    except msgspec.ValidationError:
        found = list(islice(mistakes(data, model), _MOST_MISTAKES))
    else:
        if not (found := list(rules(made))):
            return made
    lines = sorted((locate(layers, key, message) for key, message in found), key=lambda line: line[:2])
    raise ProfileError(*(text for *_, text in lines))


def locate(layers: Sequence[Document], key: Key, message: str) -> tuple[int, int, str]:
    """Return layer, line and `FILE:LINE: key: message`; for a key that no file has, the nearest above it."""
    number, line, node, own = _nearest(layers, key)
    raw = getattr(node, "value", None)
    if own == key and isinstance(raw, str) and "`int`" in message and re.fullmatch(_SEXAGESIMAL, raw):
        message = f'YAML reads {raw} as a number: quote it, "{raw}"'
    return number, line, f"{layers[number].path}:{line}: {'.'.join(map(str, key))}: {message}"


def place_of(layers: Sequence[Document], key: Key) -> str:
    """Return FILE:LINE of `key` or the nearest key above it in the first layer that has it, or ""."""
    number, line, _, own = _nearest(layers, key)
    return f"{layers[number].shown}:{line}" if own else ""


def _nearest(layers: Sequence[Document], key: Key) -> tuple[int, int, yaml.Node | None, Key]:
    """Return layer, line and node of `key` or of the nearest key above it that a layer has, and that key."""
    for length in range(len(key), 0, -1):
        for number, layer in enumerate(layers):
            if found := layer.find(key[:length]):
                return number, found[1], found[0], key[:length]
    return 0, 1, None, ()


def mistakes(value: Any, model: Any, key: Key = ()) -> Iterator[tuple[Key, str]]:
    """Yield every mistake in `value` against the type `model`; msgspec itself stops at the first."""
    shape = get_args(model)[0] if get_origin(model) is Annotated else model
    inner = get_args(shape)
    if type(None) in inner:
        if value is not None:
            yield from mistakes(value, next(arg for arg in inner if arg is not type(None)), key)
    elif isinstance(shape, type) and issubclass(shape, msgspec.Struct) and isinstance(value, dict):
        hints = get_type_hints(shape, include_extras=True)
        for name, item in value.items():
            if name in hints:
                yield from mistakes(item, hints[name], (*key, name))
            else:
                yield (*key, name), f"unknown key{did_you_mean(str(name), hints)}"
        for field in msgspec.structs.fields(shape):
            if field.required and field.name not in value:
                yield (*key, field.name), "missing"
    elif get_origin(shape) is dict and isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaf(name, inner[0], (*key, name))
            yield from mistakes(item, inner[1], (*key, name))
    elif get_origin(shape) in (list, tuple) and isinstance(value, list | tuple) and value:
        for i, item in enumerate(value):
            yield from mistakes(item, inner[0], (*key, i))
    else:
        yield from _leaf(value, model, key)


def _leaf(value: Any, model: Any, key: Key) -> Iterator[tuple[Key, str]]:
    try:
        msgspec.convert(value, model)
    except msgspec.ValidationError as error:
        message = str(error).replace("`object`", "keys and values")
        rules = [meta.extra["rule"] for meta in get_args(model)[1:] if isinstance(meta, msgspec.Meta) and meta.extra]
        if rules and "regex" in message:
            message = f"expected {rules[0]}"
        yield key, f"{message[0].lower()}{message[1:]} (it says {_shown(value)})"


def _shown(value: Any) -> str:
    try:
        text = str(value)
    except ValueError:  # Python prints no number of more than 4300 digits
        text = "a number of thousands of digits"
    return repr(text if len(text) <= 60 else text[:57] + "...")
