"""A sweep on a real Slurm cluster: one array, one job of it failing, submitted again, its results joined."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import COUNT, call, slow, submit, wait_until

pytestmark = [pytest.mark.usefixtures("slurm"), pytest.mark.timeout(600)]
TWO_NODES = ("--nodes", "2", "--tasks-per-node", "1", "--cpus-per-task", "1")
# Each rank tells the others its place by a file; rank 0 writes what all have told.
PROGRAM = """
import json, os, sys, time
rate, seed = sys.argv[1:]
folder, rank = os.environ["HPCLAUNCH_RUN_DIR"], int(os.environ["RANK"])
open(f"{folder}/new-{rank}", "w").write(str(float(rate) * (rank + 1)))
os.rename(f"{folder}/new-{rank}", f"{folder}/told-{rank}")
while rank == 0 and len([name for name in os.listdir(folder) if name.startswith("told-")]) < 2:
    time.sleep(0.1)
if rank == 0:
    told = [float(open(f"{folder}/told-{one}").read()) for one in range(2)]
    json.dump({"loss": sum(told), "name": os.environ["NAME"]}, open(f"{folder}/metrics.json", "w"))
    sys.exit(5 if (rate, seed) == ("0.25", "2") and not os.path.exists("fixed") else 0)
"""


@pytest.mark.parametrize("rates", [("0.5", "0.25"), slow(("0.5", "0.25", "1", "2"))])
def test_a_sweep_of_two_node_jobs(work, rates):
    """Jobs of two nodes, three at once; one fails, runs again in the same sweep, and the table has all."""
    (work / "program.py").write_text(PROGRAM)
    values = ("--sweep", f"rate={','.join(rates)}", "--sweep", "seed=0..2", "--env", "NAME=it's {rate} & {seed}")
    words = (*TWO_NODES, "--at-most", "3", *values, "--", sys.executable, "program.py", "{rate}", "{seed}")
    sweep = submit(*words)
    assert sweep.isdecimal()
    told = subprocess.run(["squeue", "--noheader", "-j", sweep, "-o", "%K"], capture_output=True, text=True, check=True)
    assert "%3" in told.stdout
    call("wait", sweep, code=5, seconds=500)
    submit("--tasks-per-node", "1", "--after-failed", sweep, "--wait", "--", "true")
    assert call("status", sweep, "--failed").splitlines()[1].split()[:6] == [
        *("5", "0.25", "2", "FAILED", "5", f"{sweep}_5"),
    ]
    (work / "fixed").touch()
    assert call("rerun", sweep, "--failed", "--quiet", "--wait", seconds=200).strip() == sweep
    found = json.loads(call("results", sweep, "--json"))
    assert [(one["values"], one["metrics"]) for one in found] == [
        ({"rate": rate, "seed": str(seed)}, {"loss": 3 * float(rate), "name": f"it's {rate} & {seed}"})
        for rate in rates
        for seed in range(3)
    ]
    assert {(one["state"], one["exit_code"]) for one in found} == {("COMPLETED", 0)}
    assert [one["job"] for one in found if not one["job"].startswith(f"{sweep}_")] == [found[5]["job"]]


@pytest.mark.slow
def test_each_job_of_an_array_has_its_attempts(work):
    """Near the walltime Slurm starts a job of the array again, and only that one; a list of indices works."""
    (work / "count.py").write_text(COUNT.replace("LIMIT", "int(os.environ['SLURM_ARRAY_TASK_ID'])"))
    words = (*TWO_NODES, "-t", "00:02:00", "--warn-before", "60s", "--max-attempts", "6", "--array", "3,75")
    sweep = submit(*words, "--", sys.executable, "count.py")
    call("wait", sweep, seconds=550)
    found = json.loads(call("results", sweep, "--json"))
    assert [(one["element"], one["state"]) for one in found] == [(3, "COMPLETED"), (75, "COMPLETED")]
    logs = [Path("hpclaunch-runs", one["job"], "rank-1.log").read_text() for one in found]
    assert [log.count("--- attempt") > 1 for log in logs] == [False, True]
    assert logs[1].endswith("step 75\ndone\n")


def test_an_array_is_cancelled_at_once(work):
    """`cancel` ends what runs and what waits of an array."""
    sweep = submit("--tasks-per-node", "1", "--array", "0-5", "--at-most", "1", "--", "sleep", "100")
    wait_until(lambda: "RUNNING" in call("status", sweep), 60)
    call("cancel", sweep)
    wait_until(lambda: {one["state"] for one in json.loads(call("results", sweep, "--json"))} == {"CANCELLED"}, 60)
