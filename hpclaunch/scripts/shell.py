"""A script's body as statements: what runs one after the other, and the commands in each."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from hpclaunch.scripts.lexer import Lexer, ShellError, Token

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^]]*\])?\+?=(.*)", re.DOTALL)
_OPEN = {"if": "fi", "for": "done", "while": "done", "until": "done", "select": "done", "case": "esac", "{": "}",
         "(": ")"}  # fmt: skip
_MIDDLE = {"then", "else", "elif", "do", "!", "time", "in"}
_CLOSE = set(_OPEN.values())


class Command(Struct):
    """One command: its words as they stand there, what is redirected, and what joins it to the next (`&&`, `|`, …).

    A `negated` one has a `!` before it.
    """

    line: int
    words: list[str] = []
    redirects: list[str] = []
    joint: str = ""
    negated: bool = False

    def split(self) -> tuple[list[str], list[str]]:
        """Return the settings before the command, NAME=VALUE, and its own words."""
        count = next((i for i, word in enumerate(self.words) if not ASSIGNMENT.fullmatch(word)), len(self.words))
        return self.words[:count], self.words[count:]


class Statement(Struct):
    """What stands between two line ends, or semicolons, at the top of a script; a whole loop is one.

    `block` is the loop's or condition's word, `function` for a function, else "".
    """

    first: int
    last: int
    commands: list[Command] = []
    block: str = ""


class Body(Struct):
    """The statements of a script, and which of its lines are heredocs'."""

    statements: list[Statement]
    heredocs: set[int]
    error: ShellError | None = None

    def commands(self) -> Iterator[Command]:
        """Yield all commands, those in loops and functions too."""
        for statement in self.statements:
            yield from statement.commands


def read(text: str, first_line: int = 1) -> Body:
    """Return the statements of `text`; where it cannot be read to its end, those before, and the error."""
    lexer = Lexer(text, first_line)
    reader = _Reader()
    error = None
    try:
        for token in lexer.tokens():
            reader.take(token)
        reader.finish()
    except ShellError as problem:
        error = problem
    return Body(reader.statements, lexer.heredocs, error)


class _Reader:
    """Puts tokens together to statements."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.now: Statement | None = None
        self.command: Command | None = None
        self.blocks: list[tuple[str, int]] = []
        self.double = ""  # the closing word of [[ or ((, inside of which operators are words
        self.target = False
        self.header = False  # in `for NAME in WORDS`, `case WORD in`
        self.named = False  # in `function NAME`
        self.negates = False  # behind a `!`

    def take(self, token: Token) -> None:
        if token.kind == "end":
            self._end(token)
        elif self.target:
            self.target = False
            if self.command:
                self.command.redirects[-1] += token.text
        elif token.kind == "redirect" and not self.double:
            self._open(token)
            self.command = self.command or self._begin(token)
            self.command.redirects.append(token.text)
            self.target = not token.text.endswith("-")
        elif token.kind == "op" and not self.double:
            self._operator(token)
        else:
            self._word(token)

    def finish(self) -> None:
        if self.blocks:
            word, line = self.blocks[-1]
            raise ShellError(line, f"`{word}` that is never closed")
        self._close()

    def _open(self, token: Token) -> Statement:
        if self.now is None:
            self.now = Statement(token.line, token.line, [])
        self.now.last = max(self.now.last, token.line)
        return self.now

    def _begin(self, token: Token) -> Command:
        statement = self._open(token)
        command = Command(token.line, [], [], "", self.negates)
        self.negates = False
        statement.commands.append(command)
        return command

    def _close(self) -> None:
        self.command = None
        if self.now and not self.blocks:
            self.statements.append(self.now)
            self.now = None

    def _end(self, token: Token) -> None:
        self.header = False
        if self.double:
            return
        if self.command and self.command.joint in ("&&", "||", "|", "|&"):
            return
        if self.now:
            self.now.last = max(self.now.last, token.line)
        joined = self.now and self.now.commands and self.now.commands[-1].joint in ("&&", "||", "|", "|&")
        self.command = None
        if not joined:
            self._close()

    def _operator(self, token: Token) -> None:
        statement = self._open(token)
        text = token.text
        if text == "(":
            self._parenthesis(token, statement)
        elif text == ")":
            self.command, self.header = None, False
            if self.blocks and self.blocks[-1][0] in ("(", "function ("):
                self.blocks.pop()
        else:
            self.header = False
            if statement.commands and not (text == ";" and statement.commands[-1].joint == "&"):  # `& done;`
                statement.commands[-1].joint = text
            self.command = None
            if text in (";", "&") and not self.blocks:
                self._close()

    def _parenthesis(self, token: Token, statement: Statement) -> None:
        if self.command and len(self.command.words) == 1 and not self.blocks:  # name()
            statement.commands.remove(self.command)
            statement.block, self.command = "function", None
            self.blocks.append(("function (", token.line))
        elif self.command is None or not self.command.words:
            if not self.blocks:
                statement.block = statement.block or "("
            self.blocks.append(("(", token.line))
        # else: part of a word that this reader does not know, as in an extended pattern

    def _word(self, token: Token) -> None:
        statement = self._open(token)
        statement.last = token.line + token.text.count("\n")
        text = token.text
        if self.double:
            if text == self.double:
                self.double = ""
            if self.command:
                self.command.words.append(text)
            return
        if self.command is None and not self.header and self._reserved(text, token, statement):
            return
        if self.header:
            self.header = self.header and not self.named
            self.named = False
            return
        self.command = self.command or self._begin(token)
        self.command.words.append(text)
        if text == "[[" and len(self.command.words) == 1:
            self.double = "]]"

    def _reserved(self, text: str, token: Token, statement: Statement) -> bool:
        if text in _OPEN:
            if not self.blocks and statement.block != "function":
                statement.block = text
            self.blocks.append((text, token.line))
            self.header = text in ("for", "case", "select")
        elif text in _CLOSE:
            if not self.blocks or _OPEN.get(self.blocks[-1][0]) != text:
                return False
            self.blocks.pop()
        elif text == "function":
            statement.block, self.header, self.named = "function", True, True
        elif text not in _MIDDLE:
            return False
        self.negates = text == "!"
        return True
