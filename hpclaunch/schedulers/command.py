"""Run a scheduler's command, here without a shell or on another host; if it fails, the error has its own words."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hpclaunch.errors import SchedulerError

if TYPE_CHECKING:
    import subprocess

STATE_SECONDS = 60  # for an answer about states: one scheduler that hangs must not block the others
# Variables of the job at hand, which sbatch and `qsub -V` would take for requests or hand to a job submitted from it.
_OF_A_JOB = r"(SLURMD?|SRUN|TORCHELASTIC)_(?!CONF$|CLUSTERS$)|SBATCH_(CPU|MEM)_BIND|PBS_ARRAY_|HPCLAUNCH_(JOB|ATTEMPT)$"


class _Place(NamedTuple):
    """Where commands are run: on `host`, in a folder or at home, each one time if there are `numbers`."""

    host: str
    folder: str
    variables: Mapping[str, str]
    numbers: Iterator[int] | None


_PLACE: ContextVar[_Place | None] = ContextVar("place", default=None)


@contextmanager
def there(
    host: str, folder: str = "", once: bool = False, variables: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run commands on `host` from `folder`, with `variables` in the environment.

    With `once`, each command that is the first, second ... in such a context for this folder is run one time, however
    often the same is tried again: later tries get the answer that the first one had.
    """
    token = _PLACE.set(_Place(host, folder, variables or {}, count(1) if once else None))
    try:
        yield
    finally:
        _PLACE.reset(token)


def current_folder() -> str:
    """Return the folder that commands are run from."""
    place = _PLACE.get()
    return place.folder if place else str(Path.cwd())


def user_id() -> str:
    """Return the user's number where commands are run."""
    place = _PLACE.get()
    return _user_there(place.host) if place else str(os.getuid())


@cache
def _user_there(_host: str) -> str:
    return call(["id", "-u"]).stdout.strip()


def call(
    words: Sequence[str],
    stdin: str = "",
    fine: Container[int] = (0,),
    folder: Path | None = None,
    seconds: float | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command from `folder` or the current one, with `variables` added to the environment.

    Variables of the job at hand are left out. Raises SchedulerError with its message if its exit code is not in `fine`,
    or if it is not found, cannot be started or gives no answer in so many seconds.
    """
    import subprocess  # not before there is a command to run: start-up time counts

    inside = not {"SLURM_JOB_ID", "PBS_JOBID"}.isdisjoint(os.environ)
    outside = {name: value for name, value in os.environ.items() if not (inside and re.match(_OF_A_JOB, name))}
    try:
        if place := _PLACE.get():
            from hpclaunch.schedulers import ssh

            at = ["once", place.folder, str(next(place.numbers))] if place.numbers else ["at", place.folder]
            done = ssh.run(place.host, [*at, *words], stdin, {**place.variables, **(variables or {})}, seconds)
        else:
            done = subprocess.run(
                list(words),
                input=stdin.encode(errors="surrogateescape"),
                capture_output=True,
                check=False,
                cwd=folder,
                timeout=seconds,
                env={**outside, **(variables or {})},
            )
    except FileNotFoundError:
        raise SchedulerError(f"{words[0]}: not found; is this a login node of the site?") from None
    except subprocess.TimeoutExpired:
        raise SchedulerError(f"{words[0]}: no answer after {seconds:g} s; its daemon may be down") from None
    except OSError as error:
        raise SchedulerError(f"{words[0]}: {error.strerror}") from None
    stdout, stderr = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    if done.returncode not in fine:
        raise SchedulerError((stderr or stdout).strip() or f"{words[0]} ended with exit code {done.returncode}")
    return subprocess.CompletedProcess(words, done.returncode, stdout, stderr)
