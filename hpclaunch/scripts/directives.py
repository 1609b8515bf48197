"""The directives of a script: which lines are some, and the options in them as sbatch or qsub reads them."""

from __future__ import annotations

import difflib
import getopt
import re
import shlex
from collections.abc import Iterator

from hpclaunch.scripts.remark import Directives, Option, Remark, remark
from hpclaunch.scripts.tables import PBS_LETTERS, SLURM_SAME, SLURM_SHORT, SLURM_TAKES

PREFIX = {"pbs": "#PBS", "slurm": "#SBATCH"}
# Misspelt prefixes and such with a blank; `##SBATCH` is how people switch a directive off.
_ALMOST = re.compile(r"\s*#\s*(PBS|S?S?BA?TA?CH?|SBACTH|SBTACH)\s+(?=--?[A-Za-z])", re.IGNORECASE)


def scheduler_of(lines: list[str], wanted: str | None = None) -> str | None:
    """Return the scheduler whose directives a script begins with, or has anywhere; None where it has none.

    One that has those of several is for the `wanted` one too.
    """
    last = first_command(lines)
    if wanted and any(line.startswith(PREFIX[wanted]) for line in lines[:last]):
        return wanted
    for part in (lines[:last], lines):
        for line in part:
            for scheduler, prefix in PREFIX.items():
                if line.startswith(prefix):
                    return scheduler
    return None


def first_command(lines: list[str]) -> int:
    """Return the index of the first line that is neither blank nor a comment; directives end there."""
    return next((i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), len(lines))


def read(lines: list[str], scheduler: str, heredocs: set[int]) -> Directives:
    """Return what `scheduler` reads in a script. `heredocs` are the numbers of lines that are some other file's."""
    found = Directives(scheduler, [], [], [])
    end = first_command(lines)
    for number, line in enumerate(lines[:end], 1):
        if line.startswith(PREFIX[scheduler]):
            found.lines.append(number)
            _read_line(found, number, line.rstrip("\r")[len(PREFIX[scheduler]) :])
    found.remarks += _strays(lines, found, end, heredocs)
    return found


def _strays(lines: list[str], found: Directives, end: int, heredocs: set[int]) -> Iterator[Remark]:
    names = {option.name for option in found.options}
    for number, line in enumerate(lines, 1):
        if number in heredocs:
            continue
        if number > end and line.startswith(PREFIX[found.scheduler]):
            yield remark("late", number, f"ignored: it stands after the first command, line {end + 1}; move it up")
        elif (match := _ALMOST.match(line)) and not line.startswith(PREFIX[found.scheduler]):
            if (match[1].upper() == "PBS") != (found.scheduler == "pbs"):
                continue
            probe = Directives(found.scheduler, [], [], [])
            _read_line(probe, number, " " + line[match.end() :].rstrip("\r"))
            if any(option.name not in names for option in probe.options):
                prefix = PREFIX[found.scheduler]
                yield remark(
                    "almost", number, f"a comment to the scheduler: directives begin with {prefix!r}, column 1"
                )


def _read_line(found: Directives, number: int, text: str) -> None:
    if found.scheduler == "pbs":
        _pbs(found, number, text)
    else:
        _slurm(found, number, text)


