"""From a request to a plan: every number of the job final, every refusal and warning made."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from pathlib import PurePath

from msgspec import Struct, structs

from hpclaunch import walltime
from hpclaunch.errors import RequestError, counted
from hpclaunch.job import checks
from hpclaunch.job.checks import Finding
from hpclaunch.job.checks.limits import known_qos, qos_limits, unlisted_qos
from hpclaunch.job.checks.suggestions import with_suggestions
from hpclaunch.job.checks.words import HIDES_SLURM
from hpclaunch.job.cost import Cost, job_cost
from hpclaunch.job.request import Request
from hpclaunch.job.storage import of_job
from hpclaunch.paths import WORKLOADS
from hpclaunch.profile.model import ONE_PER_NODE, Partition, Qos, Site
from hpclaunch.profile.search import Profile

_ANY_HOST = ["HOSTNAME", "TMPDIR", "CUDA_VISIBLE_DEVICES"]
HOST_VARIABLES = {
    "local": _ANY_HOST,
    "pbs": [
        *_ANY_HOST,
        "PBS_ENVIRONMENT",
        "PBS_JOBCOOKIE",
        "PBS_MOMPORT",
        "PBS_NODEFILE",
        "PBS_NODENUM",
        "PBS_TASKNUM",
    ],
    "slurm": [
        *_ANY_HOST,
        "SLURMD_NODENAME",
        "SLURM_GTIDS",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_PROCID",
        "SLURM_TASK_PID",
    ],
}
MOST_LOGS = 512  # of ranks in one folder
HEARTBEATS_A_SECOND = 32  # of all nodes: each is a rename on the shared file system
NO_MODULES = ["none"]  # a request for no modules but those that a partition must have
_MNIST = "mnist"  # what runs where nothing is asked for
# The options whose words may mean nothing at a site, by the check that says so.
_WORDS = {"partition": (), "walltime": ("walltime", "warn_before"), "workload": ("workload",), "force": ()}


class Plan(Struct, frozen=True, kw_only=True):
    """A job in final numbers. `*_per_node` is per node, the rest is of the whole job; walltime in seconds.

    With a `run_id` its nodes are there already: the script asks for nothing, and that is its run folder's name.
    """

    name: str
    site: Site
    request: Request
    partition_name: str
    partition: Partition
    job_name: str
    account: str | None
    qos: Qos | None
    launcher: str
    nodes: int
    tasks_per_node: int
    gpus_per_node: int
    cpus_per_node: int
    cpus_per_task: int
    mem_gb_per_node: int | None
    jobfs_gb_per_node: int | None
    seconds: int
    modules: list[str]
    storage: list[str]
    directives: list[str]
    command: list[str]
    cost: Cost | None
    max_attempts: int = 1
    warn_seconds: int = 120
    warn_signal: str = "USR1"
    run_id: str | None = None
    warnings: list[str] = []
    foreign: list[str] = []  # the profile's files that are not shipped ones

    @property
    def world_size(self) -> int:
        """Count the ranks of the job."""
        return self.nodes * self.tasks_per_node

    @property
    def workload(self) -> str | None:
        """Name the bundled workload that the command runs, None where the command is the person's own."""
        return None if self.request.command else self.request.workload or _MNIST

    def hidden(self) -> Plan:
        """Return the plan without the secret values of the request, to show or to keep."""
        return structs.replace(self, request=self.request.hidden())

    @property
    def walltime(self) -> str:
        """Return the walltime as HH:MM:SS."""
        return walltime.clock(self.seconds)

    @property
    def starts_per_node(self) -> int:
        """Count what the scheduler starts on a node: each rank, or one launcher that starts the ranks."""
        return 1 if self.launcher in ONE_PER_NODE else self.tasks_per_node

    @property
    def cpus_per_start(self) -> int:
        """Count the cores of what the scheduler starts."""
        return self.cpus_per_task * self.tasks_per_node // self.starts_per_node

    @property
    def many_logs(self) -> bool:
        """Whether the ranks' logs lie in a folder for each node: one of thousands is slow on shared file systems."""
        return self.world_size > MOST_LOGS

    @property
    def heartbeat_seconds(self) -> int:
        """Return the seconds between a node's heartbeats: rarer the more nodes there are, to spare the file system."""
        return math.ceil(self.nodes / HEARTBEATS_A_SECOND)

    @property
    def silent_seconds(self) -> int:
        """Return how long a node may be silent until it counts as dead: more than two of its heartbeats."""
        return max(walltime.clock_seconds(self.site.dead_after), 2 * self.heartbeat_seconds + 3)

    @property
    def grace_seconds(self) -> int:
        """Return how long ranks have from TERM to KILL."""
        return walltime.clock_seconds(self.site.grace)

    @property
    def host_variables(self) -> list[str]:
        """List the variables that belong to one host, so that the head's must not reach another; save what is asked."""
        asked = {*self.request.env, *self.request.pass_env, *self.site.env}
        return [name for name in HOST_VARIABLES[self.site.scheduler] if name not in asked]

    @property
    def python(self) -> str:
        """Return the python that runs the command, so that torchrun is run by the same one."""
        return self.command[0] if re.fullmatch(r"python[\d.]*", PurePath(self.command[0]).name) else "python"

    @property
    def price(self) -> str:
        """Say what the job costs at most; nothing where that is not known."""
        if self.cost is None:
            return "free of charge" if self.partition.free else ""
        return f"at most {self.cost}{self._unsure}"

    @property
    def explained_price(self) -> str:
        """Return what the job costs at most, with its formula; nothing where that is not known."""
        return f"{self.cost.explained}{self._unsure}" if self.cost else ""

    @property
    def _unsure(self) -> str:
        return " (not confirmed)" if "charge" in self.partition.unconfirmed else ""

    @property
    def about(self) -> dict[str, str | int]:
        """Return what a run folder's run.json says of the plan, by the names of `runs.Run`."""
        return {
            "site": self.name,
            "scheduler": self.site.scheduler,
            "job_name": self.job_name,
            "partition": self.partition_name,
            "nodes": self.nodes,
            "tasks_per_node": self.tasks_per_node,
            "seconds": self.seconds,
            "max_attempts": self.max_attempts,
            "poll": walltime.clock_seconds(self.site.poll),
        }

    def summary(self) -> str:
        """Return size, walltime and price on one line."""
        parts = [
            f"{self.name} {self.partition_name}: {counted(self.nodes, 'node')} x "
            f"{counted(self.tasks_per_node, 'task')} = world size {self.world_size}"
        ]
        if self.site.scheduler != "local":
            parts.append(f"{self.nodes * self.cpus_per_node} cpus")
        if self.gpus_per_node:
            parts.append(f"{self.nodes * self.gpus_per_node} GPUs")
        if self.mem_gb_per_node:
            parts.append(f"{self.nodes * self.mem_gb_per_node} GB")
        if self.site.scheduler != "local" and not self.run_id:
            attempts = f"{self.max_attempts} attempts of " if self.max_attempts > 1 else ""
            parts.append(f"walltime {attempts}{self.walltime}")
        if self.price and self.site.scheduler != "local":
            parts.append(self.price)
        return ", ".join(parts)


