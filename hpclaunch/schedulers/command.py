"""Run a scheduler's command, here without a shell or on another host; if it fails, the error has its own words."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from hpclaunch.errors import SchedulerError

if TYPE_CHECKING:
    import subprocess

STATE_SECONDS = 60  # for an answer about states: one scheduler that hangs must not block the others
# Variables of the job at hand, which sbatch and `qsub -V` would take for requests or hand to a job submitted from it.
_OF_A_JOB = r"(SLURMD?|SRUN|TORCHELASTIC)_(?!CONF$|CLUSTERS$)|SBATCH_(CPU|MEM)_BIND|PBS_ARRAY_|HPCLAUNCH_(JOB|ATTEMPT)$"


# What runs commands on another host, given the words, the input, variables and the most seconds.
ELSEWHERE: ContextVar[
    Callable[[Sequence[str], str, Mapping[str, str], float | None], subprocess.CompletedProcess[bytes]] | None
] = ContextVar("elsewhere", default=None)


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
        if run := ELSEWHERE.get():
            done = run(words, stdin, variables or {}, seconds)
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
