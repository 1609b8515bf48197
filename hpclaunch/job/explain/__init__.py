"""Where each line of a job script comes from: `hpclaunch render --explain`, which alone imports this."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from jinja2 import nodes
from msgspec import Struct

from hpclaunch.errors import TemplateError
from hpclaunch.job.explain.fields import Fields
from hpclaunch.job.explain.origin import Origin, Source
from hpclaunch.job.explain.sizes import amount, figure
from hpclaunch.job.explain.trace import Condition, Piece, Trace, Tracer, path_of, paths_in, source
from hpclaunch.job.plan import Plan
from hpclaunch.job.render import fill
from hpclaunch.paths import shown
from hpclaunch.profile.search import Profile

_ARITHMETIC = {"*": (operator.mul, "x"), "+": (operator.add, "+"), "-": (operator.sub, "-")}
_GLOBALS = {"version": "hpclaunch's version", "provenance": "the request as one command"}
_MAPPINGS = ("items", "keys", "values")


class Line(Struct, frozen=True):
    """A line of the script and its reasons: the templates' lines, each value's origins, each condition's."""

    number: int
    text: str
    templates: list[Origin]
    values: list[list[Origin]]
    conditions: list[list[Origin]]

    @property
    def origins(self) -> list[Origin]:
        """List all reasons, each once."""
        return _once([*self.templates, *(origin for group in self.values + self.conditions for origin in group)])


def explain(plan: Plan, profile: Profile, script: str, sources: Mapping[str, Source]) -> list[Line]:
    """Return the lines of `script`, which is the plan's, with what made them; a blank line has no origin.

    `sources` tells of each option that the request has how it came in.
    """
    trace = Trace([], {})
    try:
        traced = list(trace.lines(fill(plan, kind=partial(Tracer, trace))[0]))
    except TemplateError:  # a template that works on what it prints, and stumbles over the marks in it
        traced = []
    teller = _Teller(plan, trace, Fields(plan, profile, sources))
    return [teller.line(number, *line) for number, line in enumerate(_aligned(script, traced), 1)]


def _aligned(script: str, traced: list[tuple[str, list[Piece]]]) -> list[tuple[str, list[Piece]]]:
    """Return the script's lines with their pieces; a line that the marks have changed has none."""
    lines: list[tuple[str, list[Piece]]] = [(line, []) for line in script.split("\n")]
    if not lines[-1][0]:
        lines.pop()
    matcher = difflib.SequenceMatcher(None, [line for line, _ in lines], [line for line, _ in traced], autojunk=False)
    for here, there, size in matcher.get_matching_blocks():
        lines[here : here + size] = traced[there : there + size]
    return lines


class _Teller:
    """Turns pieces into reasons."""

    def __init__(self, plan: Plan, trace: Trace, fields: Fields) -> None:
        self.plan, self.trace, self.fields = plan, trace, fields

    def line(self, number: int, text: str, pieces: list[Piece]) -> Line:
        templates = [
            Origin(kind="template", where=f"{shown(piece.file)}:{piece.line}", key=piece.block) for piece in pieces
        ]
        if text.strip() and not templates:
            file = shown(self.trace.pieces[0].file) if self.trace.pieces else "?"
            templates = [Origin(kind="template", where=file, formula="made from what a template printed")]
        values = [self.fields.template()] if number == 1 else []
        values += [group for piece in pieces if piece.value for group in self.value(piece, piece.value)]
        said = [_place(origin) for group in values for origin in group]
        conditions = [
            condition
            for place, piece in enumerate(pieces)
            for condition in piece.conditions
            if condition.holds or place == 0
        ]
        reasons = [self.condition(condition) for condition in conditions]
        news = [group for group in reasons if any(_place(one) not in said for one in group if one.kind != "template")]
        return Line(number, text, _once(templates), _once(values), _once(news))

    def value(self, piece: Piece, value: nodes.Expr) -> Iterator[list[Origin]]:
        """Yield the reasons of what an expression printed: how it was computed, then each field's."""
        while isinstance(value, nodes.Filter) and value.node is not None:
            value = value.node
        if isinstance(value, nodes.BinExpr) and (sum_ := self.sum(value)):
            words, number = sum_
            yield [Origin(kind="computed", key=source(value), value=number, formula=f"{words} = {figure(number)}")]
        for path in dict.fromkeys(paths_in(value)):
            if group := self.path(path, piece):
                yield group

    def condition(self, condition: Condition) -> list[Origin]:
        """Return the reasons why an `if` held, empty where they are none of a person's or a profile's."""
        groups = [self.path(path) for path in dict.fromkeys(paths_in(condition.test))]
        origins = _once(origin for group in groups for origin in group)
        if any(origin.kind != "template" for origin in origins):
            where = f"{shown(condition.file)}:{condition.line}"
            return [Origin(kind="template", where=where, formula=f"if {condition}"), *origins]
        return []

    def path(self, path: tuple[str, ...], piece: Piece | None = None, passed: tuple[str, ...] = ()) -> list[Origin]:
        """Return the reasons of what a template names: a field of the plan, a loop variable, a name of its own.

        `passed` are the names on the way there, for one that is made from itself.
        """
        name, *rest = path
        if rest and rest[-1] in _MAPPINGS:
            rest.pop()
        if name == "plan":
            return self.fields.of(tuple(rest)) if rest else []
        if piece and name in piece.loops:
            head, gone_through = piece.loops[name]
            return [
                origin
                for looped in paths_in(gone_through)
                if looped[0] == "plan" and len(looped) > 1
                for origin in self.fields.of(looped[1:], piece.items.get(head))
            ]
        if name == "launch" and rest and rest[-1] not in self.trace.assigned:
            return self.fields.of(("launcher",))
        found = self.trace.assigned.get(rest[-1] if rest else name)
        if found and name not in passed:
            said = None if isinstance(found.value, nodes.Const) else source(found.value)
            own = Origin(kind="template", where=f"{shown(found.file)}:{found.line}", key=path[-1], formula=said)
            passed = (*passed, name)
            return [own, *(origin for inner in paths_in(found.value) for origin in self.path(inner, piece, passed))]
        if name in _GLOBALS:
            return [Origin(kind="computed", key=name, formula=_GLOBALS[name])]
        return []

    def sum(self, node: nodes.Expr) -> tuple[str, float] | None:
        """Return a sum or a product of the plan's numbers in words, and its value; None for all else."""
        if isinstance(node, nodes.Const) and isinstance(node.value, (int, float)):
            return str(node.value), node.value
        path = path_of(node)
        if path and path[0] == "plan" and len(path) == 2:
            number = getattr(self.plan, path[1])
            return (amount(number, path[1]), number) if isinstance(number, (int, float)) else None
        if not isinstance(node, nodes.BinExpr) or node.operator not in _ARITHMETIC:
            return None
        sides = [(child, self.sum(child)) for child in (node.left, node.right)]
        words, numbers = [], []
        for child, side in sides:
            if side is None:
                return None
            words.append(f"({side[0]})" if isinstance(child, nodes.BinExpr) else side[0])
            numbers.append(side[1])
        function, sign = _ARITHMETIC[node.operator]
        return f" {sign} ".join(words), function(*numbers)


def _place(origin: Origin) -> tuple[str | None, ...]:
    return origin.kind, origin.where or origin.key


def _once(found: Iterable[Any]) -> list[Any]:
    listed = list(found)
    return [one for number, one in enumerate(listed) if one not in listed[:number]]
