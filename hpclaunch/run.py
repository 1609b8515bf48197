"""Run a job script on this machine: its run folder, and bash in this process's place."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from hpclaunch.errors import HpclaunchError
from hpclaunch.runs import FOLDER
from hpclaunch.schedulers.local import new_id


def run(script: str) -> NoReturn:
    """Save `script` in a new run folder below the current one and become the bash that runs it.

    Signals and the exit code are then the script's own. Raises HpclaunchError where the folder cannot be written.
    """
    job_id = new_id()
    path = Path(FOLDER, job_id, "job.sh")
    try:
        path.parent.mkdir(parents=True)
        path.write_text(script, encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise HpclaunchError(f"{path.parent}: cannot be written: {error.strerror}") from None
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe("bash", ["bash", str(path)], {**os.environ, "HPCLAUNCH_JOB_ID": job_id})
    except OSError as error:
        raise HpclaunchError(f"bash: {error.strerror}") from None
