"""Sweeps on PBS: one array where the site takes arrays, else single jobs, some at once."""

from __future__ import annotations

import json
import re
import sys
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from conftest import COUNT, call, submit, wait_until

# Writes metrics of its values, and fails for one of them until a file is there; runs on two nodes.
PROGRAM = """
import json, os, sys, time
rate, seed = sys.argv[1:]
time.sleep(1)
if os.environ["RANK"] == "0":
    with open(os.path.join(os.environ["HPCLAUNCH_RUN_DIR"], "metrics.json"), "w") as file:
        json.dump({"loss": float(rate) * int(seed), "world": os.environ["WORLD_SIZE"]}, file)
print("seed", seed, os.environ.get("PBS_ARRAY_INDEX"), flush=True)
time.sleep(int(os.environ["RANK"]))
sys.exit(4 if seed == "2" and not os.path.exists("fixed") else 0)
"""
VALUES = ("--sweep", "lr=0.5,2", "--sweep", "seed=1..2")


@pytest.fixture
def command(qsub, work):
    """The words of a command with places for both values."""
    qsub()
    (work / "program.py").write_text(PROGRAM)
    return "--", sys.executable, "program.py", "{lr}", "{seed}"


def elements(sweep: str) -> list[dict]:
    return json.loads(call("results", sweep, "--json"))


@pytest.mark.slow
def test_a_sweep_is_one_array(command, work):
    """Its id is the array's; each job has its values; what failed runs again, and the results are joined."""
    words = ("--site", "pbs-here", "-q", "normal", "--nodes", "2", "--tasks-per-node", "1", "--launcher", "tasks")
    sweep = submit(*words, *VALUES, "--at-most", "3", *command)
    later = submit("--site", "pbs-here", "-q", "normal", "--after-any", sweep, "--", "true")
    assert re.fullmatch(r"\d+\[\]\.gadi-pbs", sweep)
    short = sweep.partition("[")[0]
    call("wait", short, code=4, seconds=100)
    call("wait", later)
    table = call("status", sweep).splitlines()
    assert [line.split()[:5] for line in table[1:]] == [
        ["0", "0.5", "1", "COMPLETED", "0"],
        ["1", "0.5", "2", "FAILED", "4"],
        ["2", "2", "1", "COMPLETED", "0"],
        ["3", "2", "2", "FAILED", "4"],
    ]
    assert "exited with 4" in call("why", f"{short}[1]") and "exited with 4" in call("why", f"{sweep}:3")
    assert call("logs", "--failed", short, "--rank", "0") == (
        f"==> {short}[1].gadi-pbs <==\nseed 2 1\n==> {short}[3].gadi-pbs <==\nseed 2 3\n"
    )
    (work / "fixed").touch()
    assert call("rerun", short, "--failed", "--quiet", "--wait", seconds=100).strip() == sweep
    found = elements(short)
    assert [(one["state"], one["metrics"]) for one in found] == [
        ("COMPLETED", {"loss": rate * seed, "world": "2"}) for rate in (0.5, 2) for seed in (1, 2)
    ]
    assert found[0]["job"] == f"{short}[0].gadi-pbs" and not found[1]["job"].startswith(short)
    assert call("results", sweep, "--csv").splitlines()[2].startswith("1,0.5,2,1.0,2,COMPLETED,0,")
    call("rerun", short, "--failed", code=1)


@pytest.mark.slow
def test_without_arrays_some_jobs_run_at_once(command):
    """Where a site takes no arrays these are single jobs, chained, and an array's index is in PBS's variable."""
    words = ("--site", "gadi-here", "-q", "normal", "--cpus-per-task", "1", "--launcher", "tasks")
    sweep = submit(*words, "--array", "3,5,9", "--at-most", "1", "--", "sh", "-c", "echo {x} $PBS_ARRAY_INDEX; sleep 2")
    assert sweep.startswith("sweep-")
    states = json.loads(call("status", sweep, "--json"))
    assert [state["reason"] for state in states[1:]] == ["Dependency"] * 2
    call("wait", sweep, seconds=100)
    assert [one["element"] for one in elements(sweep)] == [3, 5, 9]
    starts = []
    for one in elements(sweep):
        folder = Path("hpclaunch-runs", one["job"])
        assert (folder / "rank-0.log").read_text() == f"{{x}} {one['element']}\n"
        starts.append(((folder / "about.json").stat().st_mtime, (folder / "exit").stat().st_mtime))
    assert all(before[1] <= after[0] for before, after in pairwise(starts))


