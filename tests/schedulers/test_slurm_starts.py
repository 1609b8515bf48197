"""How ranks are started on a real Slurm cluster: bound to cores, wrapped, with options of srun, by MPICH."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from conftest import program, slow, submit

pytestmark = pytest.mark.usefixtures("slurm")
AFFINITY = "import os; print(*sorted(os.sched_getaffinity(0)), os.environ['MINE'], os.environ['RANK'])"


@pytest.mark.parametrize("launcher", ["tasks", slow("torchrun")])
def test_each_rank_of_a_whole_node_has_its_cores(work, launcher):
    """The profile's list binds a rank, its wrapper sees its number, and srun takes the profile's options."""
    cores = [str(core) for core in sorted(os.sched_getaffinity(0))]
    lists = [cores[rank % len(cores)] for rank in range(4)]
    with (work / "site_profiles" / "jz.yaml").open("a") as profile:
        profile.write('srun: ["--cpu-bind=none", "--wait=30"]\nwrapper: env MINE="rank-$LOCAL_RANK"\n')
        profile.write(f"partitions: {{v100: {{rank_cpus: {lists}}}}}\n")
    job = submit("--nodes", "2", "--launcher", launcher, "--wait", "--", sys.executable, "-c", AFFINITY)
    said = [path.read_text().strip() for path in sorted(Path("hpclaunch-runs", job).glob("rank-*.log"))]
    assert said == [f"{lists[rank % 4]} rank-{rank % 4} {rank}" for rank in range(8)]


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 7])
def test_mpich_starts_the_ranks_of_all_nodes(work, monkeypatch, tmp_path, code):
    """MPICH's mpiexec finds the job's nodes itself; the first failing rank gives the job its exit code."""
    if not (hydra := shutil.which("mpiexec.hydra")):
        pytest.skip("MPICH is not installed: no mpiexec.hydra on PATH")
    program(tmp_path / "mpich" / "mpiexec", f'exec {hydra} "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'mpich'}:{os.environ['PATH']}")
    with (work / "site_profiles" / "jz.yaml").open("a") as profile:
        profile.write("mpi: mpich\n")
    tell = f"hostname; echo $RANK $LOCAL_RANK $NODE_RANK; [[ $RANK == 2 ]] && exit {code}; sleep {10 if code else 1}"
    words = ("--nodes", "2", "--tasks-per-node", "2", "--launcher", "mpirun")
    job = submit(*words, "--wait", "--", "bash", "-c", tell, code=code)
    folder = Path("hpclaunch-runs", job)
    said = [path.read_text().split() for path in sorted(folder.glob("rank-*.log"))]
    assert [place[1:] for place in said] == [[str(rank), str(rank % 2), str(rank // 2)] for rank in range(4)]
    assert len({place[0] for place in said}) == 2
    assert (folder / "exit").read_text() == f"{code}\n"
