"""`hpclaunch launch`: on every node of an allocation that is there already."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import start

NAMES = ("MASTER_ADDR", "WORLD_SIZE", "NODE_RANK", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
REPORT = (
    "import json, os, socket, sys; print(json.dumps(dict(os.environ, argv=sys.argv[1:], host=socket.gethostname())))"
)
LAUNCH = (sys.executable, "-m", "hpclaunch", "launch", "--quiet")


def test_outside_an_allocation_it_names_what_to_use():
    """Without an allocation the message names run and submit."""
    process = start("launch", "--", "true")
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "hpclaunch submit" in stderr
    assert "hpclaunch run" in stderr


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize("launcher", ["tasks", "torchrun"])
def test_in_a_salloc_every_rank_has_its_place(launcher, monkeypatch):
    """In a real salloc the ranks are those of the same request submitted, in the person's own environment."""
    monkeypatch.delenv("HPCLAUNCH_SITE")
    monkeypatch.setenv("MINE", 'a "b" $c')
    words = ("--nodes=2", "--gres=gpu:2", "--cpus-per-task=20", "--account=abc@v100", "--time=5", "--quiet")
    done = subprocess.run(
        ["salloc", *words, *LAUNCH, "--launcher", launcher, "--", sys.executable, "-c", REPORT, "a b"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = Path("hpclaunch-runs").iterdir()
    reports = [json.loads(path.read_text()) for path in sorted(folder.glob("rank-*.log"))]
    head = reports[0]["MASTER_ADDR"]
    assert [tuple(report[name] for name in NAMES) for report in reports] == [
        (head, "4", str(rank // 2), str(rank), str(rank % 2), "2") for rank in range(4)
    ]
    hosts = [report["host"] for report in reports]
    assert hosts[0] == hosts[1] != hosts[2] == hosts[3]
    assert {report["MINE"] for report in reports} == {'a "b" $c'}
    assert all(report["argv"] == ["a b"] for report in reports)


@pytest.mark.usefixtures("slurm")
def test_in_a_job_script_of_ones_own(work):
    """A person's own sbatch script may launch, more than once; the exit code is that of the first rank to fail."""
    first, second = (" ".join([*LAUNCH, "--", "bash", "-c", word]) for word in ("true", "'exit 7'"))
    (work / "own.sh").write_text(
        f"#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=2 --account=abc@v100 --time=5\n{first} && {second}\n"
    )
    done = subprocess.run(["sbatch", "--wait", "own.sh"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 7, done.stderr
    names = sorted(path.name for path in Path("hpclaunch-runs").iterdir())
    job = names[0].split("-")[0]
    assert names == [f"{job}-1", f"{job}-2"]
    assert (Path("hpclaunch-runs") / names[1] / "failed").read_text().startswith("7 rank-")
