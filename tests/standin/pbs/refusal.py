"""How PBS says no."""

from __future__ import annotations


class Refusal(Exception):  # noqa: N818 (no error of this program's)
    """What a program of PBS says on stderr after its own name, and the exit code that it ends with.

    In general that is the number of PBS's error modulo 256 (OpenPBS 23.06, seen).
    """

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code
