"""Bash as tree-sitter reads it: a script's simple commands in order, each with its words and what stands around it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from itertools import takewhile
from pathlib import PurePath
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from hpclaunch.scripts.lines import heredoc_lines, syntax_error

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

INSTALL = "pip install 'hpclaunch[scripts]'"
_AROUND = {
    "if_statement": "if", "case_statement": "if", "list": "list", "for_statement": "loop", "while_statement": "loop",
    "c_style_for_statement": "loop", "function_definition": "function", "pipeline": "pipe",
    "command_substitution": "substitution", "process_substitution": "substitution", "negated_command": "not",
}  # fmt: skip
_EXPANSIONS = {"simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion"}
_WORDS = {
    *_EXPANSIONS, "word", "number", "concatenation", "raw_string", "ansi_c_string", "string", "translated_string",
    "brace_expression", "extglob_pattern", "array", "command_name", "variable_name",
}  # fmt: skip
_COMMANDS = {"command", "declaration_command", "unset_command", "variable_assignments", "for_statement"}
_REDIRECTS = {"file_redirect", "heredoc_redirect", "herestring_redirect"}
_SHELLS = {"bash", "sh", "zsh"}
# What their words name is shown, or is for another job.
_SAYS = {"echo", "printf", "logger", "mail", ":", "sbatch", "qsub"}
_NAMED = {"declaration_command", "unset_command", "for_statement"}  # their first word is no word to the library
_DEEPEST = 5  # shells started by shells
_LONGEST_LOOP = 5000
# tree-sitter-bash 0.25 takes $A/$B/c for two words, and ${A}/${B}/c for one.
_JOINED = re.compile(r"(?<=[^\s\"'$`;&|<>(){}=\\])\$([A-Za-z_]\w*|\d)(?=[^\s\w\"'`;&|<>()$}])")
# What an example left to be filled in would be read as redirections.
_LEFT = re.compile(r"(?<=[=/@:+])<[A-Za-z][\w -]*>|<(?:your|my|insert|path)[\w /.-]*>", re.IGNORECASE)
_LETTERS = str.maketrans("<> ", "\ue001\ue002\ue003")
_FROM_LETTERS = str.maketrans("\ue001\ue002\ue003", "<> ")
_EXPANDED = "\ue000"  # stands for what the shell expands while a word's quotes are removed
_QUOTED = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_GONE = re.compile(r"\\\n|\\(?=[$`])|\$(?=['\"])")  # what bash removes and shlex does not


class Word(str):
    """A word of a command, its quotes resolved; `raw` is how it stands in the script.

    `expands` names the variables that the shell replaces in it, and `$(`, `~` and `*` for what else it expands.
    """

    raw: str
    expands: frozenset[str]
    line: int

    def __new__(cls, text: str, raw: str | None = None, expands: Iterable[str] = (), line: int = 0) -> Word:  # noqa: D102
        word = super().__new__(cls, text)
        word.raw, word.expands, word.line = text if raw is None else raw, frozenset(expands), line
        return word

    @property
    def name(self) -> str:
        """Return a program's name without its folder."""
        return PurePath(self).name or self


class Setting(Struct):
    """`NAME=VALUE`, or `NAME=(ITEMS)`."""

    name: str
    value: Word
    items: list[Word] = []


class Command(Struct):
    """A simple command; one without words only sets variables, or is a block whose output goes to `files`.

    `inside` names what stands around it: if, list (`&&`), loop, function, pipe, substitution, background, not; and if
    `within` gives it to another shell as a text: shell, ssh or trap. `files` are the targets of its redirections,
    `heredocs` the texts that it is given, `function` and `loop` the name and the text of the innermost around it.
    """

    line: int
    words: list[Word] = []
    settings: list[Setting] = []
    files: list[Word] = []
    heredocs: list[str] = []
    inside: frozenset[str] = frozenset()
    function: str = ""
    loop: str = ""
    within: Command | None = None

    @property
    def name(self) -> str:
        """Return the program's name without its folder, "" if there is none."""
        return self.words[0].name if self.words else ""

    @property
    def says(self) -> bool:
        """Tell whether its words are only shown, or are for another job."""
        return self.name in _SAYS or (self.name == "cat" and bool(self.heredocs))


