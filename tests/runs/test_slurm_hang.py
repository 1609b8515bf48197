"""--hang-after on a real Slurm."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import call, state, submit
from test_hang import AFTER, DEADLOCK, FOUND, HANGS, TWO_BY_TWO

from hpclaunch.runs import hangs

pytestmark = [pytest.mark.usefixtures("slurm"), pytest.mark.train]
TRAIN = (*TWO_BY_TWO, "--gpus-per-node", "2", *AFTER, "--wait")


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["tasks", "torchrun"])
def test_a_deadlock_ends_the_job_and_why_names_the_rank(work, launcher):
    """A job of two real nodes ends with 124, and `why` says in which line each rank was."""
    (work / "train.py").write_text(DEADLOCK)
    job = submit(*TRAIN, "--launcher", launcher, "--", sys.executable, "train.py", code=124, seconds=240)
    said = call("why", job).splitlines()
    assert HANGS.replace("a core", "a core or a GPU") in said[0] and said[1] == FOUND
    assert state(job)["exit_code"] == 124


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_job_is_requeued_while_attempts_are_left(work):
    """A job that hangs in its first attempt is done in its second."""
    (work / "train.py").write_text(DEADLOCK)
    job = submit(*TRAIN, "--max-attempts", "2", "--", sys.executable, "train.py", seconds=500)
    text = Path("hpclaunch-runs", job, "rank-3.log").read_text()
    assert text.count("--- attempt ") == 2 and "done" in text
    assert hangs.describe(Path("hpclaunch-runs", job)) == [FOUND]
