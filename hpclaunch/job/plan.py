"""The plan of a job: every number final."""

from __future__ import annotations

import math
import re
from pathlib import PurePath

from msgspec import structs

from hpclaunch.errors import counted
from hpclaunch.job.cost import Cost
from hpclaunch.job.directives.options import Script
from hpclaunch.job.request import Basis, Request
from hpclaunch.job.resources import FIELDS, Resources
from hpclaunch.job.staging import Staging
from hpclaunch.paths import WORKLOADS
from hpclaunch.profile.model import Qos
from hpclaunch.profile.types import ONE_PER_NODE
from hpclaunch.schedulers import Scheduler, scheduler, walltime

MOST_LOGS = 512  # of ranks in one folder
HEARTBEATS_A_SECOND = 32  # of all nodes: each is a rename on the shared file system
MNIST = "mnist"  # what runs if neither a command nor a workload is given
# What belongs to the whole job: the value of each node, and its unit.
_TOTALS = {
    "world_size": ("tasks_per_node", "task"),
    "cpus": ("cpus_per_node", "cpu"),
    "gpus": ("gpus_per_node", "GPU"),
    "mem_gb": ("mem_gb_per_node", "GB"),
    "jobfs_gb": ("jobfs_gb_per_node", "GB"),
    "starts": ("starts_per_node", "start"),
}
# Properties that have the basis of another value.
_SAME_BASIS = {
    "seconds": "walltime",
    "starts_per_node": "tasks_per_node",
    "heartbeat_seconds": "nodes",
    "hang_after": "hang_seconds",
    "hang_round": "hang_seconds",
    "fewest_nodes": "nodes",
    "training_nodes": "nodes",
    "elastic": "max_restarts",
    "cpus_per_start": "cpus_per_task",
    "workload": "command",
    "python": "command",
    "summary": "cost",
    "price": "cost",
    "account_directive": "account",
    "gpu_directive": "gpus_per_node",
    "storage_directive": "storage",
}


