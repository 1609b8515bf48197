"""Where each line of a job script comes from: the template's line, and the basis of each value in it."""

import difflib
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial, reduce
from operator import getitem
from typing import Any, cast

from jinja2 import nodes
from msgspec import Struct

from hpclaunch.errors import TemplateError
from hpclaunch.job.plan import Plan
from hpclaunch.job.render import Sandbox, fill
from hpclaunch.job.request import quote
from hpclaunch.paths import shown
from hpclaunch.profile.model import OWN
from hpclaunch.profile.search import Profile
from hpclaunch.profile.yamlfile import Document, Key, place_of

_LONGEST = 100  # characters of a value; the script has all of it
Names = tuple[str, ...]  # in a template, as `plan.site.umask`
_MARK = re.compile("\x01([0-9]{1,9})\x02")


class Origin(Struct, frozen=True, kw_only=True):
    """One reason for a line.

    `kind` is template, profile, option, environment, config or computed; `where` is FILE:LINE or the name of the option
    or variable; `key` is the key in that file, the request's or the plan's; `formula` is how a value was computed.
    """

    kind: str
    where: str | None = None
    key: str | None = None
    value: Any = None
    formula: str | None = None

    def __str__(self) -> str:
        """Return the origin in a few words."""
        value = _words(self.value)
        if self.formula:
            return f"{self.key}: {self.formula}"
        words = {"option": f"{self.where} {value} (command line)", "environment": f"{self.where}={value} (environment)"}
        return words.get(self.kind, f"{self.key}: {value} ({self.where})")


class Source(Struct, frozen=True):
    """How an option came in: the kind and place of its origin, and the config file if that is where."""

    kind: str
    where: str
    config: Document | None = None


class Line(Struct, frozen=True):
    """A line of the script, and its origins: the templates' lines that printed it, then the reasons for its values."""

    text: str
    origins: list[Origin]


class _Piece(Struct, frozen=True):
    """A piece of printed text: its place in a template, and what the expression and the condition around it name."""

    where: str
    names: Names = ()
    condition: Names = ()


class _Tracer(Sandbox):
    """An environment whose templates put a mark before each piece that they print.

    A mark stands before a visible character, so that filters which look at blanks (indent, trim) still work.
    """

    def __init__(self, pieces: list[_Piece], assigned: dict[str, Names], **options: Any) -> None:
        super().__init__(**options)
        self.pieces, self.assigned = pieces, assigned
        self.filters["mark"] = _mark

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parse a template and put marks into it; jinja2's own hook."""
        tree = super()._parse(source, name, filename)
        self._walk(tree, shown(filename or str(name)))
        return tree

    def _walk(self, node: nodes.Node, file: str, condition: Names = ()) -> None:
        if isinstance(node, nodes.Output):
            node.nodes = [marked for child in node.nodes for marked in self._marked(child, file, condition)]
        elif not isinstance(node, nodes.AssignBlock):  # its text is read by the template itself
            if isinstance(node, nodes.If):
                condition = self._names(node.test)
            elif isinstance(node, nodes.For | nodes.Assign):
                value = node.iter if isinstance(node, nodes.For) else node.node
                self.assigned |= dict.fromkeys(_names(node.target), self._names(value))
            elif isinstance(node, nodes.Import):
                self.assigned[node.target] = self._names(node.template)
            for child in node.iter_child_nodes():
                self._walk(child, file, condition)

    def _marked(self, child: nodes.Expr, file: str, condition: Names) -> Iterator[nodes.Expr]:
        """Yield what prints the same as `child`, with marks."""
        if isinstance(child, nodes.TemplateData):
            marked = []
            for line, text in enumerate(child.data.split("\n"), child.lineno):
                marked.append(_mark(text, len(self.pieces)))
                self.pieces.append(_Piece(f"{file}:{line}", (), condition))
            yield nodes.TemplateData("\n".join(marked), lineno=child.lineno)
        else:
            number = nodes.Const(len(self.pieces))
            self.pieces.append(_Piece(f"{file}:{child.lineno}", self._names(child), condition))
            yield nodes.Filter(child, "mark", [number], [], None, None, lineno=child.lineno)

    def _names(self, node: nodes.Node) -> Names:
        return resolved(_names(node), self.assigned)


def _mark(value: object, number: int) -> str:
    text = str(value)
    blank = len(text) - len(text.lstrip())
    return f"{text[:blank]}\x01{number}\x02{text[blank:]}" if text.strip() else text


def _names(node: nodes.Node) -> Names:
    """Return the longest names in an expression, as `plan.site.umask`."""
    names, above = [], node
    while isinstance(above, nodes.Getattr):
        names.append(above.attr)
        above = above.node
    if isinstance(above, nodes.Name):
        return (".".join([above.name, *reversed(names)]),)
    return tuple(name for child in node.iter_child_nodes() for name in _names(child))


def resolved(names: Names, assigned: dict[str, Names], passed: Names = ()) -> Names:
    """Return the names with those that templates set replaced by what they are made from."""
    found: list[str] = []
    for name in names:
        root = name.partition(".")[0]
        known = root in assigned and root not in passed
        found += resolved(assigned[root], assigned, (*passed, root)) if known else [name]
    return tuple(dict.fromkeys(found))


