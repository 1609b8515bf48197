"""What the job script owes to its user from its first line to its last, as PBS runs it; see test_slurm_script.py."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import call, oldest, processes_with, start, state, submit, wait_until
from standin import pbs

GADI = ("--site", "gadi-here", "-q", "normal", "--cpus-per-task", "1", "--launcher", "tasks")
AS_ROOT = ("--env", "OMPI_ALLOW_RUN_AS_ROOT=1", "--env", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
TWELVE = """
import os, sys, time
for number in range(6):  # each line in one write: both streams go to one file, as with srun
    os.write(1, f"out {number}\\n".encode())
    os.write(2, f"err {number}\\n".encode())
time.sleep(float(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def server(qsub, tmp_path) -> Path:
    """A PBS on PATH."""
    qsub()
    return tmp_path / "pbs server"


def output(job: str, name: str) -> str:
    """Return what PBS shows of a job after its end."""
    path = Path(f"{name}.o{job.split('.', maxsplit=1)[0]}")
    wait_until(path.exists)
    return path.read_text()


def test_a_job_submitted_by_hand_can_be_asked_about(work, monkeypatch):
    """After a plain qsub of the rendered script, status, logs and why work by the run folder's path."""
    folder = work / 'it\'s a "b" \\'
    folder.mkdir()
    (folder / "site_profiles").symlink_to(work / "site_profiles")
    monkeypatch.chdir(folder)
    words = (*GADI, "--tasks-per-node", "1", "--", "sh", "-c", "echo no data; exit 7")
    Path("job.sh").write_text(call("render", "--quiet", *words))
    job = subprocess.run(["qsub", "job.sh"], check=True, capture_output=True, text=True).stdout.strip()
    run_folder = folder / "hpclaunch-runs" / job
    wait_until((run_folder / "about.json").exists)
    call("wait", run_folder, code=7)
    assert (state(str(run_folder))["id"], state(str(run_folder))["word"]) == (job, "FAILED")
    assert call("logs", run_folder) == "[0] no data\n"
    assert "no data" in call("why", run_folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "launcher", "seconds", "attempts"),
    [(1, "tasks", 0.05, 1), (2, "tasks", 0.5, 2), (2, "torchrun", 0.05, 1), (2, "lightning", 1.5, 1),
     (2, "tasks", 0.05, 1)],
)  # fmt: skip
def test_the_jobs_output_has_every_line_of_rank_0(work, nodes, launcher, seconds, attempts):
    """What rank 0 writes is in the job's output to the last line, once, however short the program lives."""
    (work / "twelve.py").write_text(TWELVE)
    words = ("--nodes", nodes, "--launcher", launcher, "--max-attempts", attempts, "-t", "00:10:00")
    job = submit(*GADI, *words, "--wait", "--", sys.executable, "twelve.py", seconds)
    lines = [line for line in output(job, "twelve").splitlines() if line[:4] in ("out ", "err ")]
    assert sorted(lines) == sorted(f"{kind} {number}" for kind in ("out", "err") for number in range(6))


# What may stand in a --setup, a profile or a file that either sources.
UNRULY = (
    "set -euo pipefail -C -f; IFS=:; shopt -s nullglob",
    "recorder() { echo \"$greeting\" >bye; }; trap recorder EXIT; trap 'exit 9' ERR; trap '' TERM USR1",
    "greeting=bye command=x code=x node=x fail=x ended=x lost=x; fail() { exit 8; }; record() { exit 8; }",
)


@pytest.mark.parametrize("nodes", [1, 2])
def test_settings_of_the_environment_stay_its_own(nodes):
    """A setup with set -e, traps and names like ours changes no exit code, and its own trap runs at the end."""
    setup = [word for line in UNRULY for word in ("--setup", line)]
    command = ("sh", "-c", "[ $RANK = 0 ] || sleep 20; exit 7")
    job = submit(*GADI, "--nodes", nodes, "--tasks-per-node", "2", *setup, "--wait", "--", *command, code=7)
    assert "first failure: rank 0 on " in output(job, "sh")
    assert Path("hpclaunch-runs", job, "exit").read_text() == "7\n"
    assert Path("bye").read_text() == "bye\n"


def test_a_failing_line_of_the_environment_ends_the_job_and_is_named(work):
    """In a file with `set -e` that --setup sources, the first failing line ends the job with its code; `why` has it."""
    (work / "env.sh").write_text("set -e\nprepare() { return 5; }\nprepare data\n")
    job = submit(*GADI, "--setup", "source ./env.sh", "--wait", "--", "touch", "ran", code=5)
    assert "environment ended the job with exit code 5, at: " in output(job, "touch")
    assert "the environment, at: " in call("why", job)
    assert not (work / "ran").exists()


def test_only_the_script_itself_records_the_jobs_end():
    """A child in which bash runs the trap on EXIT, as it does if a signal comes at once, leaves no exit code."""
    child = '(eval "$(trap -p EXIT)"; exit 3)'
    submit(*GADI, "--setup", f'{child}; ls "$HPCLAUNCH_RUN_DIR" >seen', "--wait", "--", "true")
    assert not {"exit", "failed"} & set(Path("seen").read_text().split())


# A command that asks for another attempt once it may, and is done in that.
TWICE = ("--job-name", "twice", "--max-attempts", "3", "-t", "00:10:00")
UNTIL_GO = ("bash", "-c", "until [ -e go ]; do sleep 0.1; done; [ $HPCLAUNCH_ATTEMPT = 2 ] && echo done || exit 75")


@pytest.mark.slow
def test_qsub_may_fail_for_a_while(work, server):
    """A run with attempts left goes on although qsub fails at first."""
    job = submit(*GADI, *TWICE, "--", *UNTIL_GO)
    pbs.fail_qsub(server, 1)
    (work / "go").touch()
    call("wait", job)
    assert Path("hpclaunch-runs", job, "rank-0.log").read_text().endswith("done\n")
    assert "qsub: Resource temporarily unavailable" in output(job, "twice")


@pytest.mark.slow
def test_an_attempt_that_cannot_be_noted_is_not_submitted_again(work):
    """Where the disk is full when qsub has taken the next attempt, the output has its id and asks for no second one."""
    first = '{ ln -s /dev/full "$HPCLAUNCH_RUN_DIR/attempts"; exit 75; }'
    job = submit(*GADI, *TWICE, "--", "bash", "-c", f"[ $HPCLAUNCH_ATTEMPT = 2 ] && touch done || {first}")
    wait_until((work / "done").exists, 60)
    said = output(job, "twice")
    assert re.search(r"going on in attempt 2 of 3\n\d+\.gadi-pbs\n", said)
    assert "could not be submitted" not in said


@pytest.mark.slow
def test_an_attempt_that_cannot_be_submitted_is_told_with_the_way_on(work, server):
    """When qsub fails to the end, output and `why` say so, and the command that is printed goes on."""
    job = submit(*GADI, *TWICE, "--warn-before", "10s", "--", *UNTIL_GO)
    pbs.fail_qsub(server, 99)
    (work / "go").touch()
    call("wait", job, code=75)
    said = output(job, "twice")
    assert "qsub: Resource temporarily unavailable" in said
    assert "the next attempt, which could not be submitted" in call("why", job)
    pbs.fail_qsub(server, 0)
    command = said.partition("to go on by hand: ")[2].splitlines()[0]
    subprocess.run(["bash", "-c", command], check=True, cwd="/", capture_output=True)
    call("wait", job)
    assert Path("hpclaunch-runs", job, "rank-0.log").read_text().endswith("done\n")


# A rank that leaves a process in a session of its own.
STAYS = (
    "import os, subprocess, sys, time; subprocess.Popen(['setsid', 'sleep', '300'])\n"
    "open('up-' + os.environ['RANK'], 'w')\n"
    "time.sleep(1); sys.exit(7 if os.environ['RANK'] == sys.argv[1] else time.sleep(300))"
)


def kill_script(folder: Path) -> None:
    """Kill the job script as the kernel does where memory runs out."""
    os.kill(oldest(path.name for path in Path("/proc").glob("[0-9]*") if runs_script(path, folder)), signal.SIGKILL)


def runs_script(process: Path, folder: Path) -> bool:
    """Whether a process runs PBS's copy of a job script below `folder`."""
    try:
        words = (process / "cmdline").read_text(errors="replace")
    except OSError:
        return False
    return str(folder) in words and "/mom_priv/jobs/" in words


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["tasks", "torchrun"])
def test_a_killed_script_leaves_no_process(work, server, launcher):
    """After SIGKILL of the job script nothing of the job is left on any node, and another job's processes live on."""
    words = ("--nodes", "2", "--tasks-per-node", "2", "--launcher", launcher)
    job = submit(*GADI, *words, "--", sys.executable, "-c", STAYS, "-")
    wait_until(lambda: len(list(work.glob("up-*"))) == 4)
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "HPCLAUNCH_NODE": f"{work}/hpclaunch-runs/x"}) as beside:
        kill_script(server)
        wait_until(lambda: processes_with(str(work / "hpclaunch-runs" / job)) == [], 10)
        assert beside.poll() is None
        beside.kill()


