"""Reports of jobs on a real Slurm: what sacct says, and what the nodes noted."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import USES, call, submit, used_by_ranks

from hpclaunch.runs import usage

pytestmark = [pytest.mark.usefixtures("slurm"), pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize("launcher", ["tasks", "torchrun"])
def test_a_report_agrees_with_sacct_and_the_ranks(launcher):
    """Of two nodes with two ranks each: time of cores and memory are within 5 % of what sacct and the program say."""
    size = ("--nodes", "2", "--tasks-per-node", "2", "--gpus-per-node", "2", "--launcher", launcher)
    job = submit(*size, "--wait", "--", sys.executable, "-c", USES, "300", "10", "8", seconds=300)
    found, ranks = json.loads(call("report", "--json", job)), used_by_ranks(Path("hpclaunch-runs", job))
    slurm, nodes = found["accounting"], usage.read(Path("hpclaunch-runs", job))
    seconds, memory = sum(each for _, each in ranks), sum(each for each, _ in ranks)
    others = 8 if launcher == "torchrun" else 0  # seconds of its imports
    assert slurm["cpu_seconds"] - others == pytest.approx(seconds, rel=0.05, abs=others)
    assert sum(node.cpu_seconds for node in nodes) == pytest.approx(slurm["cpu_seconds"], rel=0.05)
    if launcher == "tasks":
        assert slurm["mem_gb"] == pytest.approx(memory, rel=0.05)
        assert found["used"]["mem_gb"] == pytest.approx(memory / 2, rel=0.05)
    assert found["used"]["seconds"] == slurm["seconds"]
    assert found["paid"]["amount"] == pytest.approx(8 * slurm["seconds"] / 3600, abs=0.01)  # of whole nodes
    assert sorted(rank for node in nodes for _, what, rank, code in node.events if (what, code) == ("end", "0")) == [
        f"rank {number}" for number in range(4)
    ]
