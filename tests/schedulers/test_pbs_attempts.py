"""PBS jobs that outlive their walltime and their nodes, and functions that do so through submitit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import COUNT, call, processes_with, start, state, submit, wait_until
from standin import pbs

SITE = ("--site", "gadi-here", "-q", "normal", "--launcher", "tasks")
TWO_BY_TWO = ("--nodes", "2", "--tasks-per-node", "2")
SHORT = ("-t", "00:00:20", "--warn-before", "12s")  # 8 steps of COUNT at most; half of them where the machine is slow


@pytest.fixture(autouse=True)
def count(qsub, work):
    """A PBS on PATH, and a command that counts to LIMIT."""
    qsub()

    def write(limit: int) -> tuple[str, ...]:
        (work / "count.py").write_text(COUNT.replace("LIMIT", str(limit)))
        return "--", sys.executable, "count.py"

    return write


def folder(job: str) -> Path:
    return Path("hpclaunch-runs", job)


def log(job: str, rank: int = 0) -> list[str]:
    path = folder(job) / f"rank-{rank}.log"
    return path.read_text().splitlines() if path.exists() else []


def attempts(job: str) -> list[str]:
    path = folder(job) / "attempts"
    return path.read_text().split() if path.exists() else []


@pytest.mark.slow
def test_a_job_goes_on_past_its_walltime(count):
    """A run of three walltimes is one run of three jobs: REQUEUED in between, COMPLETED in the end, no step twice."""
    job = submit(*SITE, *TWO_BY_TWO, *SHORT, "--max-attempts", "9", *count(20))
    wait_until(lambda: attempts(job) != [], 60)
    assert state(job)["word"] in ("REQUEUED", "RUNNING")
    call("wait", job, seconds=120)
    assert state(job)["word"] == "COMPLETED"
    for rank in range(4):
        assert [line for line in log(job, rank) if "---" not in line] == [f"step {n}" for n in range(1, 21)] + ["done"]
    marks = [line for line in log(job) if "---" in line]
    assert marks == [f"--- attempt {number} of 9 ---" for number in range(1, len(attempts(job)) + 2)]
    assert len(marks) >= 3
    assert len(json.loads(call("jobs", "--json"))) == 1
    first, second = (Path(f"count.o{name.split('.')[0]}").read_text() for name in (job, attempts(job)[0]))
    assert "going on in attempt 2 of 9" in first
    assert "step 1\n" in first
    assert "step 1\n" not in second


@pytest.mark.slow
def test_where_jobs_may_not_submit_the_chain_ends_when_the_work_is_done(count):
    """With `resubmit: false` all attempts are submitted together, and those that find nothing to do end at once."""
    words = ("--site", "gadi-no-qsub", *SITE[2:], "--tasks-per-node", "2", *SHORT, "--max-attempts", "4")
    job = submit(*words, *count(9))
    assert len(attempts(job)) == 3
    call("wait", job, seconds=120)
    assert state(job)["word"] == "COMPLETED"
    wait_until(lambda: processes_with(f"PBS_O_WORKDIR={Path.cwd()}") == [])
    assert [line for line in log(job) if "---" in line] == ["--- attempt 1 of 4 ---", "--- attempt 2 of 4 ---"]
    assert [line for line in log(job) if "step" in line] == [f"step {n}" for n in range(1, 10)]


@pytest.mark.slow
def test_what_comes_after_waits_for_the_last_attempt(count):
    """A job --after a chain starts after its last link; after a run whose jobs are yet to come it is refused."""
    chain = ("--site", "gadi-no-qsub", *SITE[2:], "--max-attempts", "2", "-t", "00:05:00")
    first = submit(*chain, "--", "sh", "-c", "sleep 2; touch done")
    submit(*SITE, "--after", first, "--wait", "--", "test", "-e", "done")
    first = submit(*SITE, "--max-attempts", "2", "-t", "00:05:00", "--", "true")
    process = start("submit", *SITE, "--after", first, "--", "true")
    assert "may continue in further jobs" in process.communicate(timeout=30)[1]
    assert process.returncode == 1


@pytest.mark.slow
def test_attempts_end_clearly_when_they_are_used_up(count):
    """After the last attempt the run ends with 75 and says so; one that fails by itself is never started again."""
    job = submit(*SITE, *SHORT, "--max-attempts", "2", "--wait", *count(1000), code=75)
    assert len(attempts(job)) == 1
    output = Path(f"count.o{attempts(job)[0].split('.')[0]}").read_text()
    assert "not done, and 2 attempts are used up" in output
    failing = submit(*SITE, *SHORT, "--max-attempts", "2", "--wait", "--", "sh", "-c", "exit 9", code=9)
    assert attempts(failing) == []


def test_a_cancelled_job_has_no_successor(count):
    """Qdel tells the ranks, which may save; nothing is submitted, and nothing goes on."""
    job = submit(*SITE, *TWO_BY_TWO, "-t", "00:05:00", "--max-attempts", "3", *count(1000))
    wait_until(lambda: "step 1" in log(job, 3))
    call("cancel", job)
    wait_until(lambda: state(job)["word"] == "CANCELLED")
    wait_until(lambda: processes_with(f"PBS_O_WORKDIR={Path.cwd()}") == [])
    assert attempts(job) == []


@pytest.mark.slow
def test_a_lost_node_costs_the_job_its_attempt_only(count, tmp_path):
    """When a node dies the job notices within a minute and goes on, on other nodes, from the last save."""
    job = submit(*SITE, *TWO_BY_TWO, "-t", "00:10:00", "--max-attempts", "3", *count(8))
    wait_until(lambda: "step 3" in log(job, 3))
    pbs.lose(tmp_path / "pbs server", "127.0.0.2")
    call("wait", job, seconds=150)
    assert state(job)["word"] == "COMPLETED"
    assert len(attempts(job)) == 1
    assert "node 127.0.0.2 is silent" in Path(f"count.o{job.split('.')[0]}").read_text()
    assert log(job, 3)[-1] == "done"


@pytest.mark.slow
def test_a_lost_node_whose_peers_fail_first_costs_the_attempt_only(count, work, tmp_path):
    """Ranks that fail because a node is gone do not end the run: the node's silence is the reason."""
    words = count(8)
    (work / "peers.sh").write_text(
        '"$@" & while kill -0 $!; do [ -e gone ] && rm gone && exit 1; sleep 1; done; wait $!\n'
    )
    job = submit(
        *SITE, *TWO_BY_TWO, "-t", "00:10:00", "--max-attempts", "3", "--", "bash", "peers.sh", *words[1:]
    )  # fmt: skip
    wait_until(lambda: "step 3" in log(job, 3))
    pbs.lose(tmp_path / "pbs server", "127.0.0.2")
    (work / "gone").touch()
    call("wait", job, seconds=150)
    assert state(job)["word"] == "COMPLETED"
    assert len(attempts(job)) == 1


