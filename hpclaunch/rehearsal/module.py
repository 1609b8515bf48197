"""A stand-in for `module`: a rehearsal uses the software of this machine."""

from __future__ import annotations

import sys


def main() -> int:
    """Print what a site would load."""
    print(f"rehearsal: module {' '.join(sys.argv[1:])}", file=sys.stderr)
    return 0