def make_plan(profile: Profile, request: Request) -> Plan:
    """Fill every number that the request leaves open from the profile.

    Raises RequestError with every refusal at once, each with the numbers and what would be right.
    """
    plan, findings = consider(profile, request)
    refusals = [str(finding) for finding in findings if finding.refuses]
    if plan is None or refusals:
        raise RequestError(*refusals)
    return plan


def consider(profile: Profile, request: Request) -> tuple[Plan | None, list[Finding]]:
    """Return the plan of a request and all that is to be said of it, refusals and warnings alike.

    The plan is there also where a finding refuses it; it is None where a word of the request means nothing here.
    The rest of such a request is checked all the same, so that everything is said at once.
    """
    findings = list(checks.request_findings(profile, request))
    wrong = {finding.check for finding in findings}
    left_open = {option: None for name in wrong for option in _WORDS[name]}
    request = structs.replace(request, **left_open)
    plan = _plan(profile, request)

    def check(request: Request) -> Iterator[Finding]:
        return checks.plan_findings(profile, _plan(profile, request), anywhere="partition" in wrong)

    findings = list(with_suggestions([*findings, *check(request)], request, check))
    if wrong:
        return None, findings
    warnings = [str(finding) for finding in findings if not finding.refuses]
    return structs.replace(plan, warnings=warnings), findings