@pytest.mark.slow
@pytest.mark.parametrize("site", ["pbs-here", "gadi-here"])
def test_twelve_jobs_of_two_nodes(command, work, site):
    """As one array and as single jobs: three at once at most, those that fail run again, and the table has all."""
    words = ("--site", site, "-q", "normal", "--nodes", "2", "--tasks-per-node", "1", "--at-most", "3")
    words += ("--launcher", "tasks")  # torchrun's ports would be those of other tests' jobs of the same number
    sweep = submit(*words, "--sweep", "lr=0.5,1,2,4", "--sweep", "seed=0..2", *command)
    assert ("[]" in sweep) == (site == "pbs-here")
    call("wait", sweep, code=4, seconds=300)
    times = [(Path("hpclaunch-runs", one["job"], name).stat().st_mtime, step)
             for one in elements(sweep) for name, step in (("about.json", 1), ("exit", -1))]  # fmt: skip
    assert max(accumulate(step for _, step in sorted(times))) <= 3
    assert [one["element"] for one in elements(sweep) if one["state"] == "FAILED"] == [2, 5, 8, 11]
    (work / "fixed").touch()
    call("rerun", sweep, "--failed", "--quiet", "--wait", seconds=200)
    assert [(one["state"], one["metrics"]) for one in elements(sweep)] == [
        ("COMPLETED", {"loss": rate * seed, "world": "2"}) for rate in (0.5, 1, 2, 4) for seed in range(3)
    ]


@pytest.mark.slow
def test_each_job_has_its_attempts(command, work):
    """With attempts on PBS a sweep is single jobs; one at once waits for all attempts of the one before."""
    (work / "count.py").write_text(COUNT.replace("LIMIT", "int(sys.argv[1])"))
    words = ("--site", "gadi-here", "-q", "normal", "--launcher", "tasks", "--cpus-per-task", "1")
    short = ("-t", "00:00:20", "--warn-before", "12s", "--max-attempts", "3", "--at-most", "1")
    sweep = submit(*words, *short, "--sweep", "limit=2,9", "--", sys.executable, "count.py", "{limit}")
    call("wait", sweep, seconds=200)
    found = elements(sweep)
    assert [one["state"] for one in found] == ["COMPLETED"] * 2
    log = Path("hpclaunch-runs", found[1]["job"], "rank-0.log").read_text()
    assert log.count("--- attempt") == 2 and log.endswith("step 9\ndone\n")


def test_a_sweep_is_cancelled_as_one(command):
    """`cancel` ends the whole array, those jobs too that had not begun."""
    words = ("--site", "pbs-here", "-q", "normal")
    sweep = submit(*words, "--array", "0-3", "--at-most", "1", "--", "sleep", "100")
    wait_until(lambda: "RUNNING" in call("status", sweep))
    call("cancel", sweep)
    wait_until(lambda: {one["state"] for one in elements(sweep)} == {"CANCELLED"})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--sweep", "lr=1,2"), "{x} is not swept"),
        (("--sweep", "lr=1", "--array", "0-3"), "exclude each other"),
        (("--at-most", "2"), "there is one job"),
        (("--sweep", "lr=1,2", "--script", "job.sh"), "does not go with --script"),
        (("--sweep-file", "runs.csv"), "runs.csv: No such file"),
        (("--sweep", "x=1..9", "--max-cost", "1"), "9 jobs"),
    ],
)
def test_nothing_is_submitted_if_anything_is_wrong(command, cli, words, message):
    """One clear refusal, and no job."""
    Path("job.sh").write_text("#!/bin/bash\ntrue\n")
    result = cli("submit", "--site", "gadi-here", "-q", "gpuvolta", "--gpus-per-node", "1", *words, "--", "true", "{x}")
    assert result.exit_code and message in result.stderr
    assert json.loads(call("jobs", "--json")) == []
