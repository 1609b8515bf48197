"""Where each line of a job script comes from: the template's line, and the basis of each value in it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any, cast

from jinja2 import nodes
from msgspec import Struct, structs

from hpclaunch.errors import TemplateError
from hpclaunch.job.plan import Plan
from hpclaunch.job.render import Sandbox, fill
from hpclaunch.job.request import quote
from hpclaunch.paths import shown
from hpclaunch.profile.search import Profile
from hpclaunch.profile.yamlfile import Document, Key, place_of

_LONGEST = 100  # characters of a value; the script has all of it
_MARK = re.compile("\x01([0-9]{1,9})\x02")
_IF = re.compile(r"\{%-?\s*(?:el)?if\s+(.+?)\s*-?%\}")


class Origin(Struct, frozen=True, kw_only=True):
    """One reason for a line.

    `kind` is template, profile, option, environment, config or computed; `where` is FILE:LINE or the name of the option
    or variable; `key` is the key in that file, the request's, the plan's, or a template's block; `formula` is how a
    value was computed, or the condition under which a template prints.
    """

    kind: str
    where: str | None = None
    key: str | None = None
    value: Any = None
    formula: str | None = None

    def __str__(self) -> str:
        """Return the origin in a few words."""
        if self.formula:
            return f"{self.key}: {self.formula}" if self.kind == "computed" else f"{self.formula} ({self.where})"
        value = _words(self.value)
        words = {"option": f"{self.where} {value} (command line)", "environment": f"{self.where}={value} (environment)"}
        return words.get(self.kind, f"{self.key}: {value} ({self.where})")


class Source(Struct, frozen=True):
    """How an option came in: the kind and place of its origin, and the config file if that is where."""

    kind: str
    where: str
    config: Document | None = None


class Line(Struct, frozen=True):
    """A line of the script: the templates' lines that printed it, and the reasons for what they printed."""

    text: str
    templates: list[Origin]
    reasons: list[list[Origin]]

    @property
    def origins(self) -> list[Origin]:
        """Return all origins, each once."""
        return _once([*self.templates, *(origin for group in self.reasons for origin in group)])


class _Piece(Struct, frozen=True):
    """A piece of printed text: its place in a template, what it was made from, and the conditions around it.

    `names` are what the expression names, empty for the template's own text; `loops` are the loop variables around it.
    """

    file: str
    line: int = 1
    block: str | None = None
    names: tuple[str, ...] = ()
    conditions: tuple[tuple[str, int, str, tuple[str, ...]], ...] = ()
    loops: dict[str, tuple[str, ...]] = {}


class _Tracer(Sandbox):
    """An environment whose templates put a mark before each piece that they print.

    A mark stands before a visible character, so that filters which look at blanks (indent, trim) still work.
    """

    def __init__(self, pieces: list[_Piece], assigned: dict[str, tuple[str, ...]], **options: Any) -> None:
        super().__init__(**options)
        self.pieces, self.assigned = pieces, assigned
        self.filters["mark"] = _mark

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parse a template and put marks into it; jinja2's own hook."""
        tree = super()._parse(source, name, filename)
        self._walk(tree, _Piece(shown(Path(filename or str(name)))), source.split("\n"))
        return tree

    def _walk(self, node: nodes.Node, place: _Piece, source: list[str]) -> None:
        if isinstance(node, nodes.Output):
            node.nodes = [marked for child in node.nodes for marked in self._marked(child, place)]
        elif isinstance(node, nodes.If):
            names = _names(node.test, place)
            texts = [text for text in _IF.findall(source[node.test.lineno - 1]) if all(name in text for name in names)]
            text = texts[0] if texts else " and ".join(names)
            for body, words in ((node.body, f"if {text}"), (node.elif_, ""), (node.else_, f"if not ({text})")):
                held = (place.file, node.test.lineno, words, names)
                inner = structs.replace(place, conditions=(*place.conditions, *([held] if words else [])))
                for child in body:
                    self._walk(child, inner, source)
        elif not isinstance(node, nodes.AssignBlock):  # its text is read by the template itself
            if isinstance(node, nodes.Assign):
                self.assigned.update(dict.fromkeys(_names(node.target, place), _names(node.node, place)))
            elif isinstance(node, nodes.Import):
                self.assigned[node.target] = _names(node.template, place)
            elif isinstance(node, nodes.For):
                loops = dict.fromkeys(_names(node.target, place), _names(node.iter, place))
                place = structs.replace(place, loops=place.loops | loops)
            elif isinstance(node, nodes.Block):
                place = structs.replace(place, block=node.name)
            elif isinstance(node, nodes.Macro):
                place = _Piece(place.file, block=node.name)
            for child in node.iter_child_nodes():
                self._walk(child, place, source)

    def _marked(self, child: nodes.Expr, place: _Piece) -> Iterator[nodes.Expr]:
        """Yield what prints the same as `child`, with marks."""
        start = len(self.pieces)
        if isinstance(child, nodes.TemplateData):
            lines = child.data.split("\n")
            self.pieces += [structs.replace(place, line=child.lineno + number) for number in range(len(lines))]
            text = "\n".join(_mark(line, start + number) for number, line in enumerate(lines))
            yield nodes.TemplateData(text, lineno=child.lineno)
        else:
            self.pieces.append(structs.replace(place, line=child.lineno, names=_names(child, place)))
            yield nodes.Filter(child, "mark", [nodes.Const(start)], [], None, None, lineno=child.lineno)


