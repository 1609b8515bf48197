"""How a program of the stand-in is started: by the Python that set it up, with nothing of anybody's environment."""

from __future__ import annotations

from pathlib import Path

_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from hpclaunch.rehearsal.pbs.{} import main; sys.exit(main())"


def command(python: str, program: str) -> list[str]:
    """Return the words that start a module's `main`; arguments may follow. It works from a bare checkout too."""
    return [python, "-IS", "-c", _BOOT.format(program), str(Path(__file__).resolve().parents[3])]
