"""The #PBS lines of a job script, read as qsub reads them (OpenPBS 23.06, seen)."""

from __future__ import annotations

import getopt
import shlex

from standin.pbs.refusal import Refusal

PREFIX = "#PBS"
OPTIONS = "IW:A:N:P:S:e:hj:J:k:l:m:M:o:p:q:r:v:Vz"


def options(arguments: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return qsub's options without their dash, and what follows them: the first other word ends them.

    Raises getopt.GetoptError.
    """
    found, rest = getopt.getopt(arguments, OPTIONS)
    return [(name[1:], value) for name, value in found], rest


def parse(script: str) -> list[tuple[str, str]]:
    """Return the options of a script's directives.

    Directives end at the first line that is neither blank nor a comment. An indented one counts; `# PBS`, `##PBS` and
    `#pbs` are comments; `#PBSD -N x` is a directive, and a bad one: only options may follow, not even a comment.

    Raises Refusal: a directive is wrong, exit code 1.
    """
    found: list[tuple[str, str]] = []
    for line in script.splitlines():
        if line.lstrip().startswith(PREFIX):
            found += _directive(line.lstrip()[len(PREFIX) :])
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return found


def _directive(text: str) -> list[tuple[str, str]]:
    try:
        found, rest = options(_words(text))
    except (getopt.GetoptError, ValueError):
        rest, found = [text], []
    if rest:
        raise wrong(text)
    return found


def wrong(text: str) -> Refusal:
    """Return what qsub says of a directive that it cannot read."""
    return Refusal(f"directive error: {text.strip()}", 1)


def _words(text: str) -> list[str]:
    words = shlex.shlex(text, posix=True, punctuation_chars=False)
    words.whitespace_split = True
    words.commenters = ""
    return list(words)
