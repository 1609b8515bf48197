"""--stage-in and --stage-out on a real Slurm, whose nodes have one disk in common here, but folders of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import WORKER, call, oldest, program, slow, submit, wait_until
from test_staging import PROGRAM

from hpclaunch.job import staging

pytestmark = pytest.mark.usefixtures("slurm")
STAGES = (
    "--site",
    "disks",
    "--nodes",
    "2",
    "--tasks-per-node",
    "2",
    "--stage-in",
    "data",
    "--stage-out",
    "results:back",
)


@pytest.fixture(autouse=True)
def disk(slurm, work, tmp_path) -> Path:
    """A site with a disk on each node, and data in the working folder; `cp` notes each call in the file `copies`."""
    disk = tmp_path / "disk"
    disk.mkdir()
    program(tmp_path / "bin" / "cp", f'echo "$*" >>{work}/copies\nexec {shutil.which("cp")} "$@"')
    keys = f"extends: jz\ntitle: Disks\nlocal_disk: {disk}\nsetup: ['export PATH={tmp_path}/bin:\"$PATH\"']\n"
    (work / "site_profiles" / "disks.yaml").write_text(keys)
    (work / "data").mkdir()
    (work / "data" / "a").write_text("a")
    (work / "train.py").write_text(PROGRAM)
    return disk


def back() -> dict[str, str]:
    return {path.name: path.read_text().strip() for path in sorted(Path("back").iterdir())}


def log(job: str, rank: int) -> str:
    path = Path("hpclaunch-runs", job, f"rank-{rank}.log")
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("launcher", ["tasks", slow("torchrun"), slow("mpirun"), slow("lightning")])
def test_each_node_copies_once_and_brings_back(work, disk, launcher):
    """Two ranks on each of two nodes find the data on their node's disk; all results come back; nothing stays there."""
    as_root = ("--env", "OMPI_ALLOW_RUN_AS_ROOT=1", "--env", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
    job = submit(*STAGES, "--launcher", launcher, *as_root, "--wait", "--", sys.executable, "train.py")
    if launcher == "lightning":
        assert back() == {"node 0": "0", "node 1": "1"}
    else:
        assert all(log(job, rank).split()[0] == "data/a" for rank in range(4))
        assert back() == dict(zip("0123", "0011", strict=True))
    assert sum(not line.endswith(" back") for line in (work / "copies").read_text().splitlines()) == 2
    assert not [*disk.iterdir()]


SAVE = """
[[ $DEAF ]] && trap '' TERM || trap 'echo saved >"$HPCLAUNCH_LOCAL/results/$RANK"; exit 143' TERM
trap 'echo warned >"$HPCLAUNCH_LOCAL/results/$RANK"; exit 75' USR1
mkdir -p "$HPCLAUNCH_LOCAL/results"; echo begun >"$HPCLAUNCH_LOCAL/results/$RANK"; echo begun
while [[ $HPCLAUNCH_ATTEMPT != 2 ]]; do [[ ! -e $PWD/go-$RANK ]] || exit 7; sleep 0.2; done
"""


def begun(*words: str) -> str:
    """Submit SAVE and return the job's id when all its ranks have begun."""
    job = submit(*STAGES, *words, "--", "bash", "-c", SAVE)
    wait_until(lambda: all("begun" in log(job, rank) for rank in range(4)), 60)
    return job


def test_a_cancelled_job_brings_back_what_it_saved():
    """After scancel, as at the walltime, each rank saves at TERM and its node brings that back."""
    job = begun()
    subprocess.run(["scancel", job], check=True)
    wait_until(lambda: Path("back").exists() and back() == dict.fromkeys("0123", "saved"), 60)


@pytest.mark.parametrize("deaf", ["", "1"])
def test_a_rank_that_fails_costs_no_results(disk, deaf):
    """What the others have written comes back from every node, also if Slurm kills them; the exit code is kept."""
    job = begun("--env", f"DEAF={deaf}")
    Path("go-3").touch()
    call("wait", job, code=7)
    assert back() == dict.fromkeys("012", "begun" if deaf else "saved") | {"3": "begun"}
    assert not [*disk.iterdir()]


@pytest.mark.slow
def test_the_next_attempt_finds_what_is_there(work, disk):
    """A job that is requeued to the same nodes copies nothing again; its results came back before and after."""
    job = begun("--max-attempts", "2", "--directive=--nodelist=r6i4n[0-1]")
    subprocess.run(["scancel", "--batch", "--signal=USR1", job], check=True)
    wait_until(lambda: Path("back").exists() and back() == dict.fromkeys("0123", "warned"), 60)
    call("wait", job, seconds=200)
    assert back() == dict.fromkeys("0123", "begun")
    copies = (work / "copies").read_text().splitlines()
    assert sum("data" in line for line in copies) == 2, copies
    assert not [*disk.iterdir()]


def test_a_full_disk_ends_the_job_with_a_sentence(work, disk):
    """The job's end names the node and the file."""
    slurmd = oldest(subprocess.check_output(["ip", "netns", "pids", f"hpc{WORKER}-r6i4n0"], text=True).split())
    on_node = ["nsenter", f"--mount=/proc/{slurmd}/ns/mnt"]
    subprocess.run([*on_node, "mount", "-t", "tmpfs", "-o", "size=1M", "full", disk], check=True)
    try:
        (work / "data" / "large").write_bytes(os.urandom(2_000_000))
        words = (*STAGES, "--nodes", "1", "--directive=--nodelist=r6i4n0", "--wait")
        job = submit(*words, "--", "true", code=1)
        output = next(Path().glob(f"*_{job}.out")).read_text()
        assert "first failure: the copy of data to node " in output
        assert f"(r6i4n0), whose disk {disk} is full: " in output
    finally:
        subprocess.run([*on_node, "umount", disk], check=True)


def test_many_nodes_pass_a_file_on(cli, work, tmp_path, monkeypatch):
    """Where there are many, a file is read once and sent to the nodes by Slurm; each node's copy is from there."""
    monkeypatch.setattr(staging, "MANY_NODES", 2)
    # The nodes here have one disk together: what the first removes the second still needs.
    program(tmp_path / "bin" / "rm", f'case "$*" in *.cast-*) ;; *) exec {shutil.which("rm")} "$@" ;; esac')
    (work / "one").write_text("one")
    words = (*STAGES, "--stage-in", "one:in/one", "--tasks-per-node", "1")
    script = cli("render", "--quiet", *words, "--", sys.executable, "train.py").stdout
    done = subprocess.run(["sbatch", "--wait", "--parsable"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    assert [log(job, rank).split() for rank in range(2)] == [["data/a", "in/one"]] * 2
    assert ".cast-2" in (work / "copies").read_text()
