"""PBS's commands, PBS Pro and OpenPBS. https://github.com/openpbs/openpbs/tree/master/doc/man1: qsub, qstat, qdel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hpclaunch.errors import HpclaunchError, SchedulerError
from hpclaunch.schedulers import VISIBLE_DEVICES, Scheduler, run_folder
from hpclaunch.schedulers.command import call
from hpclaunch.schedulers.job import Allocation, Job, directive, leading_number, note_attempts
from hpclaunch.schedulers.pbs.states import FINISHED, UNKNOWN_ID, states, usage

if TYPE_CHECKING:
    from hpclaunch.schedulers.machine import Machine


class Pbs(Scheduler):
    """PBS Pro 14 and later, OpenPBS."""

    prefix = "PBS"
    resubmits = True
    output_at_end = True
    job_variable = "PBS_JOBID"
    host_variables = (
        *Scheduler.host_variables,
        *("PBS_ENVIRONMENT", "PBS_JOBCOOKIE", "PBS_MOMPORT", "PBS_NODEFILE", "PBS_NODENUM", "PBS_TASKNUM"),
    )
    own_variables = frozenset({"NCPUS"})  # it shadows a variable given by -v
    account_directive = "-A {account}"
    array_directives = ("-J {}", "-r y")  # an array must be rerunnable
    array_index = "PBS_ARRAY_INDEX"
    ids = r"\d+(\[\d*\])?(\.[\w.-]+)?", "; other jobs have ids like 123, 123.server or 123[]"
    needs = ("qsub", "qstat", "qdel")

    states = staticmethod(states)
    usage = staticmethod(usage)

    def submit(self, script: str, after: Sequence[str] = (), name: str = "") -> str:
        """Submit the script through qsub's stdin, so that no file is left if it is refused."""
        # OpenPBS 23.06, seen. One job: https://github.com/openpbs/openpbs/blob/master/src/server/req_register.c
        if vague := next((one for one in after if re.search(r"^after(not)?ok:.*\[\]|\[\d", one)), None):
            text = f"{vague}: PBS neither waits for one job of an array nor knows whether an array succeeded"
            raise SchedulerError(text, "use --after-any ARRAY, or: hpclaunch wait JOB && hpclaunch submit ...")
        return _qsub(script, *(["-W", f"depend={','.join(after)}"] if after else []), *(["-N", name] if name else []))

    def submit_all(self, script: str, attempts: int, runs: Path, after: Sequence[str], name: str) -> list[str]:
        """Submit a job and its further attempts, each after the one before.

        Raises SchedulerError if one is refused; then none is left, or the message has the ids of those that are.
        """
        ids = [self.submit(script, after, name)]
        try:
            for attempt in range(2, attempts + 1):
                ids.append(_submit_attempt(script, runs / ids[0], attempt, previous=ids[-1]))
        except SchedulerError as error:
            try:
                _delete(ids[::-1])
            except SchedulerError as left:
                raise SchedulerError(str(error), f"{' '.join(ids)}: submitted, and not deleted: {left}") from None
            raise
        return ids

    def mail(self, address: str, events: str) -> list[str]:
        """Return -M and -m: `a` is for what PBS ends, the failure of a command is an end as any other."""
        letters = {*"".join({"fail": "ae", "begin": "b", "end": "e"}[word] for word in events.split(","))}
        return [f"-M {address}", f"-m {''.join(sorted(letters))}"]

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Delete every attempt, the last first, so that none starts because the one before it is gone."""
        asked: set[str] = set()
        while left := [i for job in jobs for i in reversed([job.id, *job.further_ids]) if i not in asked]:
            _delete(left)
            asked |= set(left)  # one may just have submitted its next attempt
        for job in jobs:
            with suppress(OSError):  # else who waits for the run learns of it later
                (job.path / run_folder.CANCELLED).touch()

    def interactive(self, script: Path) -> list[str]:
        """Return qsub -I, which reads only directives: its shell reads the script before it prompts.

        Of two -v only the command line's counts. Quotes in one are lost, so IFS keeps a path with blanks together.
        """
        text = script.read_text()
        reads = f"PROMPT_COMMAND=IFS=; . $PBS_O_WORKDIR/{script.relative_to(Path.cwd())}"
        listed = ",".join([reads, *re.findall(r"^#PBS -v (\S+)", text, re.MULTILINE)])
        return ["qsub", "-I", "-S", "/bin/bash", "-v", listed, str(script)]

    def requeue(self, environment: Mapping[str, str], folder: Path) -> None:
        """Submit the run's next attempt, once: qrerun is for PBS's managers."""
        job_id = environment["PBS_JOBID"]
        if "[" in job_id:
            raise SchedulerError(f"{job_id}: PBS cannot start one job of an array again; submit it by itself")
        attempt = int(environment.get("HPCLAUNCH_ATTEMPT") or 1) + 1
        mark = folder / run_folder.ATTEMPT.format(attempt)
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return  # a second signal
        try:
            successor = _submit_attempt((folder / run_folder.SCRIPT).read_text(), folder, attempt, previous=job_id)
        except SchedulerError:
            mark.unlink()
            raise
        note_attempts(folder, [successor])

    def output(self, job: Job) -> Path | None:
        """Return the last attempt's NAME.oNUMBER, or .INDEX of it in an array, or the file that the script names."""
        if named := directive(job, r"PBS\s(?:[^#\n]*\s)?-o\s*"):
            path = job.submitted_from / named.rpartition(":")[2]  # HOST:PATH
            path = path / f"{job.id}.OU" if path.is_dir() else path
            if path.is_file():
                return path
        from glob import escape  # not before it is needed: start-up time counts

        for job_id in reversed([job.id, *job.further_ids]):
            number = re.sub(r"\[(\d+)\]", r".\1", job_id.split(".")[0])
            if found := next(job.submitted_from.glob(f"*.o{escape(number)}"), None):
                return found
        return None

    def array_ids(self, array: str, indices: Iterable[int]) -> list[str]:
        """Return 107[0].gadi-pbs and so on."""
        return [array.replace("[]", f"[{index}]", 1) for index in indices]

    def allocation(self, environment: Mapping[str, str]) -> Allocation:
        """Read the nodefile, and what PBS sets in the environment of the job's own shell."""
        job_id = environment[self.job_variable]
        hosts: list[str] = []
        with suppress(OSError):
            hosts = list(dict.fromkeys(Path(environment.get("PBS_NODEFILE", "")).read_text().split()))
        if not hosts:
            raise HpclaunchError(
                f"launch: job {job_id} has no PBS_NODEFILE here; launch on its first node, in the job's own shell"
            )
        # Gadi counts the GPUs of the whole job in PBS_NGPUS.
        gpus = leading_number(environment.get("PBS_NGPUS")) // len(hosts)
        visible = next(filter(None, map(environment.get, VISIBLE_DEVICES)), "")
        seen = [word for word in visible.split(",") if word]
        cpus = leading_number(environment.get("NCPUS"))
        return Allocation(self.name, job_id, nodes=len(hosts), cpus=cpus, gpus=gpus or len(seen))

    def ping(self, seconds: float) -> str:
        """Ask the server for itself."""
        answer = call(["qstat", "-B", "-f", "-F", "json"], seconds=seconds).stdout
        with suppress(ValueError, KeyError, TypeError):
            document = json.loads(answer, strict=False)
            return f"{document['pbs_server']}, PBS {document['pbs_version']}"
        return "it answers"

    def closed(self, partition: str, seconds: float) -> str:
        """Return the attribute that says that a queue is not enabled or not started."""
        answer = call(["qstat", "-Q", "-f", "-F", "json", partition], seconds=seconds).stdout
        found = re.search(r'"(enabled|started)":\s*"False"', answer)
        return found[0] if found else ""

    def accounts(self) -> tuple[list[str], bool]:
        """Return the user's unix groups: projects often are groups, and need not be."""
        from hpclaunch.schedulers.machine import my_groups

        return sorted(my_groups()), False

    def detect(self) -> Machine:
        """Ask the server."""
        from hpclaunch.schedulers.pbs.detect import ask

        return ask()