class Script(Struct):
    """A script as far as it could be read; `heredocs` are the numbers of lines that are other files'."""

    commands: list[Command] = []
    heredocs: set[int] = set()
    error: tuple[int, str] | None = None  # what bash refuses, with its line
    unread: int = 0  # the first line that the library could not read


def can_read() -> bool:
    """Tell whether the library that reads bash is installed."""
    return all(find_spec(name) for name in ("tree_sitter", "tree_sitter_bash"))


def read(text: str) -> Script:
    """Return the commands of `text`; none without the library that reads bash."""
    script = Script(heredocs=heredoc_lines(text.split("\n")), error=syntax_error(_filled(text)))
    if can_read():
        reader = _Reader(re.sub(r"\\\n*\Z", "", text))  # bash ends a script's last line there too
        reader.walk()
        called = {word for command in reader.commands for word in command.words}
        script.commands = [one for one in reader.commands if not one.function or one.function in called]
        script.unread = reader.unread
        if script.error and re.search("EOF|end of file", script.error[1]):  # bash names the last line
            script.error = reader.unread or script.error[0], script.error[1]
    return script


def _filled(text: str) -> str:
    """Return a text in which what an example left to be filled in is one word."""
    return _LEFT.sub(lambda found: found[0].translate(_LETTERS), text)


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


