"""What a value of a plan was made from: recorded as the plan is made, printed by `render --explain`."""

from msgspec import Struct


class Basis(Struct, frozen=True):
    """The keys that a value was made from, and the formula in words, "" if the value is a key's as it is.

    A key is `request.NAME`, `site.NAME` or `partition.NAME`, with `:ITEM` for one item of it; or `plan.NAME`, another
    value of the plan, which has a basis of its own.
    """

    keys: tuple[str, ...] = ()
    words: str = ""
