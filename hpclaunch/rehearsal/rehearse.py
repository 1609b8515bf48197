"""The rehearsal: the very script that a site would get, run on this machine under a stand-in for its scheduler."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from hpclaunch.job.plan import Plan
from hpclaunch.runs import registry
from hpclaunch.runs.registry import Run, State

_SOFTWARE = ("module", "mpirun")
_LOOK_SECONDS = 0.2


def rehearse(plan: Plan, script: str) -> int:
    """Run the job script here, its further attempts too; return the exit code of the last.

    What the job itself prints is shown, and kept where the scheduler would keep it.
    """
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="hpclaunch-rehearsal-") as name:
        folder = Path(name)
        if plan.site.scheduler == "pbs":
            return _pbs(plan, script, folder)
        from hpclaunch.rehearsal.slurm import rehearse as slurm

        path = folder / "job.sh"
        path.write_text(script, encoding="utf-8", errors="surrogateescape")
        return slurm(path, folder)


def _pbs(plan: Plan, script: str, folder: Path) -> int:
    """Submit the script to a PBS of its own, show what the job prints, and leave nothing of either behind."""
    from hpclaunch.rehearsal import pbs as standin
    from hpclaunch.rehearsal.pbs.settings import Settings, queues_of
    from hpclaunch.rehearsal.programs import write_programs
    from hpclaunch.runs.submit import hand_over, run_of

    os.environ |= write_programs(folder, _SOFTWARE)
    settings = Settings(
        queues_of(plan.site), server="rehearsal", kill_delay=8, poll=1, refuse_qsub_in_jobs=not plan.site.resubmit
    )
    os.environ |= standin.install(folder, settings, first_id=os.getpid())
    told: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: told.append(number))
    try:
        job_id, *further = hand_over(plan, script)
        run = run_of(plan, job_id)
        run.path.mkdir(parents=True, exist_ok=True)
        registry.note_attempts(run.path, further)
        state = _follow(run, folder, told)
    finally:
        standin.stop(folder)
    return 128 + told[0] if told else state.shell_code


def _follow(run: Run, folder: Path, told: list[int]) -> State:
    """Show the output of the run's jobs, from PBS's spool while they run, until the last has ended."""
    from hpclaunch.schedulers import pbs

    shown: dict[str, int] = {}
    deleted = False
    while True:
        state = pbs.states([run])[run.id]
        for job_id in [run.id, *run.further_ids]:
            _show(job_id, folder, shown)
        if state.ended:
            return state
        if told and not deleted:
            deleted = True
            pbs.cancel([run])
        time.sleep(_LOOK_SECONDS)


def _show(job_id: str, folder: Path, shown: dict[str, int]) -> None:
    """Print what a job's output has that was not shown yet."""
    spooled = folder / "spool" / f"{job_id}.OU"
    number = job_id.split(".", maxsplit=1)[0]
    path = spooled if spooled.exists() else next(Path().glob(f"*.o{number}"), None)
    if path is not None:
        with path.open("rb") as file:
            file.seek(shown.get(job_id, 0))
            text = file.read()
        shown[job_id] = shown.get(job_id, 0) + len(text)
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
