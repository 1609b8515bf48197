"""How each field of a plan came to its value, in words, numbers and places.

This says what `hpclaunch.plan` does. Each number is computed here once more; where the plan has another one, the rule
was changed there and not here, and nothing is claimed about it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from hpclaunch import walltime
from hpclaunch.explain.origin import Origin, profile_origin
from hpclaunch.explain.said import Said, computed
from hpclaunch.site import Qos

UNKNOWN = "by a rule that is not explained here"
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


class Fields(Said):
    """Tells of each field of a plan how it came about."""

    def of(self, path: tuple[str, ...], item: Any = None) -> list[Origin]:
        """Return the origins of `nodes`, `site.umask` and the like, as templates name them; of one item of a list."""
        name, *rest = path
        spoken = {"request": self.asked, "partition": self.of_partition, "site": self._of_site}
        if rest and name in spoken:
            return spoken[name](rest[0], item)
        if name == "qos" and rest[:1] == ["default"]:
            return []  # whether it must be named, which follows from which it is
        value = getattr(self.plan, name, None)
        if value is None:
            return []
        if name in _LISTS:
            return _LISTS[name](self, item)
        if name in _FIELDS:
            return _FIELDS[name](self)
        return [] if callable(value) else [computed(name, f"{value}, {UNKNOWN}", value)]

    def _of_site(self, key: str, item: Any = None) -> list[Origin]:
        return self.profile((key,), item)

    def _equation(self, field: str, words: str, value: float, *inputs: list[Origin]) -> list[Origin]:
        """Return `words = value` and what goes into it, provided that it is the plan's value."""
        actual = getattr(self.plan, field)
        if value != actual:
            return [computed(field, f"{actual}, {UNKNOWN}", actual)]
        return [computed(field, f"{words} = {value}", value), *(origin for part in inputs for origin in part)]

    def _nodes(self) -> list[Origin]:
        return self.asked("nodes") or [computed("nodes", "1, as no number is asked for", 1)]

    def _gpus_per_node(self) -> list[Origin]:
        if given := self.asked("gpus_per_node"):
            return given
        most, tasks = self.partition.gpus_per_node, self.request.tasks_per_node
        if self.plan.nodes == 1 and tasks and tasks < most:
            words = f"one for each of {amount(tasks, 'tasks_per_node')}"
            return self._equation("gpus_per_node", words, tasks, self.asked("tasks_per_node"))
        return self.of_partition("gpus_per_node")

    def _tasks_per_node(self) -> list[Origin]:
        if given := self.asked("tasks_per_node"):
            return given
        if gpus := self.plan.gpus_per_node:
            words = f"one for each of {amount(gpus, 'gpus_per_node')}"
            return self._equation("tasks_per_node", words, gpus, self._gpus_per_node())
        return self._equation("tasks_per_node", "one, there being no GPUs", 1)

    def _offered(self) -> tuple[int, str, list[Origin]]:
        """Return the cores of a node that the job may use, in words too."""
        gpus, cores, most = self.plan.gpus_per_node, self.partition.cores_per_node, self.partition.max_cores
        per_gpu = self.partition.cpus_per_gpu
        if gpus and per_gpu:
            words = f"{amount(gpus, 'gpus_per_node')} x {per_gpu} cpus"
            return gpus * per_gpu, words, self._gpus_per_node() + self.of_partition("cpus_per_gpu")
        if not cores:
            return 1, "one core, as the profile has no cores_per_node", []
        if self.plan.nodes == 1 and most and most < cores:
            return most, f"{most} cpus", self.of_partition("max_cores")
        return cores, f"{cores} cpus", self.of_partition("cores_per_node")

    def _cpus_per_task(self) -> list[Origin]:
        if given := self.asked("cpus_per_task"):
            return given
        offered, words, inputs = self._offered()
        tasks = self.plan.tasks_per_node
        if tasks > 1:
            words = f"{words} / {amount(tasks, 'tasks_per_node')}"
            words += ", rounded down" if offered % tasks else ""
            inputs = inputs + self._tasks_per_node()
        return self._equation("cpus_per_task", words, max(offered // tasks, 1), _once(inputs))

    def _cpus_per_node(self) -> list[Origin]:
        plan, cores = self.plan, self.partition.cores_per_node
        whole = cores if plan.nodes > 1 and self.site.multi_node != "shared" else None
        exact = self.partition.cpus_per_gpu_exact and plan.gpus_per_node
        if self.request.cpus_per_task and not whole and not exact:
            words = f"{amount(plan.tasks_per_node, 'tasks_per_node')} x {amount(plan.cpus_per_task, 'cpus_per_task')}"
            asked = plan.tasks_per_node * plan.cpus_per_task
            return self._equation("cpus_per_node", words, asked, self._tasks_per_node(), self._cpus_per_task())
        if whole:
            words = "all cores of a node, as there are several nodes"
            why = self.of_partition("cores_per_node") + self.profile(("multi_node",))
            return self._equation("cpus_per_node", words, whole, why)
        offered, words, inputs = self._offered()
        if plan.tasks_per_node > offered:
            return self._equation(
                "cpus_per_node", "one for each task", plan.tasks_per_node, self._tasks_per_node(), inputs
            )
        return self._equation("cpus_per_node", words, offered, inputs)

    def _part(self, field: str, what: str, asked: str) -> list[Origin]:
        """Explain memory or disk: that part of a node's which the cores are of the node's."""
        default = f"default_{what}"
        key = default if getattr(self.partition, default) else what
        most, cpus, cores = getattr(self.partition, key), self.plan.cpus_per_node, self.partition.cores_per_node
        if not most:
            return []
        share = cpus / cores if cores else 1
        value = max(math.floor(share * most), 1)
        why = self.of_partition(key) + self.profile((asked,))
        if share == 1 and value == most == getattr(self.plan, field):
            return why
        words = f"{figure(most)} GB x {cpus} / {cores} cpus" + (", rounded down" if share * most != value else "")
        return self._equation(field, words, value, why, self.of_partition("cores_per_node"), self._cpus_per_node())

    def _mem_gb_per_node(self) -> list[Origin]:
        return self.asked("mem_gb") or self._part("mem_gb_per_node", "mem_gb_per_node", "ask_memory")

    def _jobfs_gb_per_node(self) -> list[Origin]:
        return self._part("jobfs_gb_per_node", "jobfs_gb_per_node", "ask_jobfs")

    def _product(self, field: str, one: str, other: str) -> list[Origin]:
        left, right = getattr(self.plan, one), getattr(self.plan, other)
        words = f"{amount(left, one)} x {amount(right, other)}"
        return self._equation(field, words, left * right, self.of((one,)), self.of((other,)))

    def _starts_per_node(self) -> list[Origin]:
        if self.plan.starts_per_node == self.plan.tasks_per_node:
            return self._tasks_per_node()
        words = f"one, as {self.plan.launcher} starts the ranks of a node itself"
        return self._equation("starts_per_node", words, 1, self.asked_or_profile("launcher"))

    def _cpus_per_start(self) -> list[Origin]:
        if self.plan.starts_per_node == self.plan.tasks_per_node:
            return self._cpus_per_task()
        return self._product("cpus_per_start", "cpus_per_task", "tasks_per_node") + self.asked_or_profile("launcher")

    def _time(self, field: str, name: str, key: str) -> list[Origin]:
        origins = self.asked_or_profile(name, key)
        seconds = getattr(self.plan, field)
        text = getattr(self.request, name) or getattr(self.site, key)
        if walltime.clock(seconds) == text and field == "seconds":
            return origins
        shown = walltime.clock(seconds) if field == "seconds" else f"{seconds} s"
        return [computed(name, f"{text} = {shown}", seconds), *origins]

    def _cost(self) -> list[Origin]:
        if self.plan.cost is None:
            return []
        formula = getattr(self.plan.cost, "formula", "")
        words = f"{self.plan.cost} = {formula}" if formula else str(self.plan.cost)
        return [computed("cost", words, self.plan.cost.amount), *self.of_partition("charge")]

    def _name(self) -> list[Origin]:
        if "site" in self.sources:
            return self.asked("site")
        return [
            computed("site", f"{self.plan.name}, the site that knows this host", self.plan.name),
            *self.profile(("hostnames",)),
        ]

    def _partition_name(self) -> list[Origin]:
        origins = self.asked_or_profile("partition", "default_partition")
        asked, name = self.request.partition or self.site.default_partition, self.plan.partition_name
        if asked == name:
            return origins
        alias = computed("partition", f"{asked} is another name of {name}", name)
        return [*origins, alias, *self.of_partition("aliases")]

    def _qos(self) -> list[Origin]:
        qos = self.plan.qos
        if qos is None:
            return []
        number = self.partition.qos.index(qos)
        place = profile_origin(self.layers, ("partitions", self.plan.partition_name, "qos", number))
        if given := self.asked("qos"):
            return given + ([place] if place else [])
        passed = [other for other in self.partition.qos[:number] if other.automatic]
        gpus = self.plan.nodes * self.plan.gpus_per_node
        job = self.plan.walltime + (f" on {gpus} GPUs" if gpus else "")
        words = f"{qos.name}, the first QoS that takes {job}"
        if passed:
            words += "; not " + ", ".join(f"{other.name} (at most {_limits(other)})" for other in passed)
        return [computed("qos", words, qos.name), *([place] if place else [])]

    def _job_name(self) -> list[Origin]:
        return self.asked("job_name") or [
            computed("job_name", f"{self.plan.job_name}, after the script in the command", self.plan.job_name)
        ]

    def _command(self) -> list[Origin]:
        if given := self.asked("command"):
            return given
        words = f"the bundled workload {self.plan.workload}"
        if given := self.asked("workload"):
            return [computed("command", words), *given]
        return [computed("command", f"{words}, as no COMMAND is given")]

    def _python(self) -> list[Origin]:
        return [computed("python", f"{self.plan.python}, which runs the command too", self.plan.python)]

    def _summary(self) -> list[Origin]:
        return [computed("summary", "the plan in one line"), *self._cost()]

    def _host_variables(self) -> list[Origin]:
        words = "the variables that belong to one host, save those that are asked for"
        return [computed("host_variables", words, self.plan.host_variables)]

    def _modules(self, item: Any) -> list[Origin]:
        return self.of_partition("modules", item) + (
            self.asked("module", item) if self.request.module else self.profile(("modules",), item)
        )

    def _directives(self, item: Any) -> list[Origin]:
        if item is None:
            return self.profile(("directives",)) + self.asked("directive")
        bare = {re.sub(r"^#(PBS|SBATCH)\s+", "", line): line for line in self.request.directive}
        return self.profile(("directives",), item) + (self.asked("directive", bare[item]) if item in bare else [])

    def _storage(self, item: Any) -> list[Origin]:
        items = self.plan.storage if item is None else [item]
        return [
            origin
            for name in items
            for origin in self.profile(("storage",), name)
            or self.asked("storage", name)
            or [computed("storage", f"{name}, {UNKNOWN}", name)]
        ]


def _limits(qos: Qos) -> str:
    sizes = [f"{qos.max_gpus} GPUs"] if qos.max_gpus else []
    sizes += [f"{qos.max_cores} cores"] if qos.max_cores else []
    return ", ".join([qos.max_walltime, *sizes])


def _once(origins: list[Origin]) -> list[Origin]:
    return [origin for number, origin in enumerate(origins) if origin not in origins[:number]]


# Fields that templates go through item by item.
_LISTS: dict[str, Callable[[Fields, Any], list[Origin]]] = {
    "modules": Fields._modules,
    "directives": Fields._directives,
    "storage": Fields._storage,
}
_FIELDS: dict[str, Callable[[Fields], list[Origin]]] = {
    "name": Fields._name,
    "partition_name": Fields._partition_name,
    "job_name": Fields._job_name,
    "account": lambda of: of.asked_or_profile("account"),
    "qos": Fields._qos,
    "launcher": lambda of: of.asked_or_profile("launcher"),
    "nodes": Fields._nodes,
    "tasks_per_node": Fields._tasks_per_node,
    "gpus_per_node": Fields._gpus_per_node,
    "cpus_per_node": Fields._cpus_per_node,
    "cpus_per_task": Fields._cpus_per_task,
    "mem_gb_per_node": Fields._mem_gb_per_node,
    "jobfs_gb_per_node": Fields._jobfs_gb_per_node,
    "seconds": lambda of: of._time("seconds", "walltime", "default_walltime"),
    "walltime": lambda of: of._time("seconds", "walltime", "default_walltime"),
    "warn_seconds": lambda of: of._time("warn_seconds", "warn_before", "warn_before"),
    "max_attempts": lambda of: of.asked_or_profile("max_attempts"),
    "command": Fields._command,
    "workload": Fields._command,
    "cost": Fields._cost,
    "world_size": lambda of: of._product("world_size", "nodes", "tasks_per_node"),
    "starts_per_node": Fields._starts_per_node,
    "cpus_per_start": Fields._cpus_per_start,
    "python": Fields._python,
    "summary": Fields._summary,
    "host_variables": Fields._host_variables,
    "warn_signal": lambda _: [],
    "run_id": lambda _: [],
}
NUMBERS = [
    "nodes",
    "tasks_per_node",
    "gpus_per_node",
    "cpus_per_node",
    "cpus_per_task",
    "mem_gb_per_node",
    "jobfs_gb_per_node",
    "world_size",
    "starts_per_node",
    "cpus_per_start",
]
