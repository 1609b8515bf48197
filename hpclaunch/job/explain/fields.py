"""How each field of a plan came to its value, in words, numbers and places.

This says what `hpclaunch.job.plan` does. Each number is computed here once more; where the plan has another one, the
rule was changed there and not here, and nothing is claimed about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hpclaunch.job.explain.origin import Origin, profile_origin
from hpclaunch.job.explain.said import computed
from hpclaunch.job.explain.sizes import Sizes

from hpclaunch import walltime
from hpclaunch.job.storage import as_named, named_by
from hpclaunch.profile.model import Qos

UNKNOWN = "by a rule that is not explained here"


class Fields(Sizes):
    """Tells of each field of a plan how it came about."""

    def of(self, path: tuple[str, ...], item: Any = None) -> list[Origin]:
        """Return the origins of `nodes`, `site.umask` and the like, as templates name them; of one item of a list."""
        name, *rest = path
        spoken = {"request": self.asked, "partition": self.of_partition, "site": self._of_site}
        if name in spoken:
            return spoken[name](rest[0], item) if rest else []
        if name == "qos" and rest[:1] == ["default"]:
            return []  # whether it must be named, which follows from which it is
        value = getattr(self.plan, name, None)
        if value is None:
            return []
        if name in _LISTS:
            return _LISTS[name](self, item)
        origins = _FIELDS[name](self) if name in _FIELDS else []
        if (name in _FIELDS or callable(value)) and not (name in SAME and origins and origins[0].value != value):
            return origins
        return [computed(name, f"{value}, {UNKNOWN}", value)]

    def template(self) -> list[Origin]:
        """Explain the choice of the template."""
        return self.asked("template") or self.profile(("template",)) or self.profile(("scheduler",))

    def _of_site(self, key: str, item: Any = None) -> list[Origin]:
        return self.profile((key,), item)

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
        return [computed("cost", self.plan.cost.explained, self.plan.cost.amount), *self.of_partition("charge")]

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
        if qos not in self.partition.qos:
            return self.asked("qos")
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
            computed("job_name", f"{self.plan.job_name}, after the command", self.plan.job_name)
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
        names = self.plan.storage if item is None else [item]
        return [origin for name in names for origin in self._named(name) or self._touched(name) or self._unknown(name)]

    def _named(self, name: str) -> list[Origin]:
        """Return where a file system was asked for."""
        found = [entry for entry in self.site.storage if as_named(self.site, entry) == name]
        asked = [entry for entry in self.request.storage if as_named(self.site, entry) == name]
        return [
            *(origin for entry in found for origin in self.profile(("storage",), entry)),
            *self._led_to(name),  # which the request names among what a person asked for
            *(origin for entry in asked for origin in self.asked("storage", entry) if not self._led_to(name)),
        ]

    def _led_to(self, name: str) -> list[Origin]:
        """Return which path of the request leads to a file system through links."""
        for path, target in self.request.links.items():
            if name in named_by(self.site, None, [target]):
                start = "the working folder" if path == "." else path
                return [computed("storage", f"{name}, for {start}, which leads to {target}", name)]
        return []

    def _touched(self, name: str) -> list[Origin]:
        """Return which path of the job lies on a file system, and who gave that path."""
        datasets = ("datasets",) if self.plan.workload == "mnist" else ()
        spoken = [
            *(
                (("request", key), getattr(self.request, key))
                for key in ("command", "setup", "teardown", "env", "venv")
            ),
            *(
                (("site", key), getattr(self.site, key))
                for key in ("module_paths", "setup", "teardown", "env", *datasets)
            ),
        ]
        for place, value in spoken:
            for entry, text in _entries(value):
                if name in named_by(self.site, None, [text]):
                    return [computed("storage", f"{name}, for {text}", name), *self.of(place, entry)]
        return []

    def _unknown(self, name: str) -> list[Origin]:
        return [computed("storage", f"{name}, {UNKNOWN}", name)]


def _entries(value: Any) -> list[tuple[Any, str]]:
    """Return a value's items, each with its text."""
    if isinstance(value, dict):
        return list(value.items())
    return [(item, item) for item in value] if isinstance(value, list) else [(None, value or "")]


def _limits(qos: Qos) -> str:
    sizes = [f"{qos.max_gpus} GPUs"] if qos.max_gpus else []
    sizes += [f"{qos.max_cores} cores"] if qos.max_cores else []
    return ", ".join([qos.max_walltime, *sizes])


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
    "nodes": Fields.nodes,
    "tasks_per_node": Fields.tasks_per_node,
    "gpus_per_node": Fields.gpus_per_node,
    "cpus_per_node": Fields.cpus_per_node,
    "cpus_per_task": Fields.cpus_per_task,
    "mem_gb_per_node": Fields.mem_gb_per_node,
    "jobfs_gb_per_node": Fields.jobfs_gb_per_node,
    "seconds": lambda of: of._time("seconds", "walltime", "default_walltime"),
    "walltime": lambda of: of._time("seconds", "walltime", "default_walltime"),
    "warn_seconds": lambda of: of._time("warn_seconds", "warn_before", "warn_before"),
    "grace_seconds": lambda of: of._time("grace_seconds", "grace", "grace"),
    "silent_seconds": lambda of: of._time("silent_seconds", "dead_after", "dead_after"),
    "heartbeat_seconds": lambda of: of.of(("nodes",)),
    "many_logs": lambda of: of.of(("world_size",)),
    "max_attempts": lambda of: of.asked_or_profile("max_attempts"),
    "command": Fields._command,
    "workload": Fields._command,
    "cost": Fields._cost,
    "price": Fields._cost,
    "world_size": Fields.world_size,
    "starts_per_node": Fields.starts_per_node,
    "cpus_per_start": Fields.cpus_per_start,
    "python": Fields._python,
    "summary": Fields._summary,
    "about": lambda of: [origin for name in sorted(of.plan.about.keys() & _FIELDS.keys()) for origin in of.of((name,))],
    "host_variables": Fields._host_variables,
    "warn_signal": lambda _: [],
    "run_id": lambda _: [],
}
# Fields whose first origin has the very value.
SAME = (
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
    "max_attempts",
    "account",
    "launcher",
)
