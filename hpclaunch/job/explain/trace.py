"""Which line of which template printed each piece of a script, and by which expression.

Templates stay as they are. Their parsed form is changed before it is compiled: each piece of text that they print is
given a mark, and the marks are taken out of what they printed. A mark always stands before something that can be seen,
so filters that look at blanks, as `indent` and `trim` do, find them as ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from msgspec import Struct, structs

_MARK = re.compile("\x01([0-9]{1,9})\x02")
_COMPARED = {"eq": "==", "ne": "!=", "gt": ">", "gteq": ">=", "lt": "<", "lteq": "<=", "in": "in", "notin": "not in"}


class Condition(Struct, frozen=True):
    """An `if` that stands around a piece of a template, and whether its test held."""

    file: str
    line: int
    test: nodes.Node
    holds: bool = True

    def __str__(self) -> str:
        words = source(self.test)
        return words if self.holds else f"not ({words})" if " " in words else f"not {words}"


class Piece(Struct, frozen=True):
    """A piece of text: where its template prints it, and the expression, None for the template's own words.

    `loops` are the loop variables in reach: the one that names the item, and what is gone through. `items` are their
    values when the piece was printed.
    """

    file: str
    line: int
    block: str | None
    conditions: tuple[Condition, ...]
    loops: dict[str, tuple[str, nodes.Expr]]
    value: nodes.Expr | None = None
    items: dict[str, Any] = {}


class Assignment(Struct, frozen=True):
    """A {% set %}: where it is, and what it gives to its name."""

    file: str
    line: int
    value: nodes.Node


class Trace(Struct):
    """What is known of a rendering: the pieces that the marks stand for, and what templates give names to."""

    pieces: list[Piece]
    assigned: dict[str, Assignment]

    def new(self, piece: Piece) -> str:
        """Return a mark for a piece."""
        self.pieces.append(piece)
        return f"\x01{len(self.pieces) - 1}\x02"

    def lines(self, text: str) -> Iterator[tuple[str, list[Piece]]]:
        """Yield each line of what was rendered, without the marks, and the pieces that made it."""
        line = ""
        pieces: list[Piece] = []
        words = ["", *_MARK.split(text)]
        for mark, word in zip(words[::2], words[1::2], strict=True):
            piece = self.pieces[int(mark)] if mark and int(mark) < len(self.pieces) else None
            for number, part in enumerate(word.split("\n")):
                if number:
                    yield line, pieces
                    line, pieces = "", []
                line += part
                if piece and (part.strip() or (not number and _passes_on(piece.value))):
                    pieces.append(piece)
        if line:
            yield line, pieces


class Tracer(ImmutableSandboxedEnvironment):
    """An environment whose templates mark what they print."""

    def __init__(self, trace: Trace, **options: Any) -> None:
        super().__init__(**options)
        self._trace = trace
        self.filters["mark"] = self._mark

    def _generate(
        self, source: nodes.Template, name: str | None, filename: str | None, defer_init: bool = False
    ) -> str:
        """Mark the template; this is jinja2's own hook between parsing and compiling."""
        self._walk(source, Piece(filename or str(name), 1, None, (), {}))
        return super()._generate(source, name, filename, defer_init)

    def _walk(self, node: nodes.Node, place: Piece) -> None:
        """Mark all that is printed below `node`; `place` is what the way down to it has told."""
        if isinstance(node, nodes.Output):
            node.nodes = [marked for child in node.nodes for marked in self._marked(child, place)]
            return
        if isinstance(node, nodes.AssignBlock):
            return  # text to be looked at by others
        if isinstance(node, nodes.Assign):
            for name, value in _assigned(node):
                self._trace.assigned[name] = Assignment(place.file, node.lineno, value)
        elif isinstance(node, nodes.If):
            self._walk_if(node, place)
            return
        elif isinstance(node, nodes.For):
            names = _names(node.target)
            place = structs.replace(place, loops={**place.loops, **dict.fromkeys(names, (names[0], node.iter))})
        elif isinstance(node, nodes.Block):
            place = structs.replace(place, block=node.name)
        elif isinstance(node, nodes.Macro):
            place = structs.replace(place, block=node.name, conditions=(), loops={})
        for child in node.iter_child_nodes():
            self._walk(child, place)

    def _walk_if(self, node: nodes.If, place: Piece) -> None:
        branches = [(node.test, node.body), *((other.test, other.body) for other in node.elif_), (None, node.else_)]
        for test, body in branches:
            inside = place
            if test is not None:
                held = Condition(place.file, test.lineno, test)
                inside = structs.replace(place, conditions=(*place.conditions, held))
                place = structs.replace(place, conditions=(*place.conditions, structs.replace(held, holds=False)))
            for child in body:
                self._walk(child, inside)

    def _marked(self, child: nodes.Expr, place: Piece) -> Iterator[nodes.Expr]:
        """Yield what prints the same as `child`, with marks."""
        if isinstance(child, nodes.TemplateData):
            for number, text in enumerate(child.data.split("\n")):
                blank = len(text) - len(text.lstrip())
                new_line = "\n" if number else ""
                mark = self._trace.new(structs.replace(place, line=child.lineno + number)) if text[blank:] else ""
                yield nodes.TemplateData(new_line + text[:blank] + mark + text[blank:], lineno=child.lineno)
            return
        number = len(self._trace.pieces)
        self._trace.pieces.append(structs.replace(place, line=child.lineno, value=child))
        looped = dict.fromkeys(place.loops[name][0] for name in _names(child) if name in place.loops)
        kept = [nodes.Keyword(name, nodes.Name(name, "load", lineno=child.lineno)) for name in looped]
        yield nodes.Filter(child, "mark", [nodes.Const(number)], kept, None, None, lineno=child.lineno)

    def _mark(self, value: object, number: int, /, **items: object) -> str:
        text = str(value)
        blank = len(text) - len(text.lstrip())
        return text[:blank] + self._trace.new(structs.replace(self._trace.pieces[number], items=items)) + text[blank:]


