"""What a script's directives ask for, in the words of a request."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from hpclaunch.job.checks.words import placeholder
from hpclaunch.profile.model import Partition
from hpclaunch.profile.search import Profile
from hpclaunch.profile.yamlfile import Key
from hpclaunch.scripts.remark import Directives, Option, Remark, remark

VARIABLE = re.compile(r"[A-Za-z_]\w*")


class Asked(Struct):
    """A request in the making, and the script's line for each of its keys.

    Of a node: `starts` is what the scheduler starts there, `gpus`, and `cpus` for all starts together. What has no key
    is `carried` as a directive, or `left` behind with the reason.
    """

    profile: Profile
    partition: Partition
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    remarks: list[Remark] = []
    carried: list[tuple[int, str]] = []
    left: list[tuple[int, str, str]] = []
    nodes: int = 1
    starts: int = 1
    gpus: int = 0
    cpus: int | None = None
    cpus_said: bool = True  # not merely the one for each task that Slurm gives unasked
    seconds: int | None = None
    folder: bool = False  # the job starts in the folder of its submission
    size_line: int = 0

    def set(self, key: str, value: Any, option: Option) -> None:
        """Note a value and where it stands."""
        self.values[key], self.lines[key] = value, option.line

    def say(
        self, check: str, line: int, message: str, *, refuses: bool | None = None, mended: bool = False,
        key: Key | None = None,
    ) -> None:  # fmt: skip
        """Add a remark."""
        self.remarks.append(remark(check, line, message, refuses=refuses, mended=mended, key=key))

    def number(self, option: Option | None, read: Callable[[str], Any]) -> Any:
        """Return an option's value as `read` reads it; None where there is none, or where it cannot be read."""
        if option is None:
            return None
        try:
            return read(option.value)
        except ValueError as error:
            if "$" not in option.value:
                self.say("malformed", option.line, f"{option.written}: {error}")
            return None

    def carry(self, option: Option, directive: str) -> None:
        """Carry an option over as a directive, unless every job of the site has that one."""
        if "$" in option.value or not directive.isprintable():
            self.left.append((option.line, directive, "a variable or a strange character in it"))
        elif directive not in self.profile.site.directives:
            self.carried.append((option.line, directive))


def start(profile: Profile, directives: Directives) -> Asked:
    """Return an empty request for this site."""
    asked = Asked(profile, Partition(), {"site": profile.name}, {}, [], [], [])
    _common(asked, directives)
    return asked


def _common(asked: Asked, directives: Directives) -> None:
    """Look at what is wrong with an option whatever it means: variables, placeholders, repetitions."""
    first: dict[str, Option] = {}
    last_counts = directives.scheduler == "slurm"
    for option in directives.options:
        if option.name == "?":
            asked.carry(option, option.written)
            continue
        _placeholder(asked, option)
        if found := re.search(r"\$\{?\w+\}?", option.value):
            name = re.sub(r"\W", "", found[0])
            unsure = option.name in ("o", "e") and name == "PBS_JOBID"
            text = f"{option.written} {option.value}: {found[0]} is not expanded in a directive, it stays as it is"
            mended = option.name in ("o", "e", "output", "error")  # the new script has logs of its own
            asked.say("variable", option.line, text, refuses=not unsure, mended=mended)
        before = first.setdefault(option.name, option)
        if before is not option and before.value != option.value and option.name not in ("v", "W", "m", "l.other"):
            counts = last_counts or not option.name.startswith("l.")
            which = f"{option.value}, of this line" if counts else f"{before.value}, of line {before.line}"
            text = f"{option.written} again, after line {before.line}: what counts is {which}"
            asked.say("repeated", option.line, text)
            if last_counts or counts:
                first[option.name] = option


_NAMED = {
    "account",
    "partition",
    "qos",
    "mail-user",
    "time",
    "P",
    "q",
    "M",
    "A",
    "l.storage",
    "l.walltime",
    "constraint",
}


def _placeholder(asked: Asked, option: Option) -> None:
    if not placeholder(option.value, option.name in _NAMED):
        return
    mail = option.name in ("mail-user", "M")
    asked.say(
        "placeholders", option.line, f"{option.written} {option.value}: a placeholder; write your own", refuses=not mail
    )


def placeholders(lines: list[str], first: int, heredocs: set[int]) -> Iterator[Remark]:
    """Yield what an example left to be filled in among the commands."""
    for number, line in enumerate(lines[first:], first + 1):
        if number not in heredocs and not line.lstrip().startswith("#") and (text := placeholder(line)):
            yield remark("placeholders", number, f"{text}: a placeholder; write your own")


def variables(asked: Asked, option: Option, items: list[str]) -> None:
    """Take NAME=VALUE from a list that the scheduler sets in the job; a NAME alone comes from the login shell."""
    names: list[str] = []
    for item in items:
        name, equals, value = item.partition("=")
        if not VARIABLE.fullmatch(name):
            before = names[-1] if names else ""
            text = f"{option.written} {option.value}: a comma ends {before}'s value, and {item!r} is no variable; "
            asked.say("comma", option.line, text + "set it in the script with export", mended=False)
        elif equals:
            if name == "NCPUS":
                asked.say(
                    "ncpus-variable", option.line, f"{item}: PBS sets NCPUS itself, to the node's cores: rename it"
                )
            asked.values.setdefault("env", {})[name] = value
            asked.lines.setdefault("env", option.line)
        else:
            asked.carry(option, f"-v {name}" if asked.profile.site.scheduler == "pbs" else f"--export={name}")
        names.append(name)


def quoted(option: Option, with_space: bool) -> str:
    """Return an option as a directive again."""
    value = option.value if re.fullmatch(r"[\w.,:;/@+=%^|&\[\]*~()-]*", option.value) else shlex.quote(option.value)
    if with_space:
        return f"{option.written} {value}".rstrip()
    return f"--{option.name}={value}" if value else f"--{option.name}"
