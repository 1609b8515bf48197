"""submitit executors whose job script is ours, with submitit's worker as its command."""

from __future__ import annotations

import os
import shlex
import sys
import uuid
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs
from submitit.core import core, utils

from hpclaunch.errors import RequestError
from hpclaunch.executors import parameters
from hpclaunch.executors.job import ScriptJob
from hpclaunch.runs.submit import hand_over, note

if TYPE_CHECKING:  # submitit's worker imports this module in every rank
    from hpclaunch.job.plan import Plan

# submitit counts a job as timed out once it ran T - 10 min: a job of 10 minutes from its first second on.
_SUBMITIT_MARGIN_MIN = 10


class ScriptExecutor(core.PicklingExecutor):
    """Submits a plan's script as it is, or with submitit's worker as its command.

    Its parameters are the options of `hpclaunch submit` by their names with underscores, submitit's own names among
    them, and `array_parallelism` if the scheduler has arrays; each may be prefixed with the scheduler's name.
    """

    job_class = ScriptJob
    _at_once: int | None = None  # jobs of an array

    def __init__(self, folder: Path | str, plan: Plan) -> None:
        # Not super(): submitit's Slurm executor wants srun on PATH, which a laptop that renders does not have.
        core.PicklingExecutor.__init__(self, folder)
        self.plan_for(plan)

    def plan_for(self, plan: Plan) -> None:
        """Submit jobs of this plan from now on."""
        self.plan = plan
        self.parameters["timeout_min"] = max(plan.seconds / 60, plan.seconds / 120 + _SUBMITIT_MARGIN_MIN)

    @classmethod
    def _equivalence_dict(cls) -> core.EquivalenceDict:
        names = ("timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node", "tasks_per_node")
        return {"name": "job_name", **{name: name for name in names}}  # type: ignore[typeddict-item]

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return parameters.names() | {"array_parallelism"}

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        """Make the plan anew. Raises ValueError for unknown names, HpclaunchError if the site would refuse it."""
        kind = self.plan.scheduler
        given = {name.removeprefix(f"{kind.name}_"): value for name, value in kwargs.items()}
        valid = self._valid_parameters() if kind.array_directives else parameters.names()
        if unknown := sorted(given.keys() - valid):
            raise ValueError(f"unknown parameter {', '.join(unknown)}; there are {', '.join(sorted(valid))}")
        at_once = given.pop("array_parallelism", self._at_once)
        if at_once is not None and (type(at_once) is not int or at_once < 1):
            raise ValueError(f"array_parallelism: {at_once!r} jobs at once; use a whole number from 1 on")
        plan = parameters.changed(self.plan, given)
        self._at_once = at_once
        self.parameters.update(kwargs)
        self.plan_for(plan)

    def submit_script(
        self,
        script: str,
        after: Sequence[str] = (),
        name: str = "",
        submitted: Callable[[str], None] = lambda _: None,
    ) -> ScriptJob:
        """Submit a finished script; the job has no result, but a state, logs and cancel().

        `submitted` is given the id before anything else can fail. Raises what hand_over raises.
        """
        ids = hand_over(self.plan, script, after, name)
        submitted(ids[0])
        return self._made(script, ids)

    def _made(self, script: str, ids: Sequence[str]) -> ScriptJob:
        """Return the job of these ids, the first attempt's in front, which was just submitted."""
        run = note(self.plan, script, ids)
        self.job_class.watcher.add(run)
        return self.job_class(self.folder, run.id, range(self._num_tasks()))

    def _script(self, count: int = 1) -> str:
        """Render the script whose command is submitit's worker; for more than one job as an array."""
        from hpclaunch.job.render import fill, noted
        from hpclaunch.scripts.readback import check

        request = self.plan.request
        request.check_passed(os.environ)
        settings = {"SUBMITIT_EXECUTOR": "hpclaunch"}
        plan = structs.replace(
            self._worker_plan(count),
            command=shlex.split(self._submitit_command_str),
            request=structs.replace(request, env=request.env | settings, workload=None, command=[sys.executable]),
        )
        script, templates = fill(plan)
        if templates:
            check(plan, script, templates)
        return noted(script, plan, templates)

    def _worker_plan(self, count: int) -> Plan:
        """Return the plan of a worker's script, which sends submitit's signal unless the scheduler does.

        With `count` above 1 it is an array. It goes on by submitit's requeue, not by ours.
        """
        kind, plan = self.plan.scheduler, self.plan
        indices = f"0-{count - 1}%{self._at_once}" if self._at_once else f"0-{count - 1}"
        lines = [kind.signal_directive] if kind.signal_directive else []
        lines += [line.format(indices) for line in kind.array_directives] if count > 1 else []
        plan = structs.replace(plan, directives=[*plan.directives, *lines])
        if kind.here or kind.signal_directive:
            return plan
        warn_seconds = min(plan.warn_seconds, plan.seconds // 4)
        return structs.replace(plan, max_attempts=1, warn_signal="USR2", warn_seconds=warn_seconds)

    def _named(self, function: Callable[..., Any]) -> Plan:
        """Return the plan with the function's name as the job's, unless the user gave one."""
        from hpclaunch.job.sizes import name_of

        if self.plan.request.job_name:
            return self.plan
        function = getattr(function, "func", function)  # of a functools.partial
        name = getattr(function, "__name__", type(function).__name__)
        return structs.replace(self.plan, job_name=name_of([name], self.plan.scheduler))

    def _check_array(self, count: int) -> None:
        """Check the directives of an array of `count` jobs as if the user had given them.

        Raises RequestError with every refusal.
        """
        from hpclaunch.job.checks import run_check
        from hpclaunch.profile.search import Profile

        plan = self._worker_plan(count)
        # The plan does not know its profile's files: what is said has no FILE:LINE.
        said: dict[bool, list[str]] = {True: [], False: []}
        for finding in run_check(Profile(plan.name, [], plan.site), plan, "arrays"):
            said[finding.refuses].append(f"{finding.check}: {count} jobs at once are an array: {finding.message}")
        for warning in said[False]:
            warnings.warn(warning, stacklevel=2)
        if said[True]:
            raise RequestError(*said[True])

    def _internal_process_submissions(self, delayed_submissions: list[utils.DelayedSubmission]) -> list[core.Job[Any]]:
        if len(delayed_submissions) > 1 and not self.plan.scheduler.array_directives:
            return [job for delayed in delayed_submissions for job in self._internal_process_submissions([delayed])]
        plan, self.plan = self.plan, self._named(delayed_submissions[0].function)
        try:
            if len(delayed_submissions) == 1:
                return core.PicklingExecutor._internal_process_submissions(self, delayed_submissions)
            return self._submit_array(delayed_submissions)
        finally:
            self.plan = plan

    def _submit_array(self, delayed_submissions: list[utils.DelayedSubmission]) -> list[core.Job[Any]]:
        count = len(delayed_submissions)
        self._check_array(count)
        root = utils.JobPaths.get_first_id_independent_folder(self.folder)
        root.mkdir(parents=True, exist_ok=True)
        pickles = []
        for delayed in delayed_submissions:
            delayed.set_timeout(self.parameters["timeout_min"], self.max_num_timeout)
            pickles.append(root / f"{uuid.uuid4().hex}.pkl")
            delayed.dump(pickles[-1])
        script = self._script(count)
        array = self.plan.scheduler.submit(script)
        jobs: list[core.Job[Any]] = []
        for job_id, pickle in zip(self.plan.scheduler.array_ids(array, count), pickles, strict=True):
            job = self._made(script, [job_id])
            job.paths.move_temporary_file(pickle, "submitted_pickle")
            jobs.append(job)
        return jobs

    @property
    def _submitit_command_str(self) -> str:
        return shlex.join([sys.executable, "-u", "-m", "submitit.core._submit", str(self.folder)])

    def _submit_command(self, command: str) -> ScriptJob:
        script = self._script()
        return self._made(script, hand_over(structs.replace(self.plan, max_attempts=1), script))

    def _num_tasks(self) -> int:
        return self.plan.world_size

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        return self._script()

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        raise NotImplementedError("submit_script submits")

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        raise NotImplementedError("submit_script submits")

    @classmethod
    def affinity(cls) -> int:
        """Keep AutoExecutor from choosing this class: it is made from a plan."""
        return -1
