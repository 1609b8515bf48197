"""The variables of a Slurm job and of its steps, as Slurm 22.05 sets them: those that programs read.

https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

# What a job has only if its script has the option.
_FROM_OPTIONS = {
    "account": "SLURM_JOB_ACCOUNT",
    "cpus-per-task": "SLURM_CPUS_PER_TASK",
    "partition": "SLURM_JOB_PARTITION",
    "qos": "SLURM_JOB_QOS",
}


def job_variables(options: Mapping[str, str], job_id: str, hosts: Sequence[str]) -> dict[str, str]:
    """Return what the batch script sees; `options` are those of #SBATCH, by their long names."""
    tasks = int(options.get("ntasks-per-node", 1))
    found = {name: options[option] for option, name in _FROM_OPTIONS.items() if option in options}
    if gpus := re.search(r"gpu\D*(\d+)$", options.get("gres", "")):
        devices = ",".join(map(str, range(int(gpus[1]))))
        found |= {"SLURM_GPUS_ON_NODE": gpus[1], "SLURM_JOB_GPUS": devices, "CUDA_VISIBLE_DEVICES": devices}
    return {
        **found,
        "SLURM_CPUS_ON_NODE": str(tasks * int(options.get("cpus-per-task", 1))),
        "SLURM_JOBID": job_id,
        "SLURM_JOB_ID": job_id,
        "SLURM_JOB_NAME": options["job-name"],
        "SLURM_JOB_NODELIST": ",".join(hosts),
        "SLURM_JOB_NUM_NODES": str(len(hosts)),
        "SLURM_NODELIST": ",".join(hosts),
        "SLURM_SUBMIT_DIR": str(Path.cwd()),
        **_places(hosts, tasks, rank=0, local_ranks=1),
    }


def step_variables(
    job: Mapping[str, str], hosts: Sequence[str], tasks: int, cpus: int | None, rank: int
) -> dict[str, str]:
    """Return the variables of one task of a step with so many tasks on each of `hosts`.

    `cpus` are those that srun was given for each task: the job's own do not count there.
    """
    found = {name: value for name, value in job.items() if name != "SLURM_CPUS_PER_TASK"}
    if cpus:
        found["SLURM_CPUS_PER_TASK"] = str(cpus)
    places = _places(hosts, tasks, rank, tasks)
    step = {
        "SLURM_STEP_ID": "0",
        "SLURM_STEPID": "0",
        "SLURM_STEP_NODELIST": ",".join(hosts),
        "SLURM_STEP_NUM_NODES": str(len(hosts)),
        "SLURM_STEP_NUM_TASKS": places["SLURM_NTASKS"],
        "SLURM_STEP_TASKS_PER_NODE": places["SLURM_TASKS_PER_NODE"],
    }
    return found | step | places


def _places(hosts: Sequence[str], tasks: int, rank: int, local_ranks: int) -> dict[str, str]:
    """Return the number of tasks, the job's own in its script, and the place of one of them."""
    node, local_rank = divmod(rank, local_ranks)
    return {
        "SLURM_NNODES": str(len(hosts)),
        "SLURM_NTASKS": str(len(hosts) * tasks),
        "SLURM_NPROCS": str(len(hosts) * tasks),
        "SLURM_NTASKS_PER_NODE": str(tasks),
        "SLURM_TASKS_PER_NODE": f"{tasks}(x{len(hosts)})" if len(hosts) > 1 else str(tasks),
        "SLURMD_NODENAME": hosts[node],
        "SLURM_LOCALID": str(local_rank),
        "SLURM_NODEID": str(node),
        "SLURM_PROCID": str(rank),
    }
