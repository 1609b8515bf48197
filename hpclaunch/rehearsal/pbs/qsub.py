"""qsub as jobs and hpclaunch call it here: the job waits in a folder, to run after those that wait there already."""

from __future__ import annotations

import getopt
import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hpclaunch.rehearsal.pbs.job import submission_variables
from hpclaunch.rehearsal.processes import MARK

QUEUE = "queue"  # a folder of the jobs that wait
FIRST = "first"  # a file with the number of the first job
NO_QSUB = "no-qsub"  # a file where jobs may not submit jobs
SERVER = "rehearsal"
DIRECTIVES = "e:hj:J:k:l:m:M:N:o:p:P:q:r:S:v:VW:z"


@dataclass(frozen=True)
class Submission:
    """A job that waits."""

    id: str
    index: int | None  # in an array
    name: str
    script: str  # the path of PBS's copy
    options: dict[str, str]
    variables: dict[str, str]
    workdir: str

    def outputs(self) -> list[Path]:
        """Return the paths of the job's output and, unless they are joined, of its errors."""
        number = re.sub(r"\[(\d*)\].*|\..*", lambda found: f".{found[1]}" if found[1] else "", self.id)
        kinds = {"oe": "o", "eo": "e"}.get(self.options.get("j", ""), "oe")
        return [self._output(self.options.get(kind, ""), f"{self.name}.{kind}{number}", kind) for kind in kinds]

    def _output(self, asked: str, default: str, kind: str) -> Path:
        path = Path(self.workdir, asked.rpartition(":")[2] or default)
        return path / f"{self.id}.{'OU' if kind == 'o' else 'ER'}" if path.is_dir() else path


def directives(script: str) -> dict[str, str]:
    """Return the options in the #PBS lines of a script; those of several -l are joined by commas."""
    found: dict[str, str] = {}
    for line in re.findall(r"^#PBS\s+(.*)$", script, re.MULTILINE):
        for option, value in getopt.getopt(shlex.split(line), DIRECTIVES)[0]:
            name = option[1:]
            found[name] = f"{found[name]},{value}" if name == "l" and name in found else value
    return found


def main() -> int:
    """Submit a job; return qsub's exit code."""
    folder = Path(os.environ[MARK])
    if (folder / NO_QSUB).exists() and os.environ.get("PBS_JOBID", "").endswith(SERVER):
        print("qsub: Bad UID for job execution", file=sys.stderr)
        return 175
    try:
        given, rest = getopt.getopt(sys.argv[1:], "N:v:W:")
        script = sys.stdin.buffer.read() if rest in ([], ["-"]) else Path(rest[0]).read_bytes()
        options = directives(script.decode(errors="surrogateescape")) | {name[1:]: value for name, value in given}
        passed = dict(_passed(item) for item in options.get("v", "").split(",") if item)
        indices = _indices(options["J"]) if "J" in options else [None]
    except (getopt.GetoptError, OSError, ValueError) as error:
        print(f"qsub: {error} (the stand-in of a rehearsal takes -N, -v and -W depend)", file=sys.stderr)
        return 2
    except KeyError:
        print("qsub: cannot send environment with the job", file=sys.stderr)
        return 3
    variables = submission_variables(options.get("q", "")) | passed
    print(_queue(folder, script, options, variables, indices))
    return 0


def _passed(item: str) -> tuple[str, str]:
    """Return a variable of -v; without a value it has that of the caller's environment. Raises KeyError."""
    name, equals, value = item.partition("=")
    return name, value if equals else os.environ[name]


def _indices(text: str) -> Sequence[int]:
    """Return the indices of -J: `0-3`, `1-4:2` or `0-3%2`. Raises ValueError."""
    if not (found := re.fullmatch(r"(\d+)-(\d+)(?::(\d+))?(?:%\d+)?", text)):
        raise ValueError(f"illegal -J value {text}")
    return range(int(found[1]), int(found[2]) + 1, int(found[3] or 1))


def _queue(
    folder: Path, script: bytes, options: dict[str, str], variables: dict[str, str], indices: Sequence[int | None]
) -> str:
    """Write the job, or each job of an array, to the queue; return its id."""
    scripts = folder / "mom_priv" / "jobs"
    scripts.mkdir(parents=True, exist_ok=True)
    number = int((folder / FIRST).read_text()) + len(list(scripts.iterdir()))
    job_id = f"{number}.{SERVER}" if indices == [None] else f"{number}[].{SERVER}"
    path = scripts / f"{job_id}.SC"
    path.write_bytes(script)
    path.chmod(0o700)
    for index in indices:
        own, subjob = job_id, {}
        if index is not None:
            own, subjob = f"{number}[{index}].{SERVER}", {"PBS_ARRAY_ID": job_id, "PBS_ARRAY_INDEX": str(index)}
        name = options.get("N", "STDIN")
        job = Submission(own, index, name, str(path), options, variables | subjob, variables["PBS_O_WORKDIR"])
        (folder / QUEUE / f"{number:020}-{index or 0:020}").write_text(json.dumps(asdict(job)))
    return job_id
