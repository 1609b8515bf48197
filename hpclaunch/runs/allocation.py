"""The allocation at hand: the nodes that an interactive job or a job script already has."""

from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path

from msgspec import structs

from hpclaunch import paths, schedulers
from hpclaunch.errors import HpclaunchError
from hpclaunch.job.consider import make_plan
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request
from hpclaunch.profile.model import Partition, Site
from hpclaunch.profile.search import Profile
from hpclaunch.schedulers.job import Allocation
from hpclaunch.schedulers.run_folder import RUNS

# Keys of a profile that do not count in an allocation, whose environment is there already.
_OF_A_JOB = (
    "partitions", "default_partition", "multi_node", "account", "account_help", "ask_memory", "ask_jobfs", "storage",
    "storage_roots", "module_paths", "module_purge", "modules", "setup", "teardown", "directives", "max_attempts",
)  # fmt: skip


def find(environment: Mapping[str, str]) -> Allocation:
    """Return the allocation in which this process runs. Raises HpclaunchError outside of one."""
    kind = schedulers.at_hand(environment)
    if kind is None:
        raise HpclaunchError(
            "launch: there is no allocation here, neither Slurm's (SLURM_JOB_ID) nor PBS's (PBS_JOBID)",
            "use `hpclaunch shell` for one (or salloc, qsub -I), `hpclaunch submit` for a job, `hpclaunch run` here",
        )
    return kind.allocation(environment)


def plan_in(found: Allocation, profile: Profile, request: Request) -> Plan:
    """Make the plan of a launch on the allocation's nodes, in the environment as it is: no modules, no limits.

    Raises RequestError as `make_plan` does, and HpclaunchError if more nodes are requested than there are.
    """
    if isinstance(request.nodes, str) or (request.nodes or 0) > found.nodes:
        raise HpclaunchError(f"launch: --nodes {request.nodes}, but job {found.job_id} has {found.nodes}")
    here = Partition(cores_per_node=found.cpus or None, gpus_per_node=found.gpus)
    bare = Site(title="", scheduler="", partitions={"allocation": here}, default_partition="allocation")
    site = structs.replace(profile.site, **{key: getattr(bare, key) for key in _OF_A_JOB})
    request = structs.replace(
        request, nodes=request.nodes or found.nodes, tasks_per_node=request.tasks_per_node or found.tasks
    )
    plan = make_plan(Profile(profile.name, profile.layers, site), request)
    return structs.replace(plan, run_id=_new_run(found.job_id))


def _new_run(job_id: str) -> str:
    """Name a run folder after the job and the number of the launch in it, which is unique on all nodes."""
    claims = paths.user_state() / "launches"
    names = (f"{job_id}-{number}" for number in count(1))
    return next(name for name in names if not Path(RUNS, name).exists() and _claim(claims / name))


def _claim(file: Path) -> bool:
    """Create a file and return whether it is new; True as well if the folder cannot be written."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
    try:
        file.touch(exist_ok=False)
    except OSError as error:
        return not isinstance(error, FileExistsError)
    return True