@pytest.mark.slow
@pytest.mark.parametrize("killed", [True, False])
def test_mpirun_leaves_no_process(work, tmp_path, killed):
    """Under mpirun too, what ranks started in sessions of their own ends with a killed script or a failed rank."""
    if not shutil.which("mpirun"):
        pytest.skip("Open MPI is not installed: no mpirun on PATH")
    words = (
        "--nodes",
        "2",
        "--launcher",
        "mpirun",
        *AS_ROOT,
        "--",
        sys.executable,
        "-c",
        STAYS,
        "-" if killed else "1",
    )
    process = start("run", "--quiet", *GADI, *words, env={**os.environ, "TMPDIR": str(tmp_path)})
    wait_until(lambda: len(list(work.glob("up-*"))) == 2)
    if killed:
        kill_script(tmp_path)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == (137 if killed else 7), said
    wait_until(lambda: processes_with(str(work / "hpclaunch-runs")) == [], 5)


def test_teardown_runs_when_the_job_is_deleted_or_its_environment_fails(work, qsub):
    """On qdel the ranks end first, then the lines of --teardown run, once; they run after a failing --setup too."""
    qsub(kill_delay=20)
    lines = ("--teardown", "ls up-* >>saved; echo bye >>saved")
    command = ("bash", "-c", "touch up-$RANK; trap 'sleep 1; rm up-$RANK; exit' TERM; while :; do sleep 0.1; done")
    job = submit(*GADI, "--nodes", "2", "--tasks-per-node", "1", *lines, "--", *command)
    wait_until(lambda: len([*work.glob("up-*")]) == 2)
    call("cancel", job)
    wait_until((work / "saved").exists)
    wait_until(lambda: (work / "saved").read_text() == "bye\n", 5)
    submit(*GADI, *lines, "--setup", "rm saved; exit 4", "--wait", "--", "true", code=4)
    assert (work / "saved").read_text() == "bye\n"
