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

from hpclaunch.executors import parameters
from hpclaunch.executors.job import ScriptJob
from hpclaunch.runs.submit import hand_over, note, uninterrupted
from hpclaunch.schedulers.run_folder import RUNS

if TYPE_CHECKING:  # submitit's worker imports this module in every rank
    from hpclaunch.job.plan import Plan

# submitit counts a job as timed out once it ran T - 10 min: a job of 10 minutes from its first second on.
_SUBMITIT_MARGIN_MIN = 10


class ScriptExecutor(core.Executor):
    """Submits a plan's script as it is, or with submitit's worker as its command.

    Its parameters are the options of `hpclaunch submit` by their names with underscores, submitit's own names among
    them, and `array_parallelism`; each may be prefixed with the scheduler's name.
    """

    job_class = ScriptJob
    max_num_timeout = 3
    _at_once: int | None = None  # jobs of an array

    def __init__(self, plan: Plan, folder: Path | str = f"{RUNS}/%j") -> None:
        super().__init__(folder)
        self.plan = plan

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return parameters.names() | {"array_parallelism"}

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        """Make the plan anew. Raises ValueError for unknown names, HpclaunchError if the site would refuse it."""
        given = {name.removeprefix(f"{self.plan.scheduler.name}_"): value for name, value in kwargs.items()}
        valid = self._valid_parameters()
        if unknown := sorted(given.keys() - valid):
            raise ValueError(f"unknown parameter {', '.join(unknown)}; there are {', '.join(sorted(valid))}")
        at_once = given.pop("array_parallelism", self._at_once)
        if at_once is not None and (type(at_once) is not int or at_once < 1):
            raise ValueError(f"array_parallelism: {at_once!r} jobs at once; use a whole number from 1 on")
        self.plan, self._at_once = parameters.changed(self.plan, given), at_once
        self.parameters.update(kwargs)

    def submit_script(
        self, script: str, after: Sequence[str] = (), name: str = "", submitted: Callable[[str], None] | None = None
    ) -> ScriptJob:
        """Submit a finished script; the job has no result, but a state, logs and cancel(). Raises SchedulerError.

        `submitted` gets the id at once, before anything else can fail.
        """
        with uninterrupted():
            ids = hand_over(self.plan, script, after, name)
            if submitted:
                submitted(ids[0])
            return self._made(self.plan, script, ids)

    def _made(self, plan: Plan, script: str, ids: Sequence[str]) -> ScriptJob:
        """Return the job of these ids, the first attempt's in front, which was just submitted."""
        run = note(plan.about, plan.hidden(), script, ids)
        self.job_class.watcher.add(run)
        return self.job_class(self.folder, run.id, range(plan.world_size))

    def _internal_process_submissions(self, delayed_submissions: list[utils.DelayedSubmission]) -> list[core.Job[Any]]:
        kind, count = self.plan.scheduler, len(delayed_submissions)
        if count > 1 and not kind.array_directives:
            return [job for delayed in delayed_submissions for job in self._internal_process_submissions([delayed])]
        plan = self._worker_plan(delayed_submissions[0].function, count)
        script = self._script(plan)
        root = utils.JobPaths.get_first_id_independent_folder(self.folder)
        root.mkdir(parents=True, exist_ok=True)
        minutes = max(plan.seconds // 60, plan.seconds // 120 + _SUBMITIT_MARGIN_MIN)
        pickles = [root / f"{uuid.uuid4().hex}.pkl" for _ in delayed_submissions]
        for delayed, pickle in zip(delayed_submissions, pickles, strict=True):
            delayed.set_timeout(minutes, self.max_num_timeout)
            delayed.dump(pickle)
        jobs: list[core.Job[Any]] = []
        with uninterrupted():
            ids = hand_over(structs.replace(plan, max_attempts=1), script)
            for job_id, pickle in zip(kind.array_ids(ids[0], range(count)) if count > 1 else ids, pickles, strict=True):
                jobs.append(self._made(plan, script, [job_id]))
                jobs[-1].paths.move_temporary_file(pickle, "submitted_pickle")
        return jobs

    def _worker_plan(self, function: Callable[..., Any], count: int = 1) -> Plan:
        """Return the plan of a worker's script, which sends submitit's signal unless the scheduler does.

        The job has the function's name unless the user gave one. With `count` above 1 it is an array, with warnings of
        its own. It goes on by submitit's requeue, not by ours. Raises RequestError if the site takes no arrays.
        """
        from hpclaunch.job.sizes import name_of

        kind, plan = self.plan.scheduler, self.plan
        if not plan.request.job_name:
            function = getattr(function, "func", function)  # of a functools.partial
            name = name_of([getattr(function, "__name__", type(function).__name__)], kind)
            plan = structs.replace(plan, job_name=name)
        if count > 1:
            indices = f"0-{count - 1}%{self._at_once}" if self._at_once else f"0-{count - 1}"
            lines = [*plan.request.directive, *(line.format(indices) for line in kind.array_directives)]
            array = parameters.changed(plan, {"directive": lines, "max_attempts": 1})
            for warning in set(array.warnings) - set(plan.warnings):
                warnings.warn(warning, stacklevel=2)
            plan = structs.replace(array, job_name=plan.job_name)
        if kind.signal_directive:
            return structs.replace(plan, directives=[*plan.directives, kind.signal_directive])
        if kind.here:
            return plan
        warn_seconds = min(plan.warn_seconds, plan.seconds // 4)
        return structs.replace(plan, max_attempts=1, warn_signal="USR2", warn_seconds=warn_seconds)

    def _script(self, plan: Plan) -> str:
        """Render the script whose command is submitit's worker."""
        from hpclaunch.job.render import render

        request = plan.request
        request.check_passed(os.environ)
        settings = {"SUBMITIT_EXECUTOR": "hpclaunch"}
        plan = structs.replace(
            plan,
            command=shlex.split(self._submitit_command_str),
            request=structs.replace(request, env=request.env | settings, workload=None, command=[sys.executable]),
        )
        return render(plan)[0]

    @property
    def _submitit_command_str(self) -> str:
        return shlex.join([sys.executable, "-u", "-m", "submitit.core._submit", str(self.folder)])