def _mark(value: object, number: int) -> str:
    text = str(value)
    blank = len(text) - len(text.lstrip())
    return f"{text[:blank]}\x01{number}\x02{text[blank:]}" if text.strip() else text


def _names(node: nodes.Node, place: _Piece) -> tuple[str, ...]:
    """Return the longest names in an expression, as `plan.site.umask`; a loop variable is what is looped through."""
    names, above = [], node
    while isinstance(above, nodes.Getattr):
        names.append(above.attr)
        above = above.node
    if isinstance(above, nodes.Name):
        return place.loops.get(above.name) or (".".join([above.name, *reversed(names)]),)
    return tuple(dict.fromkeys(name for child in node.iter_child_nodes() for name in _names(child, place)))


def explain(plan: Plan, profile: Profile, script: str, sources: Mapping[str, Source]) -> list[Line]:
    """Return the lines of the plan's script with their reasons; `sources` says how each given option came in."""
    pieces: list[_Piece] = []
    assigned: dict[str, tuple[str, ...]] = {}
    try:
        marked = fill(plan, kind=partial(_Tracer, pieces, assigned))[0].split("\n")
    except TemplateError:  # a template that reads its own output stumbles over the marks in it
        marked = []
    lines = script.removesuffix("\n").split("\n")
    matcher = difflib.SequenceMatcher(None, lines, [_MARK.sub("", line) for line in marked], autojunk=False)
    found = {a + i: marked[b + i] for a, b, size in matcher.get_matching_blocks() for i in range(size)}
    reasons = _Reasons(plan, profile.layers, sources, assigned)
    made = []
    for number, text in enumerate(lines):
        marks = iter(_MARK.split(found.get(number, ""))[1:])
        printed = [(pieces[int(mark)], next(marks)) for mark in marks]
        printed.sort(key=lambda one: not one[1].strip())  # the call of a macro comes after what the macro prints
        templates = [Origin(kind="template", where=f"{one.file}:{one.line}", key=one.block) for one, _ in printed]
        if text.strip() and not templates:
            file = pieces[0].file if pieces else "?"
            templates = [Origin(kind="template", where=file, formula="made from what a template printed")]
        made.append(Line(text, _once(templates), reasons.of(printed, [] if number else ["plan.template"])))
    return made


