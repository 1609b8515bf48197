"""Run a job script on this machine: its run folder, and bash in this process's place."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from hpclaunch.errors import HpclaunchError
from hpclaunch.runs import FOLDER, write_whole


def run(script: str, job_id: str, **variables: str) -> NoReturn:
    """Save `script` in the run folder `job_id` below the current one and become the bash that runs it.

    Signals and the exit code are then the script's own. Raises HpclaunchError where the folder cannot be written.
    """
    path = Path(FOLDER, job_id, "job.sh")
    try:
        path.parent.mkdir(parents=True)
        write_whole(path, script.encode(errors="surrogateescape"))  # its owner's alone: there may be keys in it
    except OSError as error:
        raise HpclaunchError(f"{path.parent}: cannot be written: {error.strerror}") from None
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe("bash", ["bash", str(path)], os.environ | variables)
    except OSError as error:
        raise HpclaunchError(f"bash: {error.strerror}") from None
