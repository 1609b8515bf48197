"""--snapshot on a real Slurm: several nodes, an array, a further attempt."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import call, submit

pytestmark = pytest.mark.usefixtures("slurm")
RUNS = Path("hpclaunch-runs")
LATER = "--directive=--begin=now+4"


def test_all_nodes_run_the_code_as_it_was(work):
    """Two ranks on each of two nodes, each of an array's jobs in a copy of its own."""
    (work / "version").write_text("1")
    words = (LATER, "--directive=--array=0-1", "--nodes", "2", "--tasks-per-node", "2", "--snapshot")
    job = submit(*words, "--", "bash", "-c", "cat version; echo $RANK >>ranks")
    (work / "version").write_text("2")
    call("wait", job, seconds=120)
    for folder in (RUNS / f"{job}_0", RUNS / f"{job}_1"):
        assert [(folder / f"rank-{rank}.log").read_text() for rank in range(4)] == ["1"] * 4
        assert sorted((folder / "code" / "ranks").read_text().split()) == list("0123")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_attempt_after_a_requeue_goes_on_in_the_copy(work):
    """It finds the code and what the first attempt wrote."""
    (work / "version").write_text("1\n")
    program = 'cat version; echo "$HPCLAUNCH_ATTEMPT" >>log; ((HPCLAUNCH_ATTEMPT == 2)) || exit 75'
    job = submit("--snapshot", "--tasks-per-node", "1", "--max-attempts", "2", LATER, "--", "bash", "-c", program)
    (work / "version").write_text("2")
    call("wait", job, seconds=500)
    assert (RUNS / job / "rank-0.log").read_text() == "--- attempt 1 of 2 ---\n1\n--- attempt 2 of 2 ---\n1\n"
    assert (RUNS / job / "code" / "log").read_text().split() == ["1", "2"]