class Plan(Resources, frozen=True, kw_only=True):
    """A job in final numbers. `*_per_node` is per node, the rest is of the whole job; walltime in seconds.

    `nodes` are all that are requested, the `spares` among them; with `fewest_nodes` the job may get so few.
    With a `run_id`, the name of its run folder, the job already has its nodes, and its script has no directives. The
    rank `debug_rank` has the user's terminal. An `interactive` job has a shell in place of a launch, in which that
    python runs hpclaunch.
    """

    name: str
    request: Request
    partition_name: str
    job_name: str
    qos: Qos | None
    launcher: str
    cpus_per_task: int
    seconds: int
    modules: list[str]
    network: dict[str, str]  # its variables
    directives: list[str]
    command: list[str]
    cost: Cost | None
    max_attempts: int = 1
    rank_cpus: list[str] = []  # the cores of each local rank
    fewest_nodes: int | None = None
    spares: int = 0
    max_restarts: int = 0  # of the ranks, inside the allocation
    snapshot: str = ""  # the name of the code that the job runs, if not what then lies in the folder of submission
    preflight: bool = False
    staging: Staging | None = None
    warn_seconds: int = 120
    warn_signal: str = "USR1"
    hang_seconds: int = 0
    run_id: str | None = None
    debug_rank: int | None = None
    interactive: str = ""
    array: dict[int, Plan] = {}  # its jobs by index, if they differ in more than that
    chosen: str = ""  # why this partition, if the request names none and it is not the default
    warnings: list[str] = []
    foreign: list[str] = []  # the profile's files that are not shipped ones
    basis: dict[str, Basis] = {}  # of each value; properties have theirs from basis_of
    script: Script | None = None  # the job's own script, if somebody else wrote it

    @property
    def scheduler(self) -> Scheduler:
        """Return the site's scheduler."""
        return scheduler(self.site.scheduler)

    @property
    def world_size(self) -> int:
        """Return the number of ranks of the job."""
        return self.training_nodes * self.tasks_per_node

    @property
    def training_nodes(self) -> int:
        """Return the nodes that have ranks, at most."""
        return self.nodes - self.spares

    @property
    def elastic(self) -> bool:
        """Whether ranks that fail are started again in the same allocation."""
        return self.launcher == "torchrun" and self.max_restarts > 0

    @property
    def may_lose(self) -> int:
        """Return how many nodes may die without an end of the job."""
        return self.nodes - (self.request.min_nodes or self.training_nodes) if self.elastic else 0

    @property
    def workload(self) -> str | None:
        """Return the bundled workload that the command runs, or None if the user gave a command."""
        return None if self.request.command else self.request.workload or MNIST

    def hidden(self) -> Plan:
        """Return the plan without the secret values of the request, to print or to store."""
        return structs.replace(self, request=self.request.hidden())

    @property
    def walltime(self) -> str:
        """Return the walltime as HH:MM:SS."""
        return walltime.clock(self.seconds)

    @property
    def starts_per_node(self) -> int:
        """Return how many processes the scheduler starts on a node: each rank, or one launcher that starts them."""
        return 1 if self.launcher in ONE_PER_NODE else self.tasks_per_node

    @property
    def cpus_per_start(self) -> int:
        """Return the cores of each process that the scheduler starts."""
        return self.cpus_per_task * self.tasks_per_node // self.starts_per_node

    @property
    def starts(self) -> int:
        """Return how many processes the scheduler starts for the job."""
        return self.nodes * self.starts_per_node

    @property
    def warn_after(self) -> int:
        """Return how many seconds after its start the job is warned of its end."""
        return self.seconds - self.warn_seconds

    @property
    def hang_after(self) -> str:
        """Return how long ranks may do nothing as HH:MM:SS."""
        return walltime.clock(self.hang_seconds)

    @property
    def hang_round(self) -> int:
        """Return the seconds between two looks at what the ranks do."""
        return max(self.hang_seconds // 20, 1)

    def basis_of(self, name: str) -> Basis:
        """Return what a value or a property was made from; an empty basis for one that is always the same."""
        value = getattr(self, name, None)
        if name in _TOTALS:
            each, unit = _TOTALS[name]
            number = getattr(self, each)
            amount = f"{number} {unit}" if unit == "GB" else counted(number or 0, unit)
            nodes = self.training_nodes if name == "world_size" else self.nodes
            return Basis(("plan.nodes", f"plan.{each}"), f"{counted(nodes, 'node')} x {amount} a node = {value}")
        if name == "select":
            named = re.findall(r"\{(\w+)\}", "".join(filter(self.filled, self.site.chunk)))
            return Basis(("plan.nodes", *(f"plan.{FIELDS[one]}" for one in named), "site.chunk"))
        if name == "starts_per_node" and value != self.tasks_per_node:
            return Basis(("plan.launcher",), f"one, as {self.launcher} starts the ranks of a node itself = 1")
        if name == "cpus_per_start" and value != self.cpus_per_task:
            words = f"{counted(self.tasks_per_node, 'task')} x {counted(self.cpus_per_task, 'cpu')} = {value}"
            return Basis(("plan.tasks_per_node", "plan.cpus_per_task", "plan.launcher"), words)
        if name == "warn_after":
            words = f"{self.seconds} s - {self.warn_seconds} s = {value}"
            return Basis(("plan.walltime", "plan.warn_seconds"), words)
        return self.basis.get(_SAME_BASIS.get(name, name), Basis())

    @property
    def many_logs(self) -> bool:
        """Whether each node has a folder for its ranks' logs: one of thousands is slow on shared file systems."""
        return self.world_size > MOST_LOGS

    @property
    def heartbeat_seconds(self) -> int:
        """Return the seconds between two heartbeats of a node: all nodes together make 32 a second at most."""
        return math.ceil(self.nodes / HEARTBEATS_A_SECOND)

    @property
    def silent_seconds(self) -> int:
        """Return how long a node may be silent until it counts as dead: more than two heartbeats."""
        return max(walltime.clock_seconds(self.site.dead_after), 2 * self.heartbeat_seconds + 3)

    @property
    def grace_seconds(self) -> int:
        """Return how long ranks have from TERM to KILL."""
        return walltime.clock_seconds(self.site.grace)

    @property
    def host_variables(self) -> list[str]:
        """Return the variables that differ from host to host and must not be copied, but for those that users set."""
        asked = {*self.request.env, *self.request.pass_env, *self.site.env}
        return [name for name in self.scheduler.host_variables if name not in asked]

    @property
    def python(self) -> str:
        """Return the python that runs the command, which must run torchrun too."""
        return self.command[0] if re.fullmatch(r"python[\d.]*", PurePath(self.command[0]).name) else "python"

    @property
    def preflight_program(self) -> str:
        """Return the program that tests the nodes."""
        return str(WORKLOADS["preflight"])

    @property
    def price(self) -> str:
        """Return what the job costs at most, or "" if that is not known."""
        if self.cost is None:
            return "free of charge" if self.partition.free else ""
        return f"at most {self.cost}{self._unsure}"

    @property
    def explained_price(self) -> str:
        """Return what the job costs at most, with its formula, or "" if that is not known."""
        return f"{self.cost.explained}{self._unsure}" if self.cost else ""

    @property
    def _unsure(self) -> str:
        return " (not confirmed)" if "charge" in self.partition.unconfirmed else ""

    @property
    def about(self) -> dict[str, str | int]:
        """Return what run.json in a run folder says of the plan, by the names of `runs.Run`."""
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
        nodes = f"{self.fewest_nodes - self.spares} to " if self.fewest_nodes else ""
        attempts = f"{self.max_attempts} attempts of " if self.max_attempts > 1 else ""
        queued = not self.scheduler.here
        jobs = f"{self.request.jobs} jobs, each " if self.request.jobs > 1 else ""
        parts = {
            f"{jobs}{self.name} {self.partition_name}: {nodes}{counted(self.training_nodes, 'node')} x "
            f"{counted(self.tasks_per_node, 'task')} = world size {self.world_size}": True,
            counted(self.spares, "spare node"): self.spares,
            f"{self.cpus} cpus": queued,
            f"{self.gpus} GPUs": self.gpus_per_node,
            f"{self.mem_gb} GB": self.mem_gb,
            f"walltime {attempts}{self.walltime}": queued and not self.run_id,
            f"{self.price}{' in all' if jobs and self.cost else ''}": queued and self.price,
        }
        return ", ".join(text for text, told in parts.items() if told)