@pytest.mark.slow
def test_a_job_deleted_while_it_waits_for_a_lost_node_has_no_successor(count, qsub, work, tmp_path):
    """Qdel is the last word, also when the job has just noticed that a node is gone."""
    qsub(kill_delay=20)
    (work / "peer.sh").write_text("until [ -e gone ]; do sleep 1; done; exit 1\n")
    job = submit(*SITE, *TWO_BY_TWO, "-t", "00:10:00", "--max-attempts", "3", "--", "bash", "peer.sh")
    wait_until(lambda: [*folder(job).glob("node-1.heartbeat.[1-9]*")] != [])
    pbs.lose(tmp_path / "pbs server", "127.0.0.2")
    (work / "gone").touch()
    wait_until((folder(job) / "failed").exists)
    subprocess.run(["qdel", job], check=True)
    wait_until(lambda: processes_with(f"PBS_O_WORKDIR={Path.cwd()}") == [])
    assert attempts(job) == []


@pytest.mark.slow
def test_a_further_attempt_may_be_started_again_by_pbs(count, tmp_path):
    """With `resubmit: false`, an attempt whose first node dies does its work when PBS starts it anew."""
    words = ("--site", "gadi-no-qsub", *SITE[2:], *SHORT, "--max-attempts", "2", "--directive", "-r y")
    job = submit(*words, *count(9))
    wait_until(lambda: "--- attempt 2 of 2 ---" in log(job), 60)
    pbs.lose(tmp_path / "pbs server", "127.0.0.1")
    call("wait", job, seconds=120)
    assert state(job)["word"] == "COMPLETED"
    assert log(job)[-1] == "done"


