"""Run a scheduler's command: a list of words, its output, its own words where it fails."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from hpclaunch.errors import SchedulerError


def call(words: Sequence[str], stdin: str = "") -> str:
    """Return what the command prints. Raises SchedulerError with what it says where it fails or is not there."""
    try:
        done = subprocess.run(
            list(words), input=stdin.encode(errors="surrogateescape"), capture_output=True, check=False
        )
    except FileNotFoundError:
        raise SchedulerError(f"{words[0]}: not found; is this a login node of the site?") from None
    except OSError as error:
        raise SchedulerError(f"{words[0]}: {error.strerror}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise SchedulerError(said or f"{words[0]} ended with exit code {done.returncode}")
    return done.stdout.decode(errors="replace")
