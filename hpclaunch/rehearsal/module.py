"""A stand-in for `module`: a rehearsal takes the software that is here."""

from __future__ import annotations

import sys


def main() -> int:
    """Say what a site would do."""
    print(f"rehearsal: module {' '.join(sys.argv[1:])}", file=sys.stderr)
    return 0
