"""The launcher mpirun with each MPI, and ranks bound to cores, in rehearsals and, where it is installed, with MPICH."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from conftest import call, processes_with, program, slow
from test_rehearsal import REPORT, contract

SITES = Path(__file__).parents[1] / "sites"
CORES = sorted(os.sched_getaffinity(0))[:2]
# Of this machine's cores each rank gets one.
PROFILE = """extends: {site}
title: Own
mpi: {mpi}
partitions:
  {partition}: {{cores_per_node: 2, gpus_per_node: 2, cpus_per_gpu: 1, rank_cpus: ["{a}", "{b}"]}}
"""


@pytest.fixture(autouse=True)
def sites(work):
    """Put the frozen profiles where a process finds them."""
    (work / "site_profiles").mkdir()
    for name in ("tiles", "dies"):
        shutil.copy(SITES / f"{name}.yaml", work / "site_profiles")


def rehearse(site: str, mpi: str, *words: str, code: int = 0) -> Path:
    """Rehearse two tasks on each of two nodes; return the run folder."""
    partition = {"tiles": "work", "dies": "standard"}[site]
    text = PROFILE.format(site=site, mpi=mpi, partition=partition, a=CORES[0], b=CORES[-1])
    Path("own.yaml").write_text(text)
    call("run", "--site", "./own.yaml", "--nodes", "2", *words, code=code)
    (folder,) = Path("hpclaunch-runs").iterdir()
    return folder


@pytest.mark.parametrize("mpi", ["pals", "mpich", slow("intel")])
@pytest.mark.parametrize("site", ["tiles", slow("dies")])
def test_every_rank_has_its_place(site, mpi):
    """Under mpiexec of PALS, MPICH and Intel MPI each rank sees the seven variables."""
    found = contract(rehearse(site, mpi, "--launcher", "mpirun", "--", "python", "-c", REPORT))
    assert [row[2:] for row in found] == [("4", str(rank // 2), str(rank), str(rank % 2), "2") for rank in range(4)]


@pytest.mark.parametrize("mpi", ["pals", slow("mpich")])
def test_a_failing_rank_gives_its_exit_code(mpi, work):
    """A rank that exits with 7 ends the job with 7 within seconds, and nothing is left running."""
    began = time.monotonic()
    rehearse("tiles", mpi, "--launcher", "mpirun", "--", "bash", "-c", "[[ $RANK == 3 ]] && exit 7; sleep 60", code=7)
    assert time.monotonic() - began < 25
    assert processes_with(str(work / "hpclaunch-runs")) == []


@pytest.mark.skipif(len(CORES) < 2, reason="one core: nothing can be told apart")
@pytest.mark.parametrize("launcher", ["tasks", "mpirun", pytest.param("torchrun", marks=pytest.mark.train)])
@pytest.mark.parametrize("site", ["tiles", slow("dies")])
def test_each_rank_has_its_cores(site, launcher):
    """A rank runs on the cores of its list, and its wrapper sees its number."""
    words = "import os; print(*os.sched_getaffinity(0), os.environ.get('ZE_AFFINITY_MASK'))"
    folder = rehearse(site, "mpich", "--launcher", launcher, "--", "python", "-c", words)
    said = [path.read_text().split() for path in sorted(folder.glob("rank-*.log"))]
    masks = ["0", "1", "0", "1"] if site == "tiles" else ["None"] * 4
    assert said == [[str(CORES[rank % 2]), masks[rank]] for rank in range(4)]


def test_cores_that_are_not_there_are_reported(work):
    """A rank whose cores are not the job's runs unbound, and says so."""
    (work / "own.yaml").write_text("extends: tiles\ntitle: Own\n")
    call("run", "--site", "./own.yaml", "--nodes", "1", "--launcher", "tasks", "--", "true")
    (folder,) = Path("hpclaunch-runs").iterdir()
    assert "rank 11 may use any core" in (folder / "rank-11.err").read_text()


@pytest.mark.parametrize("code", [0, 7])
def test_mpich_itself(work, monkeypatch, tmp_path, code):
    """MPICH's own mpiexec takes our options, numbers the ranks, and returns the exit code of the one that fails."""
    if not (hydra := shutil.which("mpiexec.hydra")):
        pytest.skip("MPICH is not installed: no mpiexec.hydra on PATH")
    program(tmp_path / "mpich" / "mpiexec", f'exec {hydra} "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'mpich'}:{os.environ['PATH']}")
    (work / "own.yaml").write_text("extends: local\ntitle: Own\nmpi: mpich\n")
    ends = f"{REPORT}; raise SystemExit({code} if os.environ['RANK'] == '2' else 0)"
    words = ("--site", "./own.yaml", "--nodes", "2", "--tasks-per-node", "2", "--launcher", "mpirun")
    call("run", *words, "--", "python", "-c", ends, code=code)
    (folder,) = Path("hpclaunch-runs").iterdir()
    found = contract(folder)
    assert [row[2:] for row in found][2:3] == [("4", "1", "2", "0", "2")]
    assert len(found) == 4 or code
