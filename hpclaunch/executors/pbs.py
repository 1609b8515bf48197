"""submitit's executor for PBS, made from a plan or by `submitit.AutoExecutor(folder, cluster="pbs")`.

submitit imports this module in every job of its own: keep it light.
"""

from __future__ import annotations

import math
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs, to_builtins
from submitit.core import core

from hpclaunch.executors.script import ScriptExecutor, ScriptJob, Watcher
from hpclaunch.schedulers import pbs

if TYPE_CHECKING:
    from hpclaunch.plan import Plan

GENERIC_SITE = "pbs"
_ALIASES = {"name": "job_name", "queue": "partition", "project": "account"}
# The command is submitit's worker, one in each rank; a program is not asked, and follows no links.
_NOT_OURS = ("command", "workload", "launcher", "confirm_above", "links", "cores")


class PbsJob(ScriptJob):
    """A job under PBS."""

    scheduler = "pbs"
    watcher = Watcher()


class PbsExecutor(ScriptExecutor):
    """submitit's executor for PBS over our script; several jobs at once are one array where the site takes arrays.

    Its parameters are the options of `hpclaunch submit` by their names with underscores, with `site` among them: the
    profile, by default one that knows of no site's own rules.
    """

    job_class = PbsJob

    def __init__(
        self,
        folder: Path | str,
        plan: Plan | None = None,
        max_num_timeout: int = 3,
        max_pickle_size_gb: float = 1.0,
        python: str | None = None,
    ) -> None:
        self.python = python or shlex.quote(sys.executable)
        self._options: dict[str, Any] = {"tasks_per_node": 1}  # submitit's default, whatever there is of GPUs
        super().__init__(folder, plan or _plan(self._options))
        self.max_num_timeout, self.max_pickle_size_gb = max_num_timeout, max_pickle_size_gb
        if plan is not None:
            self._options = to_builtins(plan.request) | {"site": plan.name}

    @classmethod
    def affinity(cls) -> int:
        """Tell AutoExecutor whether this machine has PBS; Grid Engine, which has a qsub too, is known by its qconf."""
        return 2 if shutil.which("qsub") and not shutil.which("qconf") else -1

    @classmethod
    def _equivalence_dict(cls) -> core.EquivalenceDict:
        names = ("timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node", "tasks_per_node")
        return {"name": "job_name", **{name: name for name in names}}  # type: ignore[typeddict-item]

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        from hpclaunch.request import Request

        return {*Request.__struct_fields__, *_ALIASES, "timeout_min"} - set(_NOT_OURS)

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        if unknown := sorted(kwargs.keys() - self._valid_parameters()):
            raise ValueError(
                f"unknown parameter {', '.join(unknown)}; there are {', '.join(sorted(self._valid_parameters()))}"
            )
        options = {_ALIASES.get(name, name): value for name, value in kwargs.items()}
        if "timeout_min" in options:
            options["walltime"] = f"{math.ceil(options.pop('timeout_min') * 60)}s"
        if "mem_gb" in options:
            options["mem_gb"] = math.ceil(options["mem_gb"])
        options = self._options | options
        plan = _plan(options)
        self._options = options
        self.parameters.update(kwargs)
        self.plan_for(plan)

    @property
    def _submitit_command_str(self) -> str:
        return f"{self.python} -u -m submitit.core._submit {shlex.quote(str(self.folder))}"

    def _submit_command(self, command: str) -> ScriptJob:
        script = self._script()
        return self._made(pbs.submit(script), script)

    def _told(self, plan: Plan) -> Plan:
        """Let the job script warn the worker: PBS does not, and goes on by submitit's requeue, not by ours."""
        return structs.replace(
            plan, max_attempts=1, warn_signal="USR2", warn_seconds=min(plan.warn_seconds, plan.seconds // 4)
        )

    def _directives(self, count: int) -> list[str]:
        return [f"-J 0-{count - 1}", "-r y"] if count > 1 else []  # PBS takes no array that is not rerunnable

    def _array_ids(self, array: str, count: int) -> list[str]:
        return pbs.subjobs(array, count)


def _plan(options: dict[str, Any]) -> Plan:
    """Return the plan of these options. Raises HpclaunchError where the site would refuse them."""
    from hpclaunch.links import followed
    from hpclaunch.plan import make_plan
    from hpclaunch.request import make_request
    from hpclaunch.site import load

    site = options.get("site") or GENERIC_SITE
    profile = load(site)
    return make_plan(profile, followed(profile.site, make_request({"launcher": "tasks", **options, "site": site})))
