"""qsub as a rehearsal needs it: a job that is submitted waits in a folder until those before it have ended."""

import getopt
import json
import os
import re
import shlex
import sys
import time
from pathlib import Path

from hpclaunch.rehearsal.pbs.job import submission_variables
from hpclaunch.rehearsal.processes import MARK

QUEUE = "mom_priv/jobs"  # the folder with the scripts of jobs, and beside each the variables of a job that waits
NO_QSUB = "no-qsub"  # a file that is there if jobs may not submit jobs


def directives(script: str) -> dict[str, str]:
    """Return the options in the #PBS lines of a script; those of several -l are joined by commas."""
    found: dict[str, str] = {}
    for line in re.findall(r"^[ \t]*#PBS\s+(.*)$", script, re.MULTILINE):
        for option, value in getopt.getopt(shlex.split(line), "a:A:c:C:e:fhj:J:k:l:m:M:N:o:p:P:q:r:R:S:u:v:VW:z")[0]:
            name = option[1:]
            found[name] = f"{found[name]},{value}" if name == "l" and name in found else value
    return found


def main() -> int:
    """Submit a job; return qsub's exit code."""
    folder = Path(os.environ[MARK])
    if (folder / NO_QSUB).exists() and "PBS_JOBID" in os.environ:
        print("qsub: Bad UID for job execution", file=sys.stderr)
        return 175
    given, rest = getopt.getopt(sys.argv[1:], "v:W:")  # -W: the jobs run in order anyway
    script = sys.stdin.buffer.read() if rest in ([], ["-"]) else Path(rest[0]).read_bytes()
    options = directives(script.decode(errors="surrogateescape")) | {name[1:]: value for name, value in given}
    items = (item.partition("=") for item in options.get("v", "").split(",") if item)
    try:  # one without a value has that of the caller's environment
        passed = {name: value if equals else os.environ[name] for name, equals, value in items}
    except KeyError:
        print("qsub: cannot send environment with the job", file=sys.stderr)
        return 3
    job_id = f"{os.getpid()}.rehearsal"
    path = folder / QUEUE / f"{job_id}.SC"
    path.write_bytes(script)
    path.chmod(0o700)
    job = {"job_id": job_id, "path": str(path), "variables": submission_variables() | passed}
    (folder / QUEUE / f"{time.time_ns():020}.json").write_text(json.dumps(job))
    print(job_id)
    return 0