@pytest.mark.slow
def test_attempts_go_on_in_their_run_folder(count, work, tmp_path, monkeypatch):
    """A further attempt goes on where the first did, whatever folder --setup went to and whatever qsub says besides."""
    real = tmp_path / "pbs server" / "bin" / "qsub"
    wrapper = tmp_path / "wrapper" / "qsub"
    wrapper.parent.mkdir()
    wrapper.write_text(f"#!/bin/sh\necho Welcome to the queue\nexec '{real}' \"$@\"\n")
    wrapper.chmod(0o755)
    (work / "sub").mkdir()
    setup = ("--setup", f"cd sub; PATH={wrapper.parent}:$PATH")
    job = submit(*SITE, *SHORT, *setup, "--max-attempts", "3", "--", sys.executable, f"{work}/count.py", *count(9)[3:])
    call("wait", job, seconds=120)
    assert state(job)["word"] == "COMPLETED"
    assert log(job)[-1] == "done"
    assert not (work / "sub" / "hpclaunch-runs").exists()
    assert all(name.endswith(".gadi-pbs") for name in attempts(job))


@pytest.mark.slow
def test_a_lost_head_node_starts_the_job_again(count, tmp_path):
    """When the node of the job script dies, PBS starts the same job elsewhere, and it goes on from the last save."""
    job = submit(*SITE, *TWO_BY_TWO, "-t", "00:10:00", "--max-attempts", "3", *count(8))
    wait_until(lambda: "step 3" in log(job, 3))
    pbs.lose(tmp_path / "pbs server", "127.0.0.1")
    call("wait", job, seconds=150)
    assert state(job)["word"] == "COMPLETED"
    assert attempts(job) == []
    assert log(job).count("--- attempt 1 of 3 ---") == 2
    assert log(job)[-1] == "done"


@pytest.mark.slow
def test_a_checkpointed_function_goes_on(work):
    """Submitit's own checkpointing works: told before the walltime, the function goes on in a new job."""
    (work / "counting.py").write_text(
        "import time\n"
        "from submitit.helpers import Checkpointable, DelayedSubmission\n"
        "class Count:\n"
        "    def __init__(self, n=0):\n"
        "        self.n = n\n"
        "    def __call__(self):\n"
        "        while self.n < 24:\n"
        "            time.sleep(1)\n"
        "            self.n += 1\n"
        "            print('counted', self.n, flush=True)\n"
        "        return self.n\n"
        "    def checkpoint(self):\n"
        "        return DelayedSubmission(Count(self.n))\n"
    )
    script = (
        "import submitit\n"
        "from counting import Count\n"
        "executor = submitit.AutoExecutor('jobs', cluster='pbs')\n"
        "executor.update_parameters(pbs_walltime='00:00:20', pbs_site='pbs-here', pbs_queue='normal')\n"
        "job = executor.submit(Count())\n"
        "print(job.job_id, job.result())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=150, check=False,
        env={**os.environ, "PYTHONPATH": f"{work}:{os.environ.get('PYTHONPATH', '')}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    job, result = done.stdout.split()
    assert result == "24"
    assert len(attempts(job)) >= 1
    counted = [int(number) for number in re.findall(r"counted (\d+)", "\n".join(log(job)))]
    assert sorted(set(counted)) == list(range(1, 25))
