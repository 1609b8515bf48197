"""hpclaunch.lightning in jobs of a scheduler: on a real Slurm and on the stand-in for PBS."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from conftest import call, state, submit

PLAIN = Path(__file__).parents[1] / "workloads" / "programs" / "plain.py"
TWO_BY_TWO = ("--nodes", "2", "--tasks-per-node", "2", "--max-attempts", "9")


def program(epochs: int) -> tuple[str, ...]:
    """Return the words of a training of five steps an epoch, each of half a second."""
    variables = {"OMP_NUM_THREADS": 1, "STEP": 0.5, "EPOCHS": epochs}
    options = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    return *options, "--", sys.executable, "-W", "ignore", str(PLAIN)


def check(job: str) -> None:
    """The training went on at each save, in the same run of Weights & Biases, and is done."""
    assert state(job)["word"] == "COMPLETED"
    log = Path("hpclaunch-runs", job, "rank-0.log").read_text()
    saved = re.findall(r"^saved at (epoch \d+, step \d+): start again$", log, re.MULTILINE)
    assert saved == re.findall(r"^resumed at (epoch \d+, step \d+)$", log, re.MULTILINE)
    assert 1 <= len(saved) < log.count("--- attempt ")  # a warning after the training may cost an attempt too
    assert set(re.findall("^run (.*)$", log, re.MULTILINE)) == {f"{job} {job} allow"}
    steps = [int(step) for step in re.findall(r"^step (\d+)$", log, re.MULTILINE)]
    assert steps == [*range(len(steps))]  # none twice, none left out
    assert "weights " in log


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("slurm")
def test_slurm_requeues_once_for_each_save():
    """Lightning's own requeue, which is on under srun, keeps out of it; torchrun's ranks go on as well."""
    words = (*TWO_BY_TWO, "-t", "00:02:00", "--warn-before", "60s")
    jobs = [submit(*words, "--launcher", launcher, *program(24)) for launcher in ("tasks", "torchrun")]
    call("wait", *jobs, seconds=500)
    for job in jobs:
        check(job)
        assert "going on in attempt 2 of 9" in next(Path().glob(f"*_{job}.out")).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["tasks", "lightning"])
def test_pbs_goes_on(qsub, launcher):
    """On PBS each attempt is a job of its own, with the same run folder and id."""
    qsub()
    words = ("--site", "gadi-here", "-q", "normal", *TWO_BY_TWO, "-t", "00:01:30", "--warn-before", "30s")
    job = submit(*words, "--launcher", launcher, *program(24))
    call("wait", job, seconds=500)
    if launcher == "tasks":
        check(job)
    assert state(job)["word"] == "COMPLETED"
