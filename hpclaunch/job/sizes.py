"""From a request to a plan: every value that the request leaves open, and what each was made from."""

from __future__ import annotations

import math
import re
import sys
from pathlib import PurePath
from typing import Any, TypeVar

from msgspec import Struct

from hpclaunch.errors import counted
from hpclaunch.job.cost import Cost, job_cost
from hpclaunch.job.directives.read import read_options
from hpclaunch.job.limits import Size, qos_limits
from hpclaunch.job.plan import MNIST, Plan
from hpclaunch.job.request import NONE, Basis, Request
from hpclaunch.job.staging import make_staging
from hpclaunch.job.storage import file_systems
from hpclaunch.paths import WORKLOADS
from hpclaunch.profile.model import Partition, Qos, Site
from hpclaunch.profile.search import Profile
from hpclaunch.schedulers import Scheduler, scheduler, walltime
from hpclaunch.schedulers.values import array_size

T = TypeVar("T")


class Sizes(Struct):
    """Makes the values that a request leaves open, and records the basis of each."""

    site: Site
    request: Request
    partition: Partition
    basis: dict[str, Basis] = {}

    def made(self, name: str, value: T, *keys: str, words: str = "") -> T:
        """Return `value`, which is made from these keys, in these words."""
        self.basis[name] = Basis(keys, f"{words} = {value}" if words else "")
        return value

    def given(self, name: str, *keys: str) -> Any:
        """Return the value of the first of the keys that has one, or None."""
        for key in keys:
            place, _, field = key.partition(".")
            if (value := getattr(getattr(self, place), field)) is not None:
                return self.made(name, value, key)
        return None

    def nodes(self) -> tuple[int | None, int]:
        """Return the fewest and the most nodes, spares among them; no fewest if the number is fixed."""
        given, spares = self.given("nodes", "request.nodes"), self.request.spares or 0
        fewest, _, most = str(given or 1).rpartition(":")
        nodes, words = int(most) + spares, "" if given else "one, as --nodes is not given"
        if fewest or spares:
            words = f"the most of {given}" if fewest else counted(int(most), "node")
            words += f" + {counted(spares, 'spare')}" if spares else ""
        if words:
            self.made("nodes", nodes, *(["request.nodes"] if given else []), words=words)
        return int(fewest) + spares if fewest else None, nodes

    def restarts(self, nodes: int) -> int:
        """Return how often ranks may be started again: by default once for each node that may be lost."""
        spares, fewest = self.request.spares or 0, self.request.min_nodes
        lost = max(nodes - fewest, 0) if fewest else spares
        given = self.given("max_restarts", "request.max_restarts")
        keys = ("plan.nodes", "request.spares", "request.min_nodes")
        return given or self.made("max_restarts", lost, *keys, words="one for each node that may be lost")

    def counts(self, nodes: int) -> tuple[int, int, int, int]:
        """Return the GPUs and tasks of each node, the cores of a task and of a node."""
        gpus = self._gpus(nodes)
        tasks = self.given("tasks_per_node", "request.tasks_per_node")
        if tasks is None:
            words = f"one for each of {counted(gpus, 'GPU')} a node" if gpus else "one, as there are no GPUs"
            tasks = self.made("tasks_per_node", gpus or 1, "plan.gpus_per_node", words=words)
        offered, words, keys = self._offered_cpus(nodes, gpus)
        cpus_per_task = self.given("cpus_per_task", "request.cpus_per_task")
        if cpus_per_task is None:
            shared, by = (f" / {tasks} tasks a node", ["plan.tasks_per_node"]) if tasks > 1 else ("", [])
            cpus_per_task = self.made("cpus_per_task", max(offered // tasks, 1), *keys, *by, words=words + shared)
        cores, given = self.partition.cores_per_node, self.request.cpus_per_task
        if self.partition.whole_nodes and cores:
            cpus, keys, words = cores, ("partition.cores_per_node", "partition.whole_nodes"), "all cores of a node"
        elif nodes > 1 and self.site.multi_node != "shared" and cores:
            cpus, words = cores, "all cores of a node, as there are several nodes"
            keys = "partition.cores_per_node", "site.multi_node"
        elif given and not (self.partition.cpus_per_gpu_exact and gpus) and "cpus" not in self.site.omit:
            cpus, keys = tasks * cpus_per_task, ("plan.tasks_per_node", "plan.cpus_per_task")
            words = f"{counted(tasks, 'task')} a node x {counted(cpus_per_task, 'cpu')}"
        elif tasks > offered:
            cpus, keys, words = tasks, ("plan.tasks_per_node", *keys), "one for each task"
        else:
            cpus = offered
        return gpus, tasks, cpus_per_task, self.made("cpus_per_node", cpus, *keys, words=words)

    def _gpus(self, nodes: int) -> int:
        """Return all of a node's GPUs, on a single node at most one for each task; none where jobs are small."""
        tasks = self.request.tasks_per_node
        gpus: int = self.given("gpus_per_node", "request.gpus_per_node", "partition.gpus_per_node")
        if self.request.gpus_per_node is not None:
            return gpus
        if self.partition.small_jobs:
            return self.made("gpus_per_node", 0, "partition.small_jobs", words="none, as none is requested")
        if nodes == 1 and tasks and tasks < gpus:
            words = f"one for each of {counted(tasks, 'task')} a node"
            return self.made("gpus_per_node", tasks, "request.tasks_per_node", words=words)
        return gpus

    def _offered_cpus(self, nodes: int, gpus: int) -> tuple[int, str, tuple[str, ...]]:
        """Return the cores of a node that the job may use, in words, and the keys they come from.

        These are its GPUs' share, or a whole node, or one where jobs are small or the profile does not say.
        """
        partition = self.partition
        cores, most = partition.cores_per_node, partition.max_cores
        if gpus and (per_gpu := partition.cpus_per_gpu):
            words = f"{counted(gpus, 'GPU')} a node x {counted(per_gpu, 'cpu')}"
            return gpus * per_gpu, words, ("plan.gpus_per_node", "partition.cpus_per_gpu")
        if partition.small_jobs:
            return 1, "one core, as no size is requested", ("partition.small_jobs",)
        if not cores:
            return 1, "one core, as the profile has no cores_per_node", ()
        if nodes == 1 and most and most < cores:
            return most, counted(most, "cpu"), ("partition.max_cores",)
        return cores, counted(cores, "cpu"), ("partition.cores_per_node",)

    def gigabytes(self, what: str, asks: str, cpus: int) -> int | None:
        """Return the memory or disk of a node: that part of it which the job's cores are of the node's."""
        name, cores = f"{what}_per_node", self.partition.cores_per_node
        requested: int | None = self.given(name, f"request.{what}")
        if requested:
            return requested
        key = name if getattr(self.partition, f"default_{name}") is None else f"default_{name}"
        whole: float | None = getattr(self.partition, key)
        if not (whole and getattr(self.site, asks)) or (what == "mem_gb" and "mem" in self.site.omit):
            return None
        share = min(cpus / cores, 1) if cores else 1
        value, keys = max(math.floor(share * whole), 1), (f"partition.{key}", f"site.{asks}")
        if value == whole:
            return self.made(name, value, *keys)
        words = f"{whole:.6g} GB" + (f" x {cpus} / {cores} cpus" if share < 1 else ", rounded down")
        return self.made(name, value, *keys, "partition.cores_per_node", "plan.cpus_per_node", words=words)

    def rank_cpus(self, tasks: int, cpus: int) -> list[str]:
        """Return the cores of each local rank, or none if the nodes are not whole or have other ranks."""
        cores, own = self.partition.cores_per_node, self.partition.rank_cpus
        whole = cores is not None and cpus >= cores and (self.request.launcher or self.site.launcher) != "lightning"
        return self.made("rank_cpus", own if whole and len(own) == tasks else [], "partition.rank_cpus")

    def network(self) -> dict[str, str]:
        """Return the variables of the network."""
        name = self.given("network", "request.network", "site.network")
        keys = (*self.basis["network"].keys, f"site.networks:{name}") if name else ()
        return self.made("network", self.site.networks.get(name, {}), *keys)

    def command(self) -> list[str]:
        """Return the command, that of a bundled workload if there is none."""
        if self.request.command:
            return self.made("command", self.request.command, "request.command")
        workload = self.request.workload or MNIST
        why = "" if self.request.workload else ", as no COMMAND is given"
        self.basis["command"] = Basis(("request.workload",), f"the bundled workload {workload}{why}")
        here = scheduler(self.site.scheduler).here and not self.request.container
        return [sys.executable if here else "python", str(WORKLOADS[workload])]

    def qos(self, size: Size) -> Qos | None:
        """Return the requested QoS, else the first that the job fits."""
        wanted = self.request.qos
        passed: list[str] = []
        for number, qos in enumerate(self.partition.qos):
            if qos.name == wanted:
                return self.made("qos", qos, "request.qos", f"partition.qos.{number}")
            if wanted is not None or not qos.automatic:
                continue
            if all(key in qos.unconfirmed for key, _ in qos_limits(qos, size)):
                gpus = f" on {size.gpus} GPUs" if size.gpus else ""
                words = f"{qos.name}, the first QoS that takes {walltime.clock(size.seconds)}{gpus}"
                words += f"; not {', '.join(passed)}" if passed else ""
                self.basis["qos"] = Basis((f"partition.qos.{number}",), words)
                return qos
            passed.append(qos.name)
        if wanted is None:
            return None
        return self.made("qos", Qos(name=wanted, max_walltime="9999:59:59"), "request.qos")  # its limits are not known


def unchecked_plan(profile: Profile, request: Request) -> Plan:
    """Return the plan of a request whose words are all known, whether or not the site would take it."""
    wanted = request.partition or profile.site.default_partition
    partition_name, partition = profile.site.find_partition(wanted) or (wanted, Partition())
    site = profile.site.at(partition)
    sizes = Sizes(site, request, partition)
    fewest_nodes, nodes = sizes.nodes()
    gpus, tasks, cpus_per_task, cpus = sizes.counts(nodes)
    mem = sizes.gigabytes("mem_gb", "ask_memory", cpus)
    jobfs = sizes.gigabytes("jobfs_gb", "ask_jobfs", cpus)
    seconds = walltime.parse(sizes.given("walltime", "request.walltime", "site.default_walltime"))
    max_attempts = sizes.given("max_attempts", "request.max_attempts", "site.max_attempts")
    hang_after = sizes.given("hang_seconds", "request.hang_after", "site.hang_after")
    bare, box = request.module == NONE, request.container
    own_modules = site.container.modules if box else site.modules  # the image has what those of the site are for
    command = sizes.command()
    datasets = not request.command and request.workload in (None, MNIST)
    storage = file_systems(site, request, command, modules=not bare, datasets=datasets)
    exclusive = nodes > 1 or "--exclusive" in request.directive
    whole = partition.whole_nodes or (exclusive and site.multi_node == "exclusive")
    cost = job_cost(
        partition.charge,
        nodes=nodes,
        gpus=nodes * (partition.gpus_per_node if whole else gpus),
        cpus=nodes * (partition.cores_per_node or cpus if whole else cpus),
        mem_gb=nodes * (mem or 0),
        seconds=seconds,
        attempts=max_attempts,
    )
    arrays = read_options(request.directive, site.scheduler).all("array", "J") if request.directive else ()
    if cost and (number := max([request.jobs, *(array_size(option.value) for option in arrays)])) > 1:
        cost = Cost(round(cost.amount * number, 2), cost.unit, f"{number} jobs x {cost.formula}")
    mail = scheduler(site.scheduler).mail(request.mail, request.mail_on or "end,fail") if request.mail else []
    job_name = sizes.given("job_name", "request.job_name")
    if job_name is None:
        job_name = name_of(command, scheduler(site.scheduler))
        sizes.made("job_name", job_name, "plan.command", words="after the command")
    sizes.given("template", "request.template", "site.template", "site.scheduler")
    modules = "request.module" if request.module else "site.container" if box else "site.modules"
    alias = "" if wanted == partition_name else f"{wanted} is another name of {partition_name}"
    sizes.basis |= {
        "name": Basis(("request.site",)),
        "may_lose": Basis(("request.spares", "request.min_nodes")),
        "staging": Basis(("request.stage_in", "request.stage_out")),
        "snapshot": Basis(("request.snapshot",)),
        "spares": Basis(("request.spares",)),
        "grace_seconds": Basis(("site.grace",)),
        "silent_seconds": Basis(("site.dead_after", "plan.nodes")),
        "partition_name": Basis(("request.partition" if request.partition else "site.default_partition",), alias),
        "modules": Basis(("partition.modules", modules)),
        "directives": Basis(("site.directives", "request.mail", "request.mail_on", "request.directive")),
        "cost": Basis(("partition.charge",), cost.explained if cost else ""),
        **{f"storage:{name}": basis for name, basis in storage.items()},
    }
    return Plan(
        name=profile.name,
        site=site,
        request=request,
        partition_name=partition_name,
        partition=partition,
        job_name=job_name,
        account=sizes.given("account", "request.account", "site.account"),
        qos=sizes.qos(Size(seconds, nodes, nodes * gpus, nodes * cpus)),
        launcher=sizes.given("launcher", "request.launcher", "site.launcher"),
        nodes=nodes,
        tasks_per_node=tasks,
        gpus_per_node=gpus,
        cpus_per_node=cpus,
        cpus_per_task=cpus_per_task,
        mem_gb_per_node=mem,
        jobfs_gb_per_node=jobfs,
        seconds=seconds,
        modules=list(dict.fromkeys(partition.modules + ([] if bare else request.module or own_modules))),
        network=sizes.network(),
        storage=list(storage),
        directives=site.directives + mail + [re.sub(r"^#(PBS|SBATCH)\s+", "", line) for line in request.directive],
        command=command,
        cost=cost,
        max_attempts=max_attempts,
        rank_cpus=sizes.rank_cpus(tasks, cpus),
        fewest_nodes=fewest_nodes,
        spares=request.spares or 0,
        max_restarts=sizes.restarts(nodes),
        snapshot=request.machine.snapshot,
        preflight=sizes.given("preflight", "request.preflight", "site.preflight"),
        warn_seconds=walltime.parse(sizes.given("warn_seconds", "request.warn_before", "site.warn_before")),
        staging=make_staging(request, nodes if scheduler(site.scheduler).starts_ranks else 1),
        hang_seconds=walltime.parse(hang_after) if hang_after else 0,
        foreign=profile.foreign,
        basis=sizes.basis,
    )


def name_of(command: list[str], scheduler: Scheduler) -> str:
    """Return a name for the job after its script: `python -u train.py` is `train`."""
    scripts = [word for word in command if word.endswith((".py", ".sh"))]
    stem = PurePath(scripts[0] if scripts else command[0]).stem
    name = re.sub(r"[^A-Za-z0-9._+-]", "_", stem)[:100] or "job"
    return f"{name}-job" if name in scheduler.interactive_names else name