def _words(found: Directives, number: int, text: str, commenters: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, commenters
    try:
        return list(lexer)
    except ValueError:
        found.remarks.append(remark("unreadable", number, f"a quote is never closed: {text.strip()}"))
        return []


def _slurm(found: Directives, number: int, text: str) -> None:
    words = _words(found, number, text, "#")
    while words:
        word = words.pop(0)
        if word.startswith("--") and len(word) > 2:
            _slurm_long(found, number, word, words)
        elif word.startswith("-") and len(word) > 1:
            name = SLURM_SHORT.get(word[1])
            if name is None:
                _unknown(found, number, word, words)
            elif SLURM_TAKES[name] == "=":
                value = word[2:] or (words.pop(0) if words else None)
                _add(found, number, name, value, f"-{word[1]}")
            else:
                found.options.append(Option(number, name, "", f"-{word[1]}"))
                if word[2:]:
                    words.insert(0, f"-{word[2:]}")
        else:
            text = f"{word!r} belongs to no option: blanks around = ?"
            found.remarks.append(remark("unreadable", number, text))


def _slurm_long(found: Directives, number: int, word: str, words: list[str]) -> None:
    written, equals, value = word[2:].partition("=")
    near = [name for name in SLURM_TAKES if name.startswith(written)]
    name = written if written in SLURM_TAKES else near[0] if len(near) == 1 else None
    if name is None:
        _unknown(found, number, word, words)
        return
    own = SLURM_SAME.get(name, name)
    if SLURM_TAKES[name] == "=" and not equals:
        _add(found, number, own, words.pop(0) if words else None, f"--{name}")
    elif SLURM_TAKES[name] == "=" and not value:
        _add(found, number, own, None, f"--{name}")
    else:
        found.options.append(Option(number, own, value, f"--{name}"))


def _add(found: Directives, number: int, name: str, value: str | None, written: str) -> None:
    if value is None or (value.startswith("--") and len(value) > 2):
        found.remarks.append(remark("malformed", number, f"{written}: its value is missing"))
    else:
        found.options.append(Option(number, name, value, written))


def _unknown(found: Directives, number: int, word: str, words: list[str]) -> None:
    """Take an unknown option with the word behind it, if that is none itself."""
    name, equals, value = word.partition("=")
    if not equals and words and not words[0].startswith("-"):
        value = words.pop(0)
    written = f"{name}{equals or (' ' if value else '')}{value}"
    near = difflib.get_close_matches(name.lstrip("-"), SLURM_TAKES, n=1, cutoff=0.75)
    hint = f" (did you mean --{near[0]}?)" if near else ""
    found.remarks.append(remark("unknown-option", number, f"{name}: hpclaunch does not know this option{hint}"))
    found.options.append(Option(number, "?", value, written))


def _pbs(found: Directives, number: int, text: str) -> None:
    if text and not text[0].isspace():
        found.remarks.append(
            remark("unreadable", number, f"#PBS{text.split(maxsplit=1)[0]}: a blank is missing behind #PBS")
        )
        return
    text, hash_, comment = text.partition(" #")
    if hash_:
        what = f"{comment.strip()!r} behind the directive: qsub refuses it; put it on a line of its own"
        found.remarks.append(remark("comment", number, what, mended=True))
    words = _words(found, number, text, "")
    while words:
        try:
            pairs, rest = getopt.getopt(words, PBS_LETTERS)
        except getopt.GetoptError as error:
            letter = error.opt[:1]
            if f"{letter}:" in PBS_LETTERS:
                found.remarks.append(remark("malformed", number, f"-{letter}: its value is missing"))
            elif letter in ("", "-"):
                found.remarks.append(remark("unreadable", number, f"{text.strip()!r}: no option of qsub"))
            else:
                hint = {"t": " (Torque's arrays are -J here)", "d": " (Torque's: use cd in the script)"}.get(letter, "")
                found.remarks.append(remark("unreadable", number, f"-{letter}: qsub has no such option{hint}"))
                found.options.append(Option(number, "?", "", text.strip()))
            return
        for name, value in pairs:
            _pbs_option(found, number, name[1:], value)
        if rest:
            what = f"{' '.join(rest)!r} belongs to no option: a blank too many, or a - too few"
            found.remarks.append(remark("unreadable", number, what))
        return


def _pbs_option(found: Directives, number: int, name: str, value: str) -> None:
    if name != "l":
        found.options.append(Option(number, name, value, f"-{name}"))
        return
    for item in value.split(","):
        key, equals, text = item.partition("=")
        if not re.fullmatch(r"[A-Za-z][\w-]*", key) or (equals and not text):
            what = "a comma too many" if not item.strip() else f"{item!r} is not NAME=VALUE"
            found.remarks.append(remark("malformed", number, f"-l {value}: {what}"))
        else:
            found.options.append(Option(number, f"l.{key}", text, f"-l {key}"))