class _Reasons(Struct):
    """Turns pieces of text into the reasons for them."""

    plan: Plan
    layers: list[Document]
    sources: Mapping[str, Source]
    assigned: dict[str, tuple[str, ...]]

    def of(self, printed: list[tuple[_Piece, str]], names: list[str]) -> list[list[Origin]]:
        """Return the reasons for a line: of its values, and of the conditions that say more than these."""
        named = [(name, text) for piece, text in printed for name in self._resolved(piece.names)]
        values = [group for name, text in named for group in self._groups(name, text)]
        values = values or [group for name, _ in named for group in self._groups(name, "")]
        values += [group for name in names for group in self._groups(name, "")]
        known = [f"{origin.key}." for group in values for origin in group]
        for file, line, text, among in dict.fromkeys(one for piece, _ in printed for one in piece.conditions):
            origins = [one for name in self._resolved(among) for group in self._groups(name, "") for one in group]
            if any(not any(key.startswith(f"{origin.key}.") for key in known) for origin in origins):
                values.append([Origin(kind="template", where=f"{file}:{line}", formula=text), *_once(origins)])
        return _once(group for group in values if group)

    def _resolved(self, names: Iterable[str], passed: tuple[str, ...] = ()) -> list[str]:
        """Return the values of the plan that a template's names stand for, as a basis names them."""
        found = []
        for name in names:
            root, *rest = name.split(".")
            if root == "plan" and rest and rest[0] in ("request", "site", "partition"):
                found += [".".join(rest[:2])] if rest[1:] else []
            elif root == "plan" and rest:
                found.append(f"plan.{rest[0]}")
            elif root in self.assigned and root not in passed:
                found += self._resolved(self.assigned[root], (*passed, root))
        return list(dict.fromkeys(found))

    def _groups(self, name: str, text: str) -> list[list[Origin]]:
        """Return the origins of a value of the plan, and after them those of the values that it was made from."""
        kind, _, field = name.partition(".")
        if kind != "plan":
            return [self._key(name, text)]
        groups, items = [], [field]
        if field == "storage":
            items = [f"storage:{one}" for one in self.plan.storage if one in text]
        for item in items:
            basis, value = self.plan.basis_of(item), getattr(self.plan, field, None)
            parts = [(key, self._groups(key, text)) for key in basis.keys]
            own = [origin for key, found in parts if not key.startswith("plan.") for group in found for origin in group]
            if basis.words:
                number = value if isinstance(value, int | float) else None
                own.insert(0, Origin(kind="computed", key=field, value=number, formula=basis.words))
            groups += [own, *(group for key, found in parts if key.startswith("plan.") for group in found)]
        return groups

    def _key(self, key: str, text: str) -> list[Origin]:
        """Return where a key of the request or the profile was given: the items of it that stand in `text`, or all."""
        path, _, item = key.partition(":")
        place, name, *number = path.split(".")
        value: Any = getattr(getattr(self.plan, place), name, None)
        if key == "request.site" and "site" not in self.sources:
            words = f"{self.plan.name}, the site that knows this host"
            return [Origin(kind="computed", key="site", formula=words), *self._key("site.hostnames", "")]
        if value is False or value in (None, [], {}) or callable(value):
            return []
        if not (text or item) or not isinstance(value, list | dict) or name == "command":
            return [self._origin(place, (name, *map(int, number)), value)]
        texts: dict[Any, str] = {i: i for i in value} if isinstance(value, dict) else dict(enumerate(map(str, value)))
        found = [i for i, one in texts.items() if one in (item, text) or quote(one) == text]
        if not (found or item or isinstance(value, dict)):
            found = [i for i, one in texts.items() if one in text or text in one]
        return [self._origin(place, (name, i), value[i]) for i in found]

    def _origin(self, place: str, key: Key, value: Any) -> Origin:
        """Return where a key was given: in the first file that has it, or by an option or a variable."""
        name, kind, files = str(key[0]), "profile", self.layers
        if place == "request":
            source = self.sources.get(name) or Source("option", f"--{name.replace('_', '-')}")
            if source.config is None:
                value = {key[-1]: value} if isinstance(key[-1], str) and key[1:] else value
                return Origin(kind=source.kind, where=source.where, key=name, value=value)
            kind, files = source.kind, [source.config]
        path = ("partitions", self.plan.partition_name, *key) if place == "partition" else key
        for file in files:
            with suppress(LookupError, TypeError):
                said: Any = reduce(getitem, path, cast("Any", file.data))
                where = place_of([file], path) or shown(file.path)  # what came by YAML's << has no line
                return Origin(kind=kind, where=where, key=".".join(map(str, path)), value=said)
        return Origin(kind="computed", key=name, value=value, formula=f"{value}, hpclaunch's own default")


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={_words(item)}" for name, item in value.items())
    if isinstance(value, list):
        return " ".join(map(_words, value))
    text = str(value).lower() if isinstance(value, bool) or value is None else str(value)
    text = text if text.isprintable() else quote(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _once(found: Iterable[Any]) -> list[Any]:
    listed = list(found)
    return [one for number, one in enumerate(listed) if one not in listed[:number]]