def _assigned(node: nodes.Assign) -> Iterator[tuple[str, nodes.Node]]:
    pairs: list[tuple[nodes.Node, nodes.Node]] = [(node.target, node.node)]
    if isinstance(node.target, nodes.Tuple) and isinstance(node.node, nodes.Tuple):
        pairs = list(zip(node.target.items, node.node.items, strict=False))
    for target, value in pairs:
        if isinstance(target, nodes.Name):
            yield target.name, value


def _passes_on(value: nodes.Expr | None) -> bool:
    """Tell whether an expression may hand values to a macro, which prints them under marks of its own."""
    return value is not None and any(
        call.args or call.kwargs for call in (value, *value.find_all(nodes.Call)) if isinstance(call, nodes.Call)
    )


def _names(node: nodes.Node) -> list[str]:
    if isinstance(node, nodes.Name):
        return [node.name]
    return [name.name for name in node.find_all(nodes.Name)]


def path_of(node: nodes.Node) -> tuple[str, ...] | None:
    """Return `plan.site.umask` as its names, None for what is no such chain."""
    if isinstance(node, nodes.Name):
        return (node.name,)
    if isinstance(node, nodes.Getattr) and (above := path_of(node.node)):
        return (*above, node.attr)
    return None


def paths_in(node: nodes.Node) -> Iterator[tuple[str, ...]]:
    """Yield each chain of names in an expression, the longest ones."""
    if path := path_of(node):
        yield path
        return
    for child in node.iter_child_nodes():
        yield from paths_in(child)


def source(node: nodes.Node) -> str:  # noqa: PLR0911 - one line for each kind of node
    """Return an expression as a template says it."""
    if path := path_of(node):
        return ".".join(path)
    if isinstance(node, nodes.Const):
        return repr(node.value)
    if isinstance(node, nodes.BinExpr):
        return f"{source(node.left)} {node.operator} {source(node.right)}"
    if isinstance(node, nodes.UnaryExpr):
        return f"{node.operator} {source(node.node)}"
    if isinstance(node, nodes.Concat):
        return " ~ ".join(map(source, node.nodes))
    if isinstance(node, nodes.Compare):
        rest = (f" {_COMPARED[operand.op]} {source(operand.expr)}" for operand in node.ops)
        return source(node.expr) + "".join(rest)
    if isinstance(node, nodes.Test):
        return f"{source(node.node)} is {node.name}"
    if isinstance(node, nodes.Filter) and node.node is not None:
        return f"{source(node.node)} | {node.name}{_arguments(node) if node.args else ''}"
    if isinstance(node, nodes.Call):
        return source(node.node) + _arguments(node)
    if isinstance(node, nodes.Getattr):
        return f"{source(node.node)}.{node.attr}"
    return "..."


def _arguments(node: nodes.Call | nodes.Filter) -> str:
    return f"({', '.join(map(source, node.args))})"
