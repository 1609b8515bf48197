"""Run a scheduler's command: a list of words, its output, its own words where it fails."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Container, Sequence
from pathlib import Path

from hpclaunch.errors import SchedulerError

# What a job has of its own: sbatch and `qsub -V` would take it as asked for, or hand it on to a job submitted from it.
_OF_A_JOB = re.compile(
    r"(SLURMD?|SRUN|TORCHELASTIC)_(?!CONF$|CLUSTERS$)|SBATCH_(CPU|MEM)_BIND|PBS_ARRAY_|HPCLAUNCH_(JOB|ATTEMPT)$"
)


def call(
    words: Sequence[str],
    stdin: str = "",
    fine: Container[int] = (0,),
    folder: Path | None = None,
    seconds: float | None = None,
) -> str:
    """Return what the command prints, from `folder` or the current one; its exit code may be any of `fine`.

    Inside of a job it has the environment that it would have outside.
    Raises SchedulerError with what it says where it fails, is not there, or has no answer after so many seconds.
    """
    inside = not {"SLURM_JOB_ID", "PBS_JOBID"}.isdisjoint(os.environ)
    try:
        done = subprocess.run(
            list(words),
            env={name: value for name, value in os.environ.items() if not (inside and _OF_A_JOB.match(name))},
            input=stdin.encode(errors="surrogateescape"),
            capture_output=True,
            check=False,
            cwd=folder,
            timeout=seconds,
        )
    except FileNotFoundError:
        raise SchedulerError(f"{words[0]}: not found; is this a login node of the site?") from None
    except subprocess.TimeoutExpired:
        raise SchedulerError(f"{words[0]}: no answer after {seconds:g} s; its daemon may be down") from None
    except OSError as error:
        raise SchedulerError(f"{words[0]}: {error.strerror}") from None
    if done.returncode not in fine:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise SchedulerError(said or f"{words[0]} ended with exit code {done.returncode}")
    return done.stdout.decode(errors="replace")
