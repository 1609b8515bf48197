"""What a script's directives ask for, in the words of a request."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from hpclaunch.job.directives.options import Directives, Option
from hpclaunch.profile.model import Partition
from hpclaunch.profile.search import Profile
from hpclaunch.schedulers import scheduler
from hpclaunch.schedulers.walltime import clock


class Asked(Struct):
    """A request in the making, and the script's line for each of its keys.

    Of a node: `starts` is what the scheduler starts there, `gpus`, and `cpus` for all starts together. What has no key
    is `carried` as a directive, or `left` with the reason.
    """

    profile: Profile
    directives: Directives
    partition: Partition
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    carried: list[tuple[int, str]] = []
    left: list[tuple[int, str, str]] = []
    nodes: int = 1
    starts: int = 1
    gpus: int = 0
    cpus: int | None = None
    threads: int = 1  # how many of the cpus that a directive counts are one core
    total: int | None = None  # cores of the whole job, as the directives count them
    cpus_said: bool = True  # not merely the one for each task that Slurm gives by itself
    seconds: int | None = None
    folder: bool = False  # the job starts in the folder of its submission
    open_queue: bool = False  # the site chooses where it runs
    mixed: str = ""  # why its nodes are of several kinds, which a request cannot say

    def set(self, key: str, value: Any, option: Option) -> None:
        """Note a value and where it stands."""
        self.values[key], self.lines[key] = value, option.line

    def take(self, keys: Mapping[str, str]) -> None:
        """Take the values of options as they are, by the request's keys for them."""
        for name, key in keys.items():
            if option := self.directives.last(name):
                self.set(key, option.value, option)

    def settle(self, way: str, *names: str) -> None:
        """Of the partitions that are requested in the same words, take one that has the QoS and is for GPU jobs or not.

        `way` requests a partition by its name, the options `names` request GPUs.
        """
        gpus = any(re.search(r"gpu(?!s?[=:]0\b)", f"{one.name}={one.value}") for one in self.directives.all(*names))

        def misfit(part: Partition) -> tuple[bool, bool]:
            return bool(part.gpus_per_node) != gpus, self.values.get("qos") not in (None, *(q.name for q in part.qos))

        parts = self.profile.site.partitions
        words = {own: [way.format(own)] if part.directives is None else part.directives for own, part in parts.items()}
        mine = next((words[own] for own, part in parts.items() if part is self.partition), None)
        account = self.values.get("account") or ""
        for own, part in parts.items():
            paid = not part.account_suffixes or account.endswith(tuple(part.account_suffixes))
            if words[own] == mine and paid and misfit(part) < misfit(self.partition):
                self.values["partition"], self.partition = own, part

    def carry(self, option: Option, directive: str) -> None:
        """Carry an option over as a directive."""
        if "$" in option.value or not directive.isprintable():
            self.left.append((option.line, directive, "a variable or a strange character in it"))
        self.carried.append((option.line, directive))
        self.lines.setdefault(directive, option.line)

    def take_mail(self, user: str, on: str, events: Callable[[str], str]) -> Sequence[str]:
        """Take mail by the names of its options; return these, or nothing if a request cannot have such mail."""
        who, when = self.directives.last(user), self.directives.last(on)
        if who and when and re.fullmatch(r"[\w.@+%-]+(,(begin|end|fail))+", f"{who.value},{events(when.value)}"):
            self.set("mail", who.value, who)
            self.set("mail_on", events(when.value), when)
            return user, on
        return ()

    def variables(self, option: Option, items: list[str], bare: str) -> None:
        """Take NAME=VALUE from a list that the scheduler sets in the job; a `bare` NAME is the login shell's."""
        before = ""
        for item in items:
            name, equals, value = item.partition("=")
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                text = f"{option.directive}: the comma ends {before}'s value, and {item!r} is not a variable"
                self.directives.say(option.line, f"{text}; use export in the script")
            elif equals:
                if name in scheduler(self.profile.site.scheduler).own_variables:
                    text = f"{option.directive}: the scheduler sets {name} itself, on each node; use another name"
                    self.directives.say(option.line, text, "env")
                self.values.setdefault("env", {})[name] = value
                self.lines.setdefault("env", option.line)
            else:
                self.carry(option, bare + name)
            before = name

    def time(self, option: Option | None, read: Callable[[str], int]) -> None:
        """Take the walltime; warn of a short one that reads like hours."""
        self.seconds = self.directives.value(option, read)
        if option:
            self.lines["walltime"] = option.line
        if option and self.seconds is not None:
            self.set("walltime", clock(self.seconds), option)
            if re.fullmatch(r"\d+:\d+|[1-9]|1\d|2[0-4]", option.value):
                hours = f"{option.value.partition(':')[0]}:00:00"
                text = f"{option.directive} is {clock(self.seconds)} to the scheduler; if hours are meant, use {hours}"
                self.directives.say(option.line, text, "walltime", warns=True)


def start(profile: Profile, directives: Directives, typed: Mapping[str, Any]) -> Asked:
    """Return a request that has its partition only; say what is wrong with an option whatever it means."""
    for option in directives.options:
        if found := re.search(r"\$\{?\w+\}?", option.value):
            unsure = option.name in ("o", "e") and "PBS_JOBID" in found[0]  # whether that is expanded is not known
            directives.say(option.line, f"{option.directive}: {found[0]} is not expanded in a directive", warns=unsure)
    return Asked(profile, directives, Partition(), {"site": profile.name} | dict(typed))


def quoted(option: Option, joint: str) -> str:
    """Return an option as a directive again."""
    value = option.value if re.fullmatch(r"[\w.,:;/@+=%^|&\[\]*~()-]*", option.value) else shlex.quote(option.value)
    name = option.written if joint == " " or len(option.name) == 1 else f"--{option.name}"
    return f"{name}{joint}{value}" if value else name