def _plan(profile: Profile, request: Request) -> Plan:
    """Fill every number, whatever the site may think of it; each word of the request is known to mean something."""
    site = profile.site
    wanted = request.partition or site.default_partition
    partition_name, partition = site.find_partition(wanted) or (wanted, Partition())
    seconds = walltime.parse(request.walltime or site.default_walltime)
    max_attempts = request.max_attempts or site.max_attempts

    nodes = request.nodes or 1
    gpus = _gpus_per_node(partition, request, nodes)
    tasks = request.tasks_per_node or gpus or 1
    offered = _offered_cpus(partition, nodes, gpus)
    cpus_per_task = request.cpus_per_task or max(offered // tasks, 1)
    whole = partition.cores_per_node if nodes > 1 and site.multi_node != "shared" else None
    if request.cpus_per_task and not (whole or (partition.cpus_per_gpu_exact and gpus)):
        cpus = tasks * cpus_per_task
    else:
        cpus = whole or max(offered, tasks)
    share = min(cpus / partition.cores_per_node, 1) if partition.cores_per_node else 1
    mem = request.mem_gb or (
        _part(share, partition.default_mem_gb_per_node or partition.mem_gb_per_node) if site.ask_memory else None
    )
    jobfs = (
        request.jobfs_gb or _part(share, partition.default_jobfs_gb_per_node or partition.jobfs_gb_per_node)
        if site.ask_jobfs
        else None
    )
    exclusive = site.multi_node == "exclusive" and nodes > 1
    bare = request.module == NO_MODULES
    program = str(WORKLOADS[request.workload or _MNIST])
    command = request.command or [sys.executable if site.scheduler == "local" else "python", program]
    return Plan(
        name=profile.name,
        site=site,
        request=request,
        partition_name=partition_name,
        partition=partition,
        job_name=request.job_name or name_of(command),
        account=request.account or site.account,
        qos=_choose_qos(partition, request.qos, seconds, nodes * gpus, nodes * cpus),
        launcher=request.launcher or site.launcher,
        nodes=nodes,
        tasks_per_node=tasks,
        gpus_per_node=gpus,
        cpus_per_node=cpus,
        cpus_per_task=cpus_per_task,
        mem_gb_per_node=mem,
        jobfs_gb_per_node=jobfs,
        seconds=seconds,
        modules=list(dict.fromkeys(partition.modules + ([] if bare else request.module or site.modules))),
        storage=of_job(
            site,
            request,
            command,
            modules=not bare,
            datasets=not request.command and request.workload in (None, _MNIST),
        ),
        directives=site.directives + [re.sub(r"^#(PBS|SBATCH)\s+", "", line) for line in request.directive],
        command=command,
        cost=job_cost(
            partition,
            nodes=nodes,
            gpus_per_node=partition.gpus_per_node if exclusive else gpus,
            cpus_per_node=cpus,
            mem_gb=nodes * (mem or 0),
            seconds=seconds,
            attempts=max_attempts,
        ),
        max_attempts=max_attempts,
        foreign=profile.foreign,
        warn_seconds=walltime.parse(request.warn_before or site.warn_before),
    )


def _gpus_per_node(partition: Partition, request: Request, nodes: int) -> int:
    """All of a node's GPUs, on a single node no more than there are tasks; none where jobs are small."""
    if request.gpus_per_node is not None or partition.small_jobs:
        return request.gpus_per_node or 0
    if nodes == 1 and request.tasks_per_node:
        return min(partition.gpus_per_node, request.tasks_per_node)
    return partition.gpus_per_node


def _offered_cpus(partition: Partition, nodes: int, gpus: int) -> int:
    """Cores of a node for the job: its GPUs' share, a whole node, or one where jobs are small or nothing is known."""
    if gpus and partition.cpus_per_gpu:
        return gpus * partition.cpus_per_gpu
    cores = 1 if partition.small_jobs else partition.cores_per_node or 1
    return cores if nodes > 1 else min(cores, partition.max_cores or cores)


def _part(share: float, whole: float | None) -> int | None:
    return max(math.floor(share * whole), 1) if whole else None


def _choose_qos(partition: Partition, wanted: str | None, seconds: int, gpus: int, cores: int) -> Qos | None:
    """Return the QoS asked for, else the first that the job fits."""
    if wanted is not None:
        return known_qos(partition, wanted) or unlisted_qos(wanted)
    for qos in partition.qos:
        limits = qos_limits(qos, seconds, gpus, cores)
        if qos.automatic and all(key in qos.unconfirmed for key, _ in limits):
            return qos
    return None


def name_of(command: list[str]) -> str:
    """Name the job after its script: `python -u train.py` is `train`."""
    scripts = [word for word in command if word.endswith((".py", ".sh"))]
    stem = PurePath(scripts[0] if scripts else command[0]).stem
    name = re.sub(r"[^A-Za-z0-9._+-]", "_", stem)[:100] or "job"
    return f"{name}-job" if name in HIDES_SLURM else name
