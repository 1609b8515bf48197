"""`hpclaunch launch` in the allocations of a real Slurm."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import slow
from test_launch import LAUNCH, NAMES, REPORT

pytestmark = pytest.mark.usefixtures("slurm")
AS_ROOT = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"


@pytest.mark.parametrize("launcher", ["tasks", slow("torchrun")])
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


def salloc(script: str, *words: str) -> None:
    """Run a script in an allocation of two nodes; it must end with 0."""
    words = ("--nodes=2", "--cpus-per-task=4", "--account=abc@v100", "--time=5", "--quiet", *words)
    programs = shlex.quote(str(Path(sys.executable).parent))
    done = subprocess.run(
        ["salloc", *words, "bash", "-c", f"export {AS_ROOT} PATH={programs}:\"$PATH\"; {script}"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["--ntasks-per-node=2", "--ntasks=2"])
def test_launches_side_by_side_have_their_own_sizes_and_ports(shape, monkeypatch):
    """However many tasks the salloc asked for, each launch starts its own ranks, by every launcher, at once."""
    # As in a step of one task a node, whose distribution and core would count.
    monkeypatch.setenv("SLURM_DISTRIBUTION", "cyclic")
    monkeypatch.setenv("SLURM_CPU_BIND", "quiet,mask_cpu:0x1")
    four = [f"{rank}/4 of node {rank // 2}" for rank in range(4)]
    launches = {
        "--tasks-per-node 2": four,
        "--tasks-per-node 1": ["0/2 of node 0", "1/2 of node 1"],
        "--nodes 1 --tasks-per-node 2": ["0/2 of node 0", "1/2 of node 0"],
        "--tasks-per-node 2 --launcher lightning": ["/4 of node 0", "/4 of node 1"],
        "--tasks-per-node 2 --launcher torchrun": four,
        "--tasks-per-node 2 --launcher mpirun": four,
    }
    meeting = "${TORCHELASTIC_RUN_ID-$MASTER_PORT}"
    place = f"echo $0 on {meeting}: $RANK/$WORLD_SIZE of node $NODE_RANK$SLURM_CPU_BIND_LIST; sleep 1"
    starts = (shlex.join([*LAUNCH, *words.split(), "--", "bash", "-c", place, words]) for words in launches)
    salloc(f"{' & '.join(starts)} & for each in $(jobs -p); do wait $each || code=1; done; exit $code", shape)
    found: dict[str, list[str]] = {}
    ports = set()
    for path in sorted(Path("hpclaunch-runs").glob("*/*-?.log")):
        for words, port, said in re.findall("(--.*) on (.*): (.*)", path.read_text()):
            found.setdefault(words, []).append(said)
            ports.add((path.parent.name, port))
    assert found == launches
    assert len({port for _, port in ports}) == len(ports) == len(launches)


@pytest.mark.slow
def test_launches_from_two_nodes_have_ports_of_their_own(monkeypatch):
    """Launches from two nodes of one allocation, in folders of their own, meet at different ports of the first node."""
    monkeypatch.setenv("HPCLAUNCH_SITE", "slurm")
    launch = shlex.join([*LAUNCH, "--nodes", "1", "--", "bash", "-c", "echo $MASTER_ADDR $MASTER_PORT"])
    apart = f"srun --ntasks=2 bash -c 'mkdir $SLURM_PROCID && cd $SLURM_PROCID && exec \"$@\"' in {launch}"
    salloc(apart, "--nodelist=r6i4n[0-1]")
    said = [path.read_text().split() for path in Path().glob("?/hpclaunch-runs/*/rank-0.log")]
    assert [host for host, _ in said] == ["r6i4n0", "r6i4n0"]
    first, second = (int(port) for _, port in said)
    assert abs(first - second) > 1  # the next would be by a lock, which two real nodes do not share


@pytest.mark.slow
def test_in_a_job_script_of_ones_own(work):
    """A person's own sbatch script may launch, more than once; the exit code is that of the first rank to fail."""
    first, second = (shlex.join([*LAUNCH, "--", "bash", "-c", word]) for word in ("true", "exit 7"))
    (work / "own.sh").write_text(
        f"#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=2 --account=abc@v100 --time=5\n{first} && {second}\n"
    )
    done = subprocess.run(["sbatch", "--wait", "own.sh"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 7, done.stderr
    names = sorted(path.name for path in Path("hpclaunch-runs").iterdir())
    job = names[0].split("-")[0]
    assert names == [f"{job}-1", f"{job}-2"]
    assert (Path("hpclaunch-runs") / names[1] / "failed").read_text().startswith("7 rank-")