def _submit_attempt(script: str, folder: Path, attempt: int, previous: str) -> str:
    """Submit a further attempt of the run in `folder`, to start once the job `previous` has ended; return its id."""
    passed = re.findall(r"^#PBS -v (\S+)", script, re.MULTILINE)  # of two -v only the command line's counts
    listed = ",".join([f"HPCLAUNCH_JOB={folder.name}", f"HPCLAUNCH_ATTEMPT={attempt}", *passed])
    words = ["-W", f"depend=afterany:{previous}", "-v", listed]
    return _qsub(script, *words, folder=folder.parent.parent)  # from where the first was: PBS_O_WORKDIR


def _qsub(script: str, *options: str, folder: Path | None = None) -> str:
    try:
        answer = call(["qsub", *options], stdin=script, folder=folder).stdout.split()
    except SchedulerError as error:
        said = re.split(r"^usage:", str(error), maxsplit=1, flags=re.MULTILINE)[0].strip()
        raise SchedulerError(said or str(error)) from None
    if not answer:
        raise SchedulerError("qsub printed no job id")
    return answer[-1]


def _delete(ids: Sequence[str]) -> None:
    """Delete jobs by their whole ids, except those that have ended or are not known. Raises SchedulerError."""
    call(["qdel", *ids], fine=(0, FINISHED, UNKNOWN_ID))
