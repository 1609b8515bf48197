"""`hpclaunch launch`: on every node of an allocation that is there already."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import processes_with, slow, start, submit, wait_until

NAMES = ("MASTER_ADDR", "WORLD_SIZE", "NODE_RANK", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
REPORT = (
    "import json, os, socket, sys; print(json.dumps(dict(os.environ, argv=sys.argv[1:], host=socket.gethostname())))"
)
AS_ROOT = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
LAUNCH = (sys.executable, "-m", "hpclaunch", "launch", "--quiet")


def test_outside_an_allocation_it_names_what_to_use():
    """Without an allocation the message names run and submit."""
    process = start("launch", "--", "true")
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "hpclaunch submit" in stderr
    assert "hpclaunch run" in stderr


@pytest.mark.parametrize("launcher", ["tasks", slow("torchrun")])
def test_in_a_pbs_job_every_rank_has_its_place(qsub, work, launcher):
    """In a person's own PBS script the ranks of both nodes have their places, and the environment of that script."""
    qsub()
    launch = shlex.join([*LAUNCH, "--launcher", launcher, "--tasks-per-node", "2", "--", sys.executable, "-c", REPORT])
    (work / "own.sh").write_text(
        "#!/bin/bash\n#PBS -q normal\n#PBS -l ncpus=96\n#PBS -l mem=8GB\n#PBS -l walltime=00:05:00\n#PBS -l wd\n"
        f"export MINE='a \"b\" $c' PYTHONPATH={os.environ.get('PYTHONPATH', '')}\n{launch}\n"
    )
    done = subprocess.run(
        ["qsub", "-W", "block=true", "own.sh"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr + "".join(path.read_text() for path in work.glob("own.sh.[oe]*"))
    (folder,) = Path("hpclaunch-runs").iterdir()
    assert folder.name == f"{done.stdout.strip()}-1"
    reports = [json.loads(path.read_text()) for path in sorted(folder.glob("rank-*.log"))]
    assert [tuple(report[name] for name in NAMES[1:]) for report in reports] == [
        ("4", str(rank // 2), str(rank), str(rank % 2), "2") for rank in range(4)
    ]
    assert len({report["MASTER_ADDR"] for report in reports}) == 1
    assert {report["MINE"] for report in reports} == {'a "b" $c'}
    assert sorted(report["PBS_NODENUM"] for report in reports) == ["0", "0", "1", "1"]


@pytest.mark.slow
def test_launches_side_by_side_in_a_pbs_job(qsub, work):
    """Some of a PBS job's nodes are enough for a launch, and several at once, from two nodes, meet apart."""
    qsub()
    place = ["--", "bash", "-c", "echo $RANK/$WORLD_SIZE of node $NODE_RANK, $MASTER_ADDR:$MASTER_PORT; sleep 1"]
    launches = "".join(
        shlex.join([*LAUNCH, "--launcher", "tasks", "--tasks-per-node", "1", "--nodes", nodes, *place]) + " &\n"
        for nodes in "1112"
    )
    other = shlex.quote(f"cd {shlex.quote(str(work))} && {launches.splitlines()[0].rstrip(' &')}")
    (work / "own.sh").write_text(
        "#!/bin/bash\n#PBS -q normal\n#PBS -l ncpus=96\n#PBS -l mem=8GB\n#PBS -l walltime=00:05:00\n#PBS -l wd\n"
        f"export PYTHONPATH={os.environ.get('PYTHONPATH', '')}\n{launches}"
        f"pbsdsh -n 48 -- /bin/bash -c {other} &\nwait\n"
    )
    subprocess.run(["qsub", "-W", "block=true", "own.sh"], check=True, timeout=120, stdout=subprocess.DEVNULL)
    said = [path.read_text().strip().split(", ") for path in sorted(Path("hpclaunch-runs").glob("*/rank-*.log"))]
    assert sorted(place for place, _ in said) == [*["0/1 of node 0"] * 4, "0/2 of node 0", "1/2 of node 1"]
    assert len({meeting for _, meeting in said}) == 5
    assert len({meeting.partition(":")[0] for _, meeting in said}) == 2


def test_a_job_that_takes_everything_along_from_a_job_is_its_own(qsub, monkeypatch):
    """With `qsub -V` from inside the second attempt of a job, the new job begins with a first one of its own."""
    qsub()
    for name, value in {"PBS_JOBID": "12.gadi-pbs", "HPCLAUNCH_JOB": "11.gadi-pbs", "HPCLAUNCH_ATTEMPT": "2"}.items():
        monkeypatch.setenv(name, value)
    words = "--site pbs-here -p normal --max-attempts 2 -t 5m --directive=-V --force directives"
    job = submit(*words.split(), "--tasks-per-node", "1", "--wait", "--", "bash", "-c", "echo $HPCLAUNCH_ATTEMPT")
    assert Path("hpclaunch-runs", job, "rank-0.log").read_text() == "--- attempt 1 of 2 ---\n1\n"
    assert not Path("hpclaunch-runs", "11.gadi-pbs").exists()


def test_interrupting_a_launch_in_a_pbs_job_ends_it_on_every_node(qsub, work):
    """Ctrl-C in an interactive job ends the ranks of all nodes, and the nodes are free for the next launch."""
    qsub()
    launch = shlex.join([*LAUNCH, "--tasks-per-node", "1", "--launcher", "tasks", "--", "sleep", "600.25"])
    (work / "own.sh").write_text(
        "#!/bin/bash\n#PBS -q normal\n#PBS -l ncpus=96\n#PBS -l mem=8GB\n#PBS -l walltime=00:05:00\n#PBS -l wd\n"
        f"export PYTHONPATH={os.environ.get('PYTHONPATH', '')}\nset -m\n{launch} &\n"
        "while [ ! -e hpclaunch-runs/*/node-1.heartbeat.[1-9]* ]; do sleep 0.2; done\nkill -INT -- -$!\n"
        "wait $!\necho $? >code\n"
        "sleep 600\n"
    )
    subprocess.run(["qsub", "own.sh"], check=True, stdout=subprocess.DEVNULL)
    wait_until((work / "code").exists, 60)
    wait_until(lambda: processes_with("sleep\x00" + "600.25") == [], 15)
    assert (work / "code").read_text() == "130\n"


@pytest.mark.parametrize("nodefile", ["", os.devnull])
def test_on_another_node_of_a_pbs_job_it_says_where(monkeypatch, nodefile):
    """Where PBS left PBS_NODEFILE out, or empty, the message names the place to launch from."""
    monkeypatch.setenv("PBS_NODEFILE", nodefile)
    monkeypatch.setenv("PBS_JOBID", "12.gadi-pbs")
    process = start("launch", "--", "true")
    assert "no PBS_NODEFILE here" in process.communicate(timeout=30)[1]
    assert process.returncode == 1
