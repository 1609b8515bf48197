"""What hpclaunch says of jobs on a real Slurm, step by step, beside what Slurm's controller knows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import call, program, start, wait_until

ENDS = ("COMPLETED", "FAILED", "CANCELLED")
# The first attempt stays until it is evicted or its node dies, the second ends with this code.
TWICE = 'echo "$SLURM_RESTART_COUNT" >>began; [ -z "$SLURM_RESTART_COUNT" ] && sleep 300; exit {code}'
PYTHON = """
import hpclaunch, os, pathlib, sys, time

def again(name):
    with open(f"{name}.began", "a") as file:
        file.write("began\\n")
    if "SLURM_RESTART_COUNT" not in os.environ:
        time.sleep(300)
    return os.environ["SLURM_RESTART_COUNT"]

def submit(name, node, **options):
    options |= dict(tasks_per_node=1, cpus_per_task=1, walltime="00:05:00", account="abc@v100")
    return hpclaunch.executor("jz", directive=[f"--nodelist={node}"], **options).submit(again, name)

jobs = [submit("evicted", "r6i4n1", qos="qos_evict", force=["qos"]), submit("dying", "r7i3n1")]
print(*(job.job_id for job in jobs), flush=True)
seen = set()
while not {job.state for job in jobs} <= {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"}:
    seen |= {job.state for job in jobs}
    assert all(job.paths.result_pickle.exists() for job in jobs if job.done()), seen
    time.sleep(0.3)
print(*(f"{job.state}:{job.result()}" for job in jobs), *sorted(seen))
"""


def controllers(ids: list[str]) -> dict[str, tuple[str, int | None]]:
    """Return our word and exit code for each job, as Slurm's controller has them."""
    said = subprocess.run(["scontrol", "--oneliner", "show", "jobs"], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in said.splitlines():
        values = dict(re.findall(r"(\S+?)=(\S*)", line))
        if values["JobId"] in ids:
            word, (code, number) = values["JobState"], map(int, values["ExitCode"].split(":"))
            alive = {"CONFIGURING": "RUNNING", "RUNNING": "RUNNING", "COMPLETING": "COMPLETING"}.get(word, "PENDING")
            again = alive == "PENDING" and values["Restarts"] != "0"
            ended = (word, 128 + number if number else code) if word in ("COMPLETED", "FAILED") else (word, None)
            found[values["JobId"]] = ended if word in ENDS else ("REQUEUED" if again else alive, None)
    return found


def agreed(ids: list[str]) -> dict[str, tuple[str, int | None]]:
    """Return what the controller says; fail if `status` and `jobs` say otherwise while that does not change."""
    for words in (("status", "--json", *ids), ("jobs", "--json")):
        before = controllers(ids)
        rows = {row["id"]: (row["word"], row["exit_code"]) for row in json.loads(call(*words))}
        after = controllers(ids)
        for job in ids:
            ending = after[job][0] == "COMPLETING"  # its accounting may have the end already
            assert ending or before[job] != after[job] or rows[job] == after[job], words
    return after


@pytest.mark.slow
def test_what_is_said_is_what_slurm_knows(slurm, work):
    """Through failures, a cancellation, a preemption and a node's death, each command and Python tell the truth."""
    (work / "twice.py").write_text(PYTHON)
    one = ("submit", "--quiet", "--tasks-per-node", "1", "--cpus-per-task", "1")
    elsewhere = "--directive=--nodelist=r7i3n0"
    evicted = ("--directive=--nodelist=r6i4n0", "--qos", "qos_evict", "--force", "qos")
    for name in ("evicted", "dying"):
        (work / name).mkdir()
        (work / name / "site_profiles").symlink_to(work / "site_profiles")
    python = subprocess.Popen(
        [sys.executable, "twice.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    submitted = {
        "137": start(*one, elsewhere, "--wait", "--", "sh", "-c", "exit 137"),
        "255": start(*one, elsewhere, "--wait", "--", "sh", "-c", "exit 255"),
        "cancelled": start(*one, elsewhere, "--", "sleep", "300"),
        "evicted": start(*one, *evicted, "--", "sh", "-c", TWICE.format(code=137), cwd=work / "evicted"),
        "dying": start(
            *one, "--directive=--nodelist=r7i3n1", "--max-attempts", "3", "--", "sh", "-c", TWICE.format(code=0),
            cwd=work / "dying",
        ),
    }  # fmt: skip
    jobs = {name: process.stdout.readline().strip() for name, process in submitted.items()}
    jobs |= zip(("python evicted", "python dying"), python.stdout.readline().split(), strict=True)
    ids = list(jobs.values())
    began = [work / "evicted" / "began", work / "dying" / "began", work / "evicted.began", work / "dying.began"]
    wait_until(lambda: all(path.exists() for path in began), 60)
    waiting = {name: start("wait", jobs[name]) for name in ("cancelled", "evicted", "dying")}
    agreed(ids)

    # All at once, since each takes its time.
    call("cancel", jobs["cancelled"])
    room = start(*one, "--nodes", "2", "--directive=--nodelist=r6i4n[0-1]", "--directive=--exclusive", "--", "true")
    subprocess.run([slurm, "kill-node", "r7i3n1"], check=True)
    subprocess.run(["scontrol", "update", "nodename=r7i3n1", "state=down", "reason=test"], check=True)
    try:
        wait_until(lambda: agreed(ids)[jobs["evicted"]][0] == "REQUEUED")
        for name in ("evicted", "dying", "python evicted", "python dying"):
            assert re.search(r"\) (REQUEUED|RUNNING)", call("why", jobs[name]).splitlines()[0])
    finally:
        subprocess.run([slurm, "start-node", "r7i3n1"], check=True)
    wait_until(lambda: all(word in ENDS for word, _ in agreed(ids).values()), 90)

    assert {name: waiting[name].wait(timeout=30) for name in waiting} == {"cancelled": 1, "evicted": 137, "dying": 0}
    assert [submitted[name].wait(timeout=30) for name in ("137", "255")] == [137, 255]
    assert room.wait(timeout=30) == 0
    stdout, stderr = python.communicate(timeout=60)
    assert stdout.split()[:2] == ["COMPLETED:1", "COMPLETED:1"], stderr
    assert set(stdout.split()[2:]) <= {"PENDING", "RUNNING", "REQUEUED", "COMPLETED"}
    ends = {name: agreed(ids)[job] for name, job in jobs.items()}
    completed = ("COMPLETED", 0)
    assert ends == {
        "137": ("FAILED", 137), "255": ("FAILED", 255), "cancelled": ("CANCELLED", None), "evicted": ("FAILED", 137),
        "dying": completed, "python evicted": completed, "python dying": completed,
    }  # fmt: skip
    for name in ("137", "255", "evicted"):
        assert f"exited with {ends[name][1]}" in call("why", jobs[name])
        call("wait", jobs[name], code=ends[name][1])
    assert "CANCELLED: it was cancelled" in call("why", jobs["cancelled"])


def test_the_start_of_a_waiting_job_is_told(slurm):
    """A job that is to begin in an hour has the time at which Slurm expects it to start."""
    job = call("submit", "--quiet", "--directive=--begin=now+1hour", "--", "true").strip()
    (row,) = json.loads(call("status", "--json", job))
    assert (row["word"], row["reason"]) == ("PENDING", "BeginTime")
    assert abs(row["expected_start"] - time.time() - 3600) < 60


def test_a_job_of_another_cluster_is_not_taken_for_one_of_this(slurm):
    """A run of another cluster whose id somebody else's job has here is UNKNOWN, and nobody waits for it."""
    words = ("sbatch", "--parsable", "--account=abc@v100", "--output=/dev/null", "--wrap=true")
    other = subprocess.run(words, check=True, capture_output=True, text=True, cwd="/", user="alice").stdout.strip()
    record = ("sacct", "-X", "-P", "-n", f"--jobs={other}", "--format=State,UID")  # at first it has no user, which is 0
    wait_until(lambda: re.fullmatch(r"COMPLETED\|[1-9]\d*\n", subprocess.check_output(record, text=True)))
    folder = Path("hpclaunch-runs", other)
    folder.mkdir(parents=True)
    run = {"id": other, "site": "jz", "scheduler": "slurm", "job_name": "train", "submitted": time.time(), "poll": 1}
    (folder / "run.json").write_text(json.dumps(run | {"folder": str(folder.absolute())}))
    process = start("wait", other)
    assert "slurm does not know this job" in process.communicate(timeout=30)[1]
    assert process.returncode == 3


def test_a_code_that_only_sacct_remembers_is_not_told_wrong(slurm, work, monkeypatch):
    """Once Slurm's controller has forgotten a job that failed with 255, its exit code is 255 or none, and never 127."""
    (work / "own.sh").write_text("#!/bin/bash\n#SBATCH --account=abc@v100\n#SBATCH --output=/dev/null\nexit 255\n")
    job = call("submit", "--quiet", "--script", "own.sh", "--wait", code=255).strip()
    program(work / "bin" / "squeue", "exit 0")
    monkeypatch.setenv("PATH", f"{work / 'bin'}:/usr/bin:/bin")
    wait_until(lambda: json.loads(call("status", "--json", job))[0]["word"] == "FAILED")
    assert json.loads(call("status", "--json", job))[0]["exit_code"] is None
    (Path("hpclaunch-runs", job, "exit")).write_text("255\n")
    call("wait", job, code=255)
