"""Trainings on a real Slurm cluster that lose ranks and nodes and go on in the same allocation."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TRAINING, call, processes_with, state, submit, wait_until

pytestmark = [pytest.mark.usefixtures("slurm"), pytest.mark.slow, pytest.mark.timeout(600)]
STEPS, EVERY = 60, 5
FAILS = "import os, time; print('tried'); time.sleep(2 * int(os.environ['RANK'])); os._exit(7)"
PLACE = "import os; print(os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"


@pytest.fixture(autouse=True)
def training(work):
    (work / "train.py").write_text(TRAINING.replace("STEPS", str(STEPS)).replace("EVERY", str(EVERY)))


def train(*words: str) -> str:
    return submit("--launcher", "torchrun", "--tasks-per-node", "1", *words, "--", sys.executable, "train.py")


def log(job: str, rank: int = 0) -> str:
    path = Path("hpclaunch-runs", job, f"rank-{rank}.log")
    return path.read_text() if path.exists() else ""


def steps(job: str) -> list[int]:
    return [int(number) for number in re.findall(r"^step (\d+) of", log(job), re.MULTILINE)]


def busy_host(job: str, hosts: list[str]) -> str:
    """Return the host that has ranks, but is not the head."""
    starts = "".join(path.read_text() for path in Path("hpclaunch-runs", job).glob("node-*.starts"))
    return next(host for host in hosts[1:] if host in starts)


def check_steps(job: str, worlds: list[int]) -> None:
    """The job ended well without a requeue, in these world sizes; only the steps since the last save were lost."""
    call("wait", job, seconds=200)
    assert state(job)["word"] == "COMPLETED"
    trained = steps(job)
    assert set(trained) == set(range(STEPS))
    assert len(trained) <= STEPS + EVERY * (len(worlds) - 1)
    assert [int(world) for world in re.findall(r"^world (\d+)", log(job), re.MULTILINE)] == worlds
    assert "Restarts=0" in subprocess.check_output(["scontrol", "show", "job", job], text=True)


@pytest.mark.parametrize(("asked", "worlds"), [(("--spares", "1"), [2, 2]), (("--min-nodes", "1"), [2, 1])])
def test_a_node_powered_off_in_training_does_not_end_the_job(slurm, asked, worlds):
    """A spare takes its place, or the others go on: in the same allocation, from the last save."""
    hosts = ["r6i4n0", "r6i4n1", *(["r7i3n0"] if "--spares" in asked else [])]
    job = train("--nodes", "2", *asked, f"--directive=--nodelist={','.join(hosts)}")
    wait_until(lambda: len(steps(job)) > 12, 90)
    busy = busy_host(job, hosts)
    try:
        subprocess.run([slurm, "kill-node", busy], check=True)
        check_steps(job, worlds)
    finally:
        subprocess.run([slurm, "start-node", busy], check=True)
    assert f"1 restart, without {busy}" in call("status", job)
    assert f"started again once in its allocation; {busy} was left out" in call("why", job)


def test_when_too_many_nodes_are_lost_the_next_attempt_goes_on(slurm):
    """Two of three nodes die, one more than there are spares: the job is requeued and goes on from the last save."""
    slow = "0.3 if os.environ['HPCLAUNCH_ATTEMPT'] == '2' or self.global_step < 20 else 5"
    Path("train.py").write_text(Path("train.py").read_text().replace("sleep(0.3)", f"sleep({slow})"))
    hosts = ["r6i4n0", "r6i4n1", "r7i3n0"]
    words = ("--nodes", "2", "--spares", "1", "--max-attempts", "2", f"--directive=--nodelist={','.join(hosts)}")
    job = train(*words)
    wait_until(lambda: len(steps(job)) > 12, 90)
    try:
        first = busy_host(job, hosts)
        subprocess.run([slurm, "kill-node", first], check=True)
        wait_until(lambda: state(job)["restarts"] == 1 and log(job).count("world 2") == 2, 100)
        subprocess.run([slurm, "kill-node", next(host for host in hosts[1:] if host != first)], check=True)
        said = re.compile(r"nodes are dead: .*r[67]i[34]n[01], going on in attempt 2 of 2")
        wait_until(lambda: said.search(Path(f"train_{job}.out").read_text()), 200)
    finally:
        for host in hosts[1:]:
            subprocess.run([slurm, "start-node", host], check=True)
    call("wait", job, seconds=200)
    assert state(job)["word"] == "COMPLETED"
    assert set(steps(job)) == set(range(STEPS))


def test_a_killed_worker_is_started_again(slurm):
    """One rank is killed: all start again on the same nodes."""
    job = train("--nodes", "2", "--max-restarts", "2")
    wait_until(lambda: len(steps(job)) > 12, 90)
    mine = f"HPCLAUNCH_RUN_DIR={Path.cwd()}/hpclaunch-runs/{job}"
    os.kill(rank_process(mine, 1), signal.SIGKILL)
    check_steps(job, [2, 2])
    assert "1 restart" in call("status", job)
    assert "without" not in call("status", job)


def rank_process(mark: str, rank: int) -> int:
    """Return the process of the program of one rank."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line, variables = ((folder / name).read_bytes().split(b"\0") for name in ("cmdline", "environ"))
        except OSError:
            continue
        if b"train.py" in line and {mark.encode(), f"RANK={rank}".encode()} <= {*variables} and b"bash" not in line[0]:
            return int(folder.name)
    raise AssertionError(f"no process of rank {rank}")


@pytest.mark.parametrize("spares", [(), ("--spares", "1")])
def test_without_restarts_left_the_first_failure_is_named(slurm, spares):
    """A program that always fails ends the job with its exit code, after as many restarts as were requested."""
    words = ("--launcher", "torchrun", "--tasks-per-node", "1", "--nodes", "2", "--max-restarts", "1", *spares)
    job = submit(*words, "--wait", "--", sys.executable, "-c", FAILS, code=7)
    assert 2 <= log(job).count("tried") <= (6 if spares else 2)  # each of the three nodes counts its own failures
    assert "exited with 7" in call("why", job)
    wait_until(lambda: processes_with(f"{Path.cwd()}/hpclaunch-runs/{job}") == [])


def test_a_range_of_nodes_takes_what_is_free(slurm):
    """With two of four nodes taken, --nodes 1:3 gets the two others, and the training has two ranks."""
    other = submit("--nodes", "2", "--tasks-per-node", "1", "--", "sleep", "60")
    wait_until(lambda: state(other)["word"] == "RUNNING", 60)
    for launcher in ("torchrun", "tasks"):
        words = ("--nodes", "1:3", "--launcher", launcher, "--tasks-per-node", "1", "--directive=--exclusive")
        job = submit(*words, "--wait", "--", sys.executable, "-c", PLACE)
        assert [log(job, rank) for rank in range(3)] == ["0 of 2\n", "1 of 2\n", ""]
