"""A script's lines: which of them are other files', and what bash itself says of them."""

import os
import re
import subprocess

_SHELLS = re.compile(r"#!.*?\b(ba|k|da|)sh\b")
_HEREDOC = re.compile(r"(?<![<\d(])<<(-?)\s*(['\"]?)\\?([\w=.!+%@-]+)\2")


def split_lines(text: str) -> list[str]:
    """Return a script's lines without their ends."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def is_shell(first_line: str) -> bool:
    """Tell whether a script is one that bash, or a shell like it, would run."""
    return not first_line.startswith("#!") or _SHELLS.match(first_line) is not None


def syntax_error(text: str) -> tuple[int, str] | None:
    """Return the line and the message of bash's first error in a script, or None if it reads all of it."""
    command = ["bash", "-O", "extglob", "-n", "/dev/stdin"]
    data, env = text.encode(errors="surrogateescape"), os.environ | {"LC_ALL": "C"}  # messages in English
    try:
        done = subprocess.run(command, input=data, env=env, capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return None
    found = re.search(r"line (\d+): (?!warning)(.*)", done.stderr.decode(errors="replace"))
    return (int(found[1]), found[2]) if done.returncode > 0 and found else None


def heredoc_lines(lines: list[str]) -> set[int]:
    """Return the numbers of the lines that are texts of heredocs, their ends included."""
    found, endless = set[int](), set[tuple[str, str]]()
    for number, line in enumerate(lines, 1):
        if number in found or line.lstrip().startswith("#"):
            continue
        last = number
        for tabs, _, end in _HEREDOC.findall(line):
            rest = [] if (tabs, end) in endless else lines[last:]
            texts = ((part.lstrip("\t") if tabs else part).rstrip("\r") for part in rest)
            at = next((i for i, text in enumerate(texts, last + 1) if text == end), last)
            if at == last:
                endless.add((tabs, end))
            found.update(range(last + 1, at + 1))
            last = at
    return found
