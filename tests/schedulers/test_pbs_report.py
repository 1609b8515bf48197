"""Reports of PBS jobs: what resources_used says, and what the nodes noted."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import USES, call, submit, used_by_ranks


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_report_agrees_with_resources_used_and_the_ranks(qsub):
    """Time of cores and memory are within 5 % of what PBS and the program say; the price is that of the time."""
    qsub()
    words = ("--site", "gadi-here", "-q", "gpuvolta", "--nodes", "2", "--tasks-per-node", "1", "--launcher", "tasks")
    job = submit(*words, "--wait", "--", sys.executable, "-c", USES, "1000", "10", "5", seconds=200)
    found, ranks = json.loads(call("report", "--json", job)), used_by_ranks(Path("hpclaunch-runs", job))
    pbs = found["accounting"]
    assert pbs["cpu_seconds"] == pytest.approx(sum(seconds for _, seconds in ranks), rel=0.05)
    assert pbs["mem_gb"] == pytest.approx(sum(memory for memory, _ in ranks), rel=0.05)
    assert found["used"]["mem_gb"] == pytest.approx(max(memory for memory, _ in ranks), rel=0.05)
    assert found["used"]["seconds"] == pbs["seconds"]
    assert found["paid"]["amount"] == pytest.approx(3 * 96 * pbs["seconds"] / 3600, abs=0.01)