class _Reader:
    """One pass over a text that begins at `line`, and over the texts for other shells in it."""

    def __init__(self, text: str, line: int = 1, depth: int = 0) -> None:
        self.source = _JOINED.sub(r"${\1}", _filled(text)).encode(errors="replace")
        self.line, self.depth = line, depth
        # tree-sitter-bash 0.25 looks for digits in C's table of 256, and may crash at others: to bash all are letters.
        self.root = _parser().parse(re.sub(rb"[\x80-\xff]", b"x", self.source)).root_node
        self.commands: list[Command] = []
        self.unread = 0

    def walk(self, around: Command | None = None) -> None:
        """Fill `commands`, on a stack of its own: how deep a script nests is not for Python's to bear."""
        stack = [(self.root, self.root, around or Command(0))]
        while stack:
            node, parent, context = stack.pop()
            if node.type == "ERROR" or node.is_missing:
                self.unread = self.unread or self._line(parent if node.is_missing else node)
            if node.type in _COMMANDS or (node.type == "variable_assignment" and parent.type not in _COMMANDS):
                self._command(node, parent if parent.type == "redirected_statement" else node, context)
            elif node.type == "redirected_statement" and node.children[0].type not in _COMMANDS:
                self._command(node, node, context)  # a block's output
            name = _AROUND.get(node.type, "")
            context = _with(context, name) if name else context
            if name == "function" and (named := node.child_by_field_name("name")):
                context.function = self._text(named)
            elif name == "loop":
                context.loop = self._text(node)[:_LONGEST_LOOP]
            for child in reversed(node.children):
                after = child.next_sibling if child.is_named else None
                aside = _with(context, "background") if after is not None and after.type == "&" else context
                stack.append((child, node, aside))

    def _line(self, node: Node) -> int:
        return self.line + node.start_point.row

    def _text(self, node: Node) -> str:
        return self._between(node.start_byte, node.end_byte)

    def _between(self, start: int, end: int) -> str:
        return self.source[start:end].decode(errors="replace").translate(_FROM_LETTERS)

    def _command(self, node: Node, whole: Node, context: Command) -> None:
        """Add the command that a node is; `whole` is the node with its redirections."""
        command = structs.replace(context, line=self._line(node), words=[], settings=[], files=[], heredocs=[])
        parts = [node] if node.type == "variable_assignment" else node.children
        for part in parts if whole is node else [*parts, *whole.children]:
            if part.type == "variable_assignment":
                command.settings.append(self._setting(part))
            elif part.type in _REDIRECTS:
                self._redirect(command, part)
            elif part.type in _WORDS or (node.type in _NAMED and not part.is_named and not command.words):
                command.words.append(self._word(part))
        self.commands.append(command)
        if (text := _inner(command)) and self.depth < _DEEPEST:
            reader = _Reader(text, text.line, self.depth + 1)
            far = command.name if command.name in ("ssh", "trap") else "shell"
            reader.walk(structs.replace(_with(context, far), within=command))
            self.commands += reader.commands

    def _setting(self, node: Node) -> Setting:
        name, value = (node.child_by_field_name(field) for field in ("name", "value"))
        array = value.children if value and value.type == "array" else []
        items = [self._word(item) for item in array if item.type in _WORDS]
        return Setting(self._text(name) if name else "", self._word(value) if value else Word(""), items)

    def _redirect(self, command: Command, node: Node) -> None:
        for part in node.children:
            if part.type in _REDIRECTS:  # behind a heredoc's
                self._redirect(command, part)
            elif part.type == "heredoc_body":
                command.heredocs.append(self._text(part))
            elif node.type == "file_redirect" and part.type in _WORDS - {"number"}:
                command.files.append(self._word(part))

    def _word(self, node: Node) -> Word:
        """Return a word without its quotes; what the shell expands in it stays as it is written."""
        text, at = "", node.start_byte
        expands, parts = set[str](), list[str]()
        for part in _expansions(node):
            raw = self._text(part)
            parts.append(raw.lstrip())
            start = part.start_byte + len(raw) - len(parts[-1])  # a blank before it is counted in
            text, at = text + self._between(at, start) + _EXPANDED, part.end_byte
            named = re.match(r"\$\{?[!#]?(\w+)", parts[-1])
            expands.add(named[1] if named else "$(")
        text += self._between(at, node.end_byte)
        bare = _QUOTED.sub("", text)
        found = {"~": bare.startswith("~"), "*": re.search(r"[*?]|\[.+\]|\{.*(,|\.\.).*\}", bare)}
        expands |= {sign for sign, there in found.items() if there}
        if len(bare) < len(text) or "$" in bare:
            with suppress(ValueError):  # a part of what could not be read
                text = " ".join(shlex.split(_GONE.sub("", text)))
        text = re.sub(_EXPANDED, lambda _: parts.pop(0) if parts else "", text)
        return Word(text, self._text(node), expands, self._line(node))


def _expansions(node: Node) -> Iterator[Node]:
    """Yield what the shell expands in a word, in its order."""
    nodes = [node]
    while nodes:
        part = nodes.pop()
        if part.type in _EXPANSIONS:
            yield part
        else:
            nodes += reversed(part.children)


def _with(context: Command, name: str) -> Command:
    return structs.replace(context, inside=context.inside | {name})


def _inner(command: Command) -> Word | None:
    """Return the text that a command gives to a shell: of `bash -c`, `eval`, `ssh HOST`, or a heredoc."""
    words = command.words
    if command.name in ("eval", "trap"):
        return Word(" ".join(words[1:] if command.name == "eval" else words[1:2]), line=command.line)
    if command.name == "ssh" and len(words) > 2 and " " in words[-1]:
        return words[-1]
    at = next((i for i, word in enumerate(words, 1) if word.name in _SHELLS), None)
    if at is None or command.says:
        return None
    flags = list(takewhile(lambda word: word.startswith(("-", "+")), words[at:]))
    rest = words[at + len(flags) :]
    if flags and re.fullmatch(r"-[a-z]*c", flags[-1]):
        return rest[0] if rest else None
    return Word(command.heredocs[0], line=command.line + 1) if command.heredocs and not rest else None