def explain(plan: Plan, profile: Profile, script: str, sources: Mapping[str, Source]) -> list[Line]:
    """Return the lines of the plan's script with their origins; `sources` says how each given option came in."""
    pieces: list[_Piece] = []
    assigned: dict[str, Names] = {}
    marked: list[str] = []
    with suppress(TemplateError):  # a template that reads its own output stumbles over the marks in it
        marked = fill(plan, kind=partial(_Tracer, pieces, assigned))[0].split("\n")
    lines = script.removesuffix("\n").split("\n")
    matcher = difflib.SequenceMatcher(None, lines, [_MARK.sub("", line) for line in marked], autojunk=False)
    found = {a + i: marked[b + i] for a, b, size in matcher.get_matching_blocks() for i in range(size)}
    reasons = _Reasons(plan, profile.layers, sources)
    made = []
    for number, text in enumerate(lines):
        marks = iter(_MARK.split(found.get(number, ""))[1:])
        printed = [(pieces[int(mark)], next(marks)) for mark in marks]
        printed.sort(key=lambda one: not one[1].strip())  # the call of a macro comes after what the macro prints
        places = [one.where for one, _ in printed]
        values = [(name, said) for one, said in printed for name in resolved(one.names, assigned)]
        around = [(name, "") for one, _ in printed for name in resolved(one.condition, assigned)]
        # What the line's values were made from, else what its condition was, else what chose the template.
        for asked in values, around, [] if number else [("plan.template", "")]:
            if origins := [origin for name, said in asked for origin in reasons.of(name, said)]:
                break
        origins = [*(Origin(kind="template", where=place) for place in places), *origins]
        made.append(Line(text, [one for i, one in enumerate(origins) if one not in origins[:i]]))
    return made


class _Reasons(Struct):
    """Turns the names in a template into the origins of their values."""

    plan: Plan
    layers: list[Document]
    sources: Mapping[str, Source]

    def of(self, name: str, text: str) -> Iterator[Origin]:
        """Yield the origins of what a template names: `plan.VALUE`, or `plan.site.KEY`, which printed `text`."""
        root, *names = name.split(".")
        if root != "plan" or not names:
            return
        if names[0] in ("request", "site", "partition"):
            yield from self._key(".".join(names[:2]), text) if names[1:] else ()
            return
        named = [f"storage:{one}" for one in self.plan.storage if one in text]
        for item in named if names[0] in ("storage", "storage_directive") else names[:1]:
            basis, value = self.plan.basis_of(item), getattr(self.plan, names[0], None)
            if basis.words:
                number = value if isinstance(value, int | float) else None
                yield Origin(kind="computed", key=names[0], value=number, formula=basis.words)
            for key in basis.keys:
                yield from self.of(key, text) if key.startswith("plan.") else self._key(key, text)

    def _key(self, key: str, text: str) -> Iterator[Origin]:
        """Yield where a key of the request or the profile was given: the items of it that stand in `text`, or all."""
        path, _, item = key.partition(":")
        place, name, *number = path.split(".")
        if name in OWN and getattr(self.plan.partition, name) is not None:
            place = "partition"
        value: Any = getattr(getattr(self.plan, place), name, None)
        value, text = list(value) if isinstance(value, tuple) else value, item or text
        if value is False or value in (None, [], {}) or callable(value):
            return
        elif not text or not isinstance(value, list | dict) or name == "command":
            yield self._origin(place, (name, *map(int, number)), value)
        else:
            pairs = [(i, i) for i in value] if isinstance(value, dict) else list(enumerate(map(str, value)))
            found = [i for i, one in pairs if text in (one, quote(one))]
            if not found and isinstance(value, list):
                found = [i for i, one in pairs if one in text or text in one]
            for i in found:
                yield self._origin(place, (name, i), value[i])

    def _origin(self, place: str, key: Key, value: Any) -> Origin:
        """Return where a key was given: in the first file that has it, or by an option or a variable."""
        name, kind, files = str(key[0]), "profile", self.layers
        if place == "request":
            source = self.sources.get(name)
            if source and not source.config:
                value = {key[-1]: value} if isinstance(key[-1], str) and key[1:] else value
                return Origin(kind=source.kind, where=source.where, key=name, value=value)
            kind, files = "config", [source.config] if source and source.config else []
        path = ("partitions", self.plan.partition_name, *key) if place == "partition" else key
        for file in files:
            with suppress(LookupError, TypeError):
                said: Any = reduce(getitem, path, cast("Any", file.data))
                return Origin(kind=kind, where=place_of([file], path), key=".".join(map(str, path)), value=said)
        return Origin(kind="computed", key=name, value=value, formula=f"{value}, hpclaunch's choice")


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={_words(item)}" for name, item in value.items())
    if isinstance(value, list):
        return " ".join(map(_words, value))
    text = str(value).lower() if isinstance(value, bool) or value is None else str(value)
    text = text if text.isprintable() else quote(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
