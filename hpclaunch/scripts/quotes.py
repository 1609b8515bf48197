"""Quotes of the shell: a word's text without them, and where a quote or a block is never closed."""

from __future__ import annotations

import itertools
import re
from collections import Counter

_CLOSES = {"if": "fi", "do": "done", "case": "esac", "{": "}", "${": "}", "(": ")", "$(": ")"}
_OPENS = {"}": "{", ")": "("}
_QUOTES = re.compile(
    r"""\\.|\$'(?:\\.|[^'\\])*'|'[^']*'|"(?:\\.|[^"\\])*"|(?<![^\s;&|()])\#[^\n]*|[^\\'"#$]+|[$\#\\]|(?P<open>['"])""",
    re.DOTALL,
)


def unquoted(text: str, double: bool) -> tuple[str, str, bool]:
    """Return a text without its quotes, what of it stands in none, and whether it ends inside of a double one."""
    out, bare, at = "", "", 0
    while at < len(text):
        letter, after = text[at], text[at + 1 : at + 2]
        end = at + 1
        if letter == "\\" and after and not (double and after not in '$`"\\\n'):
            out, end = out + after.replace("\n", ""), at + 2
        elif letter == '"':
            double = not double
        elif letter == "'" and not double:
            end = text.find("'", at + 1) + 1 or len(text)
            out += text[at + 1 : end - 1]
        elif letter != "$" or double or after not in ("'", '"'):
            out, bare = out + letter, bare if double else bare + letter
        at = end
    return out, bare, double


def patterns(bare: str) -> set[str]:
    """Return what the shell expands in a text without quotes and variables: `*` for patterns, `~`."""
    found = {"~"} if bare.startswith("~") else set()
    return found | ({"*"} if re.search(r"[*?]|\[.+\]|\{.*(,|\.\.).*\}", bare) else set())


def unclosed(text: str, heredocs: set[int], leaves: list[tuple[str, int]]) -> tuple[int, str] | None:
    """Return the line where a quote or a block begins that is never closed, and what it is, if parser and count agree.

    `text` is one that the parser did not understand whole, `leaves` are its tokens with their lines, `heredocs` the
    numbers of lines that are none of its commands.
    """
    text = "\n".join("" if number in heredocs else line for number, line in enumerate(text.split("\n"), 1))
    for found in _QUOTES.finditer(text):
        if found["open"]:
            return text.count("\n", 0, found.start()) + 1, f"a {found[0]} that is never closed"
    opened: dict[str, list[tuple[int, str]]] = {}
    for kind, line in leaves:
        if kind in _CLOSES:
            opened.setdefault(_CLOSES[kind], []).append((line, kind))
        elif opened.get(kind):
            opened[kind].pop()
    plain = "".join(found[0] for found in _QUOTES.finditer(text) if found[0][0] not in "\\'\"#")
    counts = Counter(_CLOSES.get(kind) for kind, _ in leaves)
    words = Counter(re.findall(r"\b\w+\b", text))
    sure = [
        opened[close]
        for close in opened
        if counts[close] > words[close] and (close.isalpha() or plain.count(_OPENS[close]) > plain.count(close))
    ]
    line, kind = max(itertools.chain(*sure), default=(0, ""))
    return (line, f"`{kind}` that is never closed") if line else None
