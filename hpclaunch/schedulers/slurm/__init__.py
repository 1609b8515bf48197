"""Slurm's commands. https://slurm.schedmd.com/sbatch.html and its neighbours sacct, squeue, scontrol, scancel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from glob import escape
from pathlib import Path
from shlex import split
from typing import TYPE_CHECKING

from hpclaunch.errors import HpclaunchError, SchedulerError
from hpclaunch.schedulers import Scheduler
from hpclaunch.schedulers.command import ELSEWHERE, STATE_SECONDS, call
from hpclaunch.schedulers.job import Allocation, Job, directive, leading_number
from hpclaunch.schedulers.slurm.states import states, usage

if TYPE_CHECKING:
    from hpclaunch.schedulers.machine import Machine


# Directives that salloc does not know: it has no script and no files.
_OF_SBATCH = r"-[aeio]\b|--(array|error|export|input|output|open-mode|(no-)?requeue)\b"


class Slurm(Scheduler):
    """Slurm, 22.05 and later."""

    prefix = "SBATCH"
    starts_ranks = True
    gives_range = True
    lightning_requeues = True
    job_variable = "SLURM_JOB_ID"
    host_variables = (
        *Scheduler.host_variables,
        *("SLURMD_NODENAME", "SLURM_GTIDS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_PROCID", "SLURM_TASK_PID"),
    )
    # lightning/fabric/plugins/environments/slurm.py
    interactive_names = frozenset({"bash", "interactive"})
    account_directive = "--account={account}"
    array_directives = ("--array={}",)
    array_lists = True
    signal_directive = "--signal=USR2@90"
    ids = r"\d+(_\d+)?", "; other jobs have ids like 123 or 123_4"
    needs = ("sbatch", "squeue", "scontrol", "scancel")
    useful = ("sacct", "sacctmgr")

    states = staticmethod(states)
    usage = staticmethod(usage)

    def submit(self, script: str, after: Sequence[str] = (), name: str = "") -> str:
        """Submit the script through sbatch's stdin, so that no file is left if it is refused.

        Raises HpclaunchError in a folder where no job can write its output.
        """
        own = re.search(r"^#SBATCH\s+(-o\s*|--output[= ]\s*)/", script, re.MULTILINE)
        if not (own or ELSEWHERE.get()) and re.search(r"\\|%[\w%]", str(Path.cwd())):
            raise HpclaunchError(
                f"{Path.cwd()}: Slurm expands % and \\ in the path of a job's output, and the job dies",
                "submit from a folder without % and \\ in its path",
            )
        options = [*_given(script), *([f"--dependency={','.join(after)}"] if after else [])]
        options += [f"--job-name={name}"] if name else []
        answer = call(["sbatch", "--parsable", *options], stdin=script).stdout.strip()
        if not answer:
            raise SchedulerError(
                "sbatch printed no job id: a limit on submitted jobs is reached (QOSMaxSubmitJobPerUserLimit)"
            )
        return answer.split(";")[0]  # ID;CLUSTER if there are several

    def mail(self, address: str, events: str) -> list[str]:
        """Return --mail-user and --mail-type, which has the same words."""
        return [f"--mail-user={address}", f"--mail-type={events.upper()}"]

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Cancel with one scancel, which ignores jobs that have ended."""
        call(["scancel", "--quiet", *(job.id for job in jobs)])

    def interactive(self, script: Path) -> list[str]:
        """Return salloc with the script's directives, and the step on the first node that Slurm itself would start.

        https://slurm.schedmd.com/slurm.conf.html#OPT_InteractiveStepOptions
        """
        options = _given(script.read_text(), _OF_SBATCH)
        step = ["srun", "--interactive", "--preserve-env", "--pty"]
        return ["salloc", *options, *step, "bash", "--rcfile", str(script), "-i"]

    def requeue(self, environment: Mapping[str, str], folder: Path) -> None:
        """Let Slurm start the same job again, by its name in an array: SLURM_JOB_ID of the last job is the array's."""
        call(["scontrol", "requeue", folder.name], seconds=STATE_SECONDS)

    def output(self, job: Job) -> Path | None:
        """Return NAME_ID.out or slurm-ID.out, or the file that the script names by --output."""
        array, _, index = job.id.partition("_")
        known = {"j": job.id, "A": array, "a": index, "x": job.job_name, "%": "%"}
        if named := directive(job, r"SBATCH\s(?:[^#\n]*\s)?(?:--output(?:=|\s+)|-o\s*)"):
            name = re.sub(r"%(\d*)([jAax%])", lambda part: known[part[2]].zfill(int(part[1] or 0)), named)
            if (path := job.submitted_from / name).is_file():
                return path
        return next(iter(sorted(job.submitted_from.glob(f"*[_-]{escape(job.id)}.out"))), None)

    def array_ids(self, array: str, indices: Iterable[int]) -> list[str]:
        """Return ARRAY_INDEX for each job."""
        return [f"{array}_{index}" for index in indices]

    def allocation(self, environment: Mapping[str, str]) -> Allocation:
        """Read what Slurm sets in the environment of a step, a job script or salloc's shell."""
        job_id = environment[self.job_variable]
        cpus = map(int, re.findall(r"(?:^|,)(\d+)", environment.get("SLURM_JOB_CPUS_PER_NODE", "")))
        return Allocation(
            scheduler=self.name,
            job_id=job_id,
            nodes=leading_number(environment.get("SLURM_JOB_NUM_NODES")) or 1,
            cpus=min(cpus, default=0),
            gpus=leading_number(environment.get("SLURM_GPUS_ON_NODE")) or _gpus_of(job_id),
            tasks=leading_number(environment.get("SLURM_NTASKS_PER_NODE")) or None,
        )

    def ping(self, seconds: float) -> str:
        """Ask for the controllers."""
        answer = call(["scontrol", "ping"], seconds=seconds).stdout
        if "is UP" not in answer:  # some releases say DOWN and exit with 0
            raise SchedulerError(answer)
        return "; ".join(answer.split("\n")).strip("; ")

    def closed(self, partition: str, seconds: float) -> str:
        """Return the state of a partition that is not UP."""
        answer = call(["scontrol", "--oneliner", "show", "partition", partition], seconds=seconds).stdout
        found = re.search(r"\bState=(?!UP\b)\S+", answer)
        return found[0] if found else ""

    def accounts(self) -> tuple[list[str], bool]:
        """Return the accounts of the user's associations; Slurm keeps them in lower case."""
        from hpclaunch.schedulers.slurm.accounting import associations

        try:
            return list(dict.fromkeys(row[0] for row in associations())), True
        except SchedulerError:
            return [], False

    def try_script(self, script: str, seconds: float) -> str:
        """Let sbatch check the script."""
        call(["sbatch", "--test-only", *_given(script)], stdin=script, seconds=seconds)
        return "sbatch --test-only"

    def detect(self) -> Machine:
        """Ask the controller and the accounting."""
        from hpclaunch.schedulers.slurm.detect import ask

        return ask()


def _given(script: str, left_out: str = "(?!)") -> list[str]:
    """Return our script's directives as options, over which SBATCH_ACCOUNT and the like in the shell do not win."""
    lines = re.findall("^#SBATCH (.*)", script, re.MULTILINE) if "\n# Made by hpclaunch " in script else []
    return [word for line in lines if not re.match(left_out, line) for word in split(line, comments=True)]


def _gpus_of(job_id: str) -> int:
    """Ask Slurm for the GPUs of a node: the shell of a salloc on a login node has no variable for them."""
    try:
        answer = call(["squeue", "--noheader", f"--jobs={job_id}", "--Format=tres-per-node:.80"]).stdout
    except SchedulerError:
        return 0
    found = re.search(r"gpu(?::[\w.-]+)?:(\d+)", answer)
    return int(found.group(1)) if found else 0
