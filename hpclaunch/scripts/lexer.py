"""Shell text into words and operators with their line numbers; what lies in quotes or in $( ) stays in its word."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

_OPERATOR = re.compile(r"\d*(?:<<<|<<-|<<|<&|<>|>>|>&|>\||&>>|&>|<|>)|;;&|;;|;&|&&|\|\||\|&|[;&|()]")
_REDIRECT = re.compile(r"\d*[<>]|&>")
_BLANK = " \t\r"
_DEEPEST = 100


class ShellError(Exception):
    """A quote or block that is never closed; it begins at `line`."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


class Token(Struct, frozen=True):
    """A `word`, an operator (`op`), a redirection (`redirect`), or the end of a line (`end`)."""

    kind: str
    text: str
    line: int


class Lexer:
    """One pass over a text. `heredocs` fills with the numbers of the lines that are heredocs' bodies."""

    def __init__(self, text: str, first_line: int = 1) -> None:
        self.text = text
        self.at = 0
        self.line = first_line
        self.depth = 0
        self.heredocs: set[int] = set()
        self.waiting: list[tuple[str, bool]] = []

    def tokens(self) -> Iterator[Token]:
        """Yield the tokens. Raises ShellError."""
        text = self.text
        after_heredoc: bool | None = None
        while self.at < len(text):
            letter = text[self.at]
            if letter == "\n":
                yield Token("end", "\n", self.line)
                self.at, self.line = self.at + 1, self.line + 1
                self._heredocs()
            elif letter in _BLANK:
                self.at += 1
            elif text.startswith("\\\n", self.at):
                self.at, self.line = self.at + 2, self.line + 1
            elif letter == "#":
                self.at = self._line_end()
            elif (found := _OPERATOR.match(text, self.at)) and not text.startswith(("<(", ">("), self.at):
                self.at = found.end()
                operator = found[0]
                kind = "redirect" if _REDIRECT.match(operator) else "op"
                if operator.lstrip("0123456789") in ("<<", "<<-"):
                    after_heredoc = operator.endswith("-")
                yield Token(kind, operator, self.line)
            else:
                line, word = self.line, self._word()
                if after_heredoc is not None:
                    self.waiting.append((re.sub(r"[\\'\"]", "", word), after_heredoc))
                    after_heredoc = None
                yield Token("word", word, line)
        yield Token("end", "\n", self.line)

    def _line_end(self) -> int:
        end = self.text.find("\n", self.at)
        return len(self.text) if end < 0 else end

    def _heredocs(self) -> None:
        for delimiter, tabs in self.waiting:
            while self.at < len(self.text):
                end = self._line_end()
                line = self.text[self.at : end].rstrip("\r")
                self.heredocs.add(self.line)
                self.at, self.line = min(end + 1, len(self.text)), self.line + 1
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
        self.waiting = []

    def _word(self) -> str:
        start = self.at
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter in _BLANK or letter in "\n;|&<>()":
                if letter in "<>(" and self.at == start and self.text.startswith(("<(", ">("), self.at):
                    self.at += 1
                    self.nested("(", ")")
                    continue
                if letter == "(" and self.at > start and self.text[self.at - 1] == "=":  # an array
                    self.nested("(", ")")
                    continue
                break
            self._piece()
        return self.text[start : self.at]

    def _piece(self) -> None:
        """Step over one letter, or over what its opening quote or bracket holds."""
        letter, text = self.text[self.at], self.text
        if letter == "\\":
            self.line += text.startswith("\\\n", self.at)
            self.at = min(self.at + 2, len(text))
        elif letter == "'":
            self._quoted("'")
        elif letter == '"':
            self._double()
        elif letter == "`":
            self._quoted("`")
        elif text.startswith("$'", self.at):
            self.at += 1
            self._quoted("'", escapes=True)
        elif text.startswith(("$(", "${"), self.at):
            self.at += 1
            self.nested(text[self.at], ")" if text[self.at] == "(" else "}")
        else:
            self.line += letter == "\n"
            self.at += 1

    def _quoted(self, quote: str, escapes: bool = False) -> None:
        start, self.at = self.line, self.at + 1
        while self.at < len(self.text) and self.text[self.at] != quote:
            if (escapes or quote == "`") and self.text[self.at] == "\\":
                self.at += 1
            if self.text[self.at : self.at + 1] == "\n":
                self.line += 1
            self.at += 1
        if self.at >= len(self.text):
            raise ShellError(start, f"a {quote} that is never closed")
        self.at += 1

    def _double(self) -> None:
        start, self.at = self.line, self.at + 1
        while self.at < len(self.text) and self.text[self.at] != '"':
            if self.text[self.at] == "'" or self.text.startswith("$'", self.at):
                self.at += 1
            else:
                self._piece()
        if self.at >= len(self.text):
            raise ShellError(start, 'a " that is never closed')
        self.at += 1

    def nested(self, opening: str, closing: str) -> None:
        """Step over a bracket and all up to the one that closes it. Raises ShellError."""
        start, self.at, depth = self.line, self.at + 1, 1
        self.depth += 1
        if self.depth > _DEEPEST:
            raise ShellError(start, f"more than {_DEEPEST} {opening} inside of each other")
        while self.at < len(self.text) and depth:
            letter = self.text[self.at]
            if letter == "#" and opening == "(" and self.text[self.at - 1] in " \t\n":
                self.at = self._line_end()
                continue
            if letter == opening:
                depth += 1
            elif letter == closing:
                depth -= 1
            if letter in (opening, closing):
                self.at += 1
            else:
                self._piece()
        if depth:
            raise ShellError(start, f"a {opening} that is never closed")
        self.depth -= 1


def plain(word: str) -> str | None:
    """Return the text of a word as the shell reads it, or None where it would expand something in it."""
    out, at, double = [], 0, False
    if word.startswith("~"):
        return None
    while at < len(word):
        letter = word[at]
        if letter == "'" and not double:
            end = word.find("'", at + 1)
            out.append(word[at + 1 : end if end > 0 else len(word)])
            at = end if end > 0 else len(word)
        elif letter == '"':
            double = not double
        elif letter == "\\" and at + 1 < len(word):
            at += 1
            if word[at] != "\n":
                out.append(f"\\{word[at]}" if double and word[at] not in '$`"\\' else word[at])
        elif (
            letter == "`"
            or (letter == "$" and word[at + 1 : at + 2] and word[at + 1] not in ' "/.,:;%=)')
            or (letter in "*?[{" and not double and not (letter in "[{" and word[at + 1 : at + 2] in ("", "}", "]")))
        ):
            return None
        else:
            out.append(letter)
        at += 1
    return "".join(out)
