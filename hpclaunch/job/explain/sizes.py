"""How the numbers of a plan came about: the rules of `hpclaunch.job.plan` once more, in words."""

from __future__ import annotations

import math

from hpclaunch.job.explain.origin import Origin
from hpclaunch.job.explain.said import Said, computed

UNITS = {
    "nodes": "node",
    "tasks_per_node": "task",
    "starts_per_node": "start",
    "gpus_per_node": "GPU",
    "cpus_per_node": "cpu",
    "cpus_per_task": "cpu",
    "mem_gb_per_node": "GB",
    "jobfs_gb_per_node": "GB",
    "seconds": "s",
    "warn_seconds": "s",
}


def amount(number: float, field: str) -> str:
    """Return a number with its unit: `2 nodes`, `48 cpus a node`."""
    unit = UNITS.get(field, "")
    plural = "s" if number != 1 and unit not in ("GB", "s") else ""
    return f"{figure(number)} {unit}{plural}".rstrip() + (" a node" if field.endswith("_per_node") else "")


def figure(number: float) -> str:
    """Return a number, one with a fraction in six digits."""
    return str(int(number)) if number == int(number) else f"{number:.6g}"


class Sizes(Said):
    """Tells of each number of a plan; the first origin has its value, what follows went into it."""

    def nodes(self) -> list[Origin]:
        """Explain the number of nodes."""
        return self.asked("nodes") or [computed("nodes", "1, as no number is asked for", 1)]

    def gpus_per_node(self) -> list[Origin]:
        """Explain the GPUs of a node."""
        if given := self.asked("gpus_per_node"):
            return given
        if self.partition.small_jobs:
            return _equation("gpus_per_node", "none, as none is asked for", 0, self.of_partition("small_jobs"))
        most, tasks = self.partition.gpus_per_node, self.request.tasks_per_node
        if self.plan.nodes == 1 and tasks and tasks < most:
            words = f"one for each of {amount(tasks, 'tasks_per_node')}"
            return _equation("gpus_per_node", words, tasks, self.asked("tasks_per_node"))
        return self.of_partition("gpus_per_node")

    def tasks_per_node(self) -> list[Origin]:
        """Explain the ranks of a node."""
        if given := self.asked("tasks_per_node"):
            return given
        if gpus := self.plan.gpus_per_node:
            words = f"one for each of {amount(gpus, 'gpus_per_node')}"
            return _equation("tasks_per_node", words, gpus, self.gpus_per_node())
        return _equation("tasks_per_node", "one, there being no GPUs", 1)

    def _offered(self) -> tuple[int, str, list[Origin]]:
        """Return the cores of a node that the job may use, in words too."""
        gpus, cores, most = self.plan.gpus_per_node, self.partition.cores_per_node, self.partition.max_cores
        per_gpu = self.partition.cpus_per_gpu
        if gpus and per_gpu:
            words = f"{amount(gpus, 'gpus_per_node')} x {per_gpu} cpus"
            return gpus * per_gpu, words, self.gpus_per_node() + self.of_partition("cpus_per_gpu")
        if self.partition.small_jobs:
            return 1, "one core, as no size is asked for", self.of_partition("small_jobs")
        if not cores:
            return 1, "one core, as the profile has no cores_per_node", []
        if self.plan.nodes == 1 and most and most < cores:
            return most, f"{most} cpus", self.of_partition("max_cores")
        return cores, f"{cores} cpus", self.of_partition("cores_per_node")

    def cpus_per_task(self) -> list[Origin]:
        """Explain the cores of a rank."""
        if given := self.asked("cpus_per_task"):
            return given
        offered, words, inputs = self._offered()
        tasks = self.plan.tasks_per_node
        if tasks > 1:
            words = f"{words} / {amount(tasks, 'tasks_per_node')}"
            words += ", rounded down" if offered % tasks else ""
            inputs = inputs + self.tasks_per_node()
        return _equation("cpus_per_task", words, max(offered // tasks, 1), inputs)

    def cpus_per_node(self) -> list[Origin]:
        """Explain the cores of a node."""
        plan, cores = self.plan, self.partition.cores_per_node
        whole = cores if plan.nodes > 1 and self.site.multi_node != "shared" else None
        exact = self.partition.cpus_per_gpu_exact and plan.gpus_per_node
        if self.request.cpus_per_task and not whole and not exact:
            words = f"{amount(plan.tasks_per_node, 'tasks_per_node')} x {amount(plan.cpus_per_task, 'cpus_per_task')}"
            asked = plan.tasks_per_node * plan.cpus_per_task
            return _equation("cpus_per_node", words, asked, self.tasks_per_node(), self.cpus_per_task())
        if whole:
            words = "all cores of a node, as there are several nodes"
            why = self.of_partition("cores_per_node") + self.profile(("multi_node",))
            return _equation("cpus_per_node", words, whole, why)
        offered, words, inputs = self._offered()
        if plan.tasks_per_node > offered:
            return _equation("cpus_per_node", "one for each task", plan.tasks_per_node, self.tasks_per_node(), inputs)
        return _equation("cpus_per_node", words, offered, inputs)

    def _part(self, field: str, what: str, asked: str) -> list[Origin]:
        """Explain memory or disk: that part of a node's which the cores are of the node's."""
        default = f"default_{what}"
        key = default if getattr(self.partition, default) else what
        most, cpus, cores = getattr(self.partition, key), self.plan.cpus_per_node, self.partition.cores_per_node
        if not most:
            return []
        share = min(cpus / cores, 1) if cores else 1
        value = max(math.floor(share * most), 1)
        why = self.of_partition(key) + self.profile((asked,))
        if share == 1 and value == most == getattr(self.plan, field):
            return why
        words = f"{figure(most)} GB x {cpus} / {cores} cpus" + (", rounded down" if share * most != value else "")
        return _equation(field, words, value, why, self.of_partition("cores_per_node"), self.cpus_per_node())

    def mem_gb_per_node(self) -> list[Origin]:
        """Explain a node's memory."""
        return self.asked("mem_gb") or self._part("mem_gb_per_node", "mem_gb_per_node", "ask_memory")

    def jobfs_gb_per_node(self) -> list[Origin]:
        """Explain a node's local disk."""
        return self.asked("jobfs_gb") or self._part("jobfs_gb_per_node", "jobfs_gb_per_node", "ask_jobfs")

    def world_size(self) -> list[Origin]:
        """Explain the ranks of the job."""
        words = f"{amount(self.plan.nodes, 'nodes')} x {amount(self.plan.tasks_per_node, 'tasks_per_node')}"
        value = self.plan.nodes * self.plan.tasks_per_node
        return _equation("world_size", words, value, self.nodes(), self.tasks_per_node())

    def starts_per_node(self) -> list[Origin]:
        """Explain what is started on a node."""
        if self.plan.starts_per_node == self.plan.tasks_per_node:
            return self.tasks_per_node()
        words = f"one, as {self.plan.launcher} starts the ranks of a node itself"
        return _equation("starts_per_node", words, 1, self.asked_or_profile("launcher"))

    def cpus_per_start(self) -> list[Origin]:
        """Explain the cores of what is started."""
        if self.plan.starts_per_node == self.plan.tasks_per_node:
            return self.cpus_per_task()
        tasks, cpus = self.plan.tasks_per_node, self.plan.cpus_per_task
        words = f"{amount(tasks, 'tasks_per_node')} x {amount(cpus, 'cpus_per_task')}"
        inputs = self.tasks_per_node(), self.cpus_per_task(), self.asked_or_profile("launcher")
        return _equation("cpus_per_start", words, tasks * cpus, *inputs)


def _equation(field: str, words: str, value: float, *inputs: list[Origin]) -> list[Origin]:
    """Return `words = value` and what goes into it, each once."""
    found = [computed(field, f"{words} = {value}", value), *(origin for part in inputs for origin in part)]
    return [origin for number, origin in enumerate(found) if origin not in found[:number]]
