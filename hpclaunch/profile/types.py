"""The types of the values in profiles and requests, each with the rule that a message tells."""

from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct


def matches(pattern: str, rule: str) -> Meta:
    """Return the pattern of a whole text, without the newline that `$` lets pass, and the rule that a message tells."""
    return Meta(pattern=rf"^{pattern}$(?!\n)", extra={"rule": rule})


Count = Annotated[int, Meta(ge=1, lt=10**9)]
Amount = Annotated[float, Meta(gt=0, lt=1e9)]
Price = Annotated[float, Meta(ge=0, lt=1e12)]
# One line without what changes a terminal's output: control characters, changes of direction.
Line = Annotated[str, matches(r"[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+", "one line of text")]
Word = Annotated[str, matches(r"[A-Za-z0-9_.+@:/=%-]+", "one word of letters, digits and _.+@:/=%-")]
OptionalLine = Annotated[str, matches(r"[^\x00-\x1f\x7f]*", "one line of text, or none")]
Omitted = Literal["mem", "cpus"]
Variable = Annotated[str, matches(r"[A-Za-z_][A-Za-z0-9_]*", "a variable's name")]
Walltime = Annotated[
    str, matches(r"(?!0+:00:00)[0-9]{1,4}:[0-5][0-9]:[0-5][0-9]", 'HH:MM:SS in quotes, like "48:00:00"')
]
Cores = Annotated[str, matches(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*", 'cores like "49-55"')]
Umask = Annotated[str, matches(r"0?[0-7]{3}", 'three octal digits in quotes, like "027"')]
Launcher = Literal["tasks", "torchrun", "lightning", "mpirun"]
LAUNCHERS = get_args(Launcher)
ONE_PER_NODE = {"torchrun", "lightning"}  # they start the ranks of a node themselves


class Record(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a profile; an unknown key is a mistake."""
