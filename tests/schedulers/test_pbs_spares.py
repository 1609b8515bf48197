"""PBS trainings that lose a node and go on in the same job."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TRAINING, call, state, submit, wait_until
from standin import pbs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
STEPS, EVERY = 60, 5


@pytest.fixture(autouse=True)
def training(qsub, work):
    qsub()
    (work / "train.py").write_text(TRAINING.replace("STEPS", str(STEPS)).replace("EVERY", str(EVERY)))


def train(*words: str) -> str:
    asked = ("--site", "gadi-here", "-q", "normal", "--launcher", "torchrun", "--tasks-per-node", "1", *words)
    return submit(*asked, "-t", "00:10:00", "--", sys.executable, "train.py")


def log(job: str) -> str:
    path = Path("hpclaunch-runs", job, "rank-0.log")
    return path.read_text() if path.exists() else ""


def steps(job: str) -> list[int]:
    return [int(number) for number in re.findall(r"^step (\d+) of", log(job), re.MULTILINE)]


@pytest.mark.parametrize(("asked", "worlds"), [(("--spares", "1"), [2, 2]), (("--min-nodes", "1"), [2, 1])])
def test_a_lost_node_does_not_end_the_job(tmp_path, asked, worlds):
    """A spare takes its place, or the others go on: no further attempt, at most the steps since the last save twice."""
    job = train("--nodes", "2", *asked)
    wait_until(lambda: len(steps(job)) > 12, 90)
    busy = max(int(path.name[5]) for path in Path("hpclaunch-runs", job).glob("node-*.starts"))
    pbs.lose(tmp_path / "pbs server", f"127.0.0.{busy + 1}")
    call("wait", job, seconds=200)
    assert state(job)["word"] == "COMPLETED"
    assert set(steps(job)) == set(range(STEPS))
    assert len(steps(job)) <= STEPS + EVERY
    assert [int(world) for world in re.findall(r"^world (\d+)", log(job), re.MULTILINE)] == worlds
    assert state(job)["restarts"] == 1


def test_more_lost_nodes_than_spares_end_the_job(tmp_path):
    """When none can take its place the job ends, and names a node that is silent."""
    job = train("--nodes", "2", "--spares", "1")
    wait_until(lambda: len(steps(job)) > 3, 90)
    for host in ("127.0.0.2", "127.0.0.3"):
        pbs.lose(tmp_path / "pbs server", host)
    call("wait", job, code=1, seconds=150)
    assert "is silent" in call("why", job)


def test_a_deleted_job_has_no_restart():
    """Qdel ends agents and ranks at once."""
    job = train("--nodes", "2", "--max-restarts", "3")
    wait_until(lambda: len(steps(job)) > 3, 90)
    subprocess.run(["qdel", job], check=True)
    wait_until(lambda: state(job)["word"] == "CANCELLED", 40)
    assert state(job)["restarts"] == 0
