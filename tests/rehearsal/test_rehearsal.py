"""`hpclaunch run --site`: the script that a cluster would get, run here with stand-ins for what only a cluster has."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from conftest import COUNT, IDRIS, call, processes_with, slow, start, wait_until

import hpclaunch
from hpclaunch import rehearsal
from hpclaunch.errors import HpclaunchError
from hpclaunch.job.consider import make_plan
from hpclaunch.job.request import Request
from hpclaunch.profile import search

CONTRACT = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "NODE_RANK", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
REPORT = "import json, os; print(json.dumps(dict(os.environ)))"
MNIST = Path(hpclaunch.__file__).parent / "workloads" / "mnist.py"
AS_ROOT = ("--env", "OMPI_ALLOW_RUN_AS_ROOT=1", "--env", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
SITES = ["jean-zay", "gadi"]


def rehearse(site: str, *words: str, nodes: int = 2, code: int = 0, seconds: float = 90) -> Path:
    """Rehearse two tasks a node; return the run folder."""
    call("run", "--site", site, "--nodes", str(nodes), "--tasks-per-node", "2", *words, code=code, seconds=seconds)
    (folder,) = Path("hpclaunch-runs").iterdir()
    return folder


def contract(folder: Path, pattern: str = "rank-*.log") -> list[tuple[str, ...]]:
    reports = [json.loads(path.read_text()) for path in sorted(folder.glob(pattern))]
    return [tuple(report.get(name, "-") for name in CONTRACT) for report in reports]


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("site", SITES)
def test_every_rank_has_its_place(site, nodes):
    """On one, two and three nodes each rank sees the seven variables that it would see on the cluster."""
    folder = rehearse(site, "--launcher", "tasks", "--", "python", "-c", REPORT, nodes=nodes)
    found = contract(folder)
    port = found[0][1]
    assert found == [
        ("127.0.0.1", port, str(nodes * 2), str(rank // 2), str(rank), str(rank % 2), "2") for rank in range(nodes * 2)
    ]


@pytest.mark.parametrize(
    ("site", "partition", "account"), [("chunks", "plain", "A"), ("shapes", "setonix", "project_1")]
)
def test_other_ways_to_request_nodes(site, partition, account):
    """Nodes requested by plain chunks, or without cpus and memory, are rehearsed as well."""
    words = ("-p", partition, "-A", account, "--launcher", "tasks", "--", "python", "-c", REPORT)
    folder = rehearse(str(Path(__file__).parents[1] / "sites" / "further" / f"{site}.yaml"), *words)
    assert [row[4] for row in contract(folder)] == ["0", "1", "2", "3"]


@pytest.mark.train
def test_network_interfaces_of_the_site_are_left_out():
    """What names an interface that this machine lacks would fail here; what it has stays."""
    words = ("--env", "GLOO_SOCKET_IFNAME=ib0,ib1", "--env", "NCCL_SOCKET_IFNAME=lo")
    (rank, *_) = rehearse("jean-zay", *words, "--", "python", "-c", REPORT, nodes=1).glob("rank-0.log")
    names = json.loads(rank.read_text())
    assert ("GLOO_SOCKET_IFNAME" in names, names["NCCL_SOCKET_IFNAME"]) == (False, "lo")


@pytest.mark.parametrize("site", ["gadi", slow("jean-zay")])
def test_torchrun_numbers_nodes_and_ranks_alike(site):
    """Under torchrun each rank's NODE_RANK agrees with its RANK, and all meet at one address."""
    found = contract(rehearse(site, "--launcher", "torchrun", "--", "python", "-c", REPORT))
    assert [row[2:] for row in found] == [("4", str(rank // 2), str(rank), str(rank % 2), "2") for rank in range(4)]
    assert len({row[:2] for row in found}) == 1


@pytest.mark.slow
def test_recipes_for_slurm_work():
    """What reads Slurm's own variables, idr_torch and the Trainer of IDRIS's page, finds its place in a rehearsal."""
    pytest.importorskip("idr_torch", reason="idr_torch is not installed (pip install '.[dev]')")
    pytest.importorskip("pytorch_lightning", reason="Lightning is not installed (pip install '.[train]')")
    folder = rehearse("jean-zay", "--launcher", "tasks", "--", "python", "-c", IDRIS)
    assert [path.read_text() for path in sorted(folder.glob("rank-*.log"))] == [
        f"{rank} {rank} {rank} {rank}\n4 4 4 4\n" for rank in range(4)
    ]


@pytest.mark.parametrize("site", SITES)
def test_lightning_starts_once_a_node(site):
    """The lightning launcher starts one process a node and leaves the local ranks to Lightning."""
    found = contract(rehearse(site, "--launcher", "lightning", "--", "python", "-c", REPORT), "node-*.log")
    assert [row[2:] for row in found] == [("4", str(node), "-", "-", "2") for node in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize("site", SITES)
def test_mpirun_starts_all_ranks(site):
    """With mpirun, Open MPI's own numbers the ranks; where it is missing the rehearsal says so."""
    if shutil.which("mpirun") is None:
        process = start("run", "--site", site, "--launcher", "mpirun", "--", "true")
        assert "needs Open MPI on this machine" in process.communicate(timeout=60)[0]
        return
    found = contract(rehearse(site, "--launcher", "mpirun", *AS_ROOT, "--", "python", "-c", REPORT))
    assert [row[2:] for row in found] == [("4", str(rank // 2), str(rank), str(rank % 2), "2") for rank in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["tasks", "torchrun"])
@pytest.mark.parametrize("site", SITES)
def test_a_failing_rank_gives_its_exit_code(site, launcher, work):
    """A rank that exits with 7 ends the rehearsal with 7 within seconds, and nothing is left running."""
    command = ("bash", "-c", "sleep 1; [[ $RANK == 3 ]] && exit 7; sleep 60")
    began = time.monotonic()
    rehearse(site, "--launcher", launcher, "--", *command, code=7)
    assert time.monotonic() - began < 25
    assert processes_with(str(work / "hpclaunch-runs")) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("site", SITES)
def test_an_interrupted_rehearsal_leaves_nothing(site, number, work):
    """Ctrl-C, and the TERM that ends a job, end every process within 15 s; the command may save meanwhile."""
    saves = "trap 'touch saved-$RANK; exit' TERM; touch ready-$RANK; while :; do sleep 0.2; done"
    process = start("run", "--site", site, "--nodes", "2", "--tasks-per-node", "2", "--launcher", "tasks",
                    "--", "bash", "-c", saves)  # fmt: skip
    wait_until(lambda: len(list(work.glob("ready-*"))) == 4)
    began = time.monotonic()
    os.kill(process.pid, number)
    process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert time.monotonic() - began < 15
    assert len(list(work.glob("saved-*"))) == 4
    assert processes_with(str(work / "hpclaunch-runs")) == []


@pytest.mark.parametrize(
    ("site", "code", "words"), [("gadi", 1, "=>> PBS: job killed: walltime exceeded"), ("jean-zay", 143, "TIMEOUT")]
)
def test_the_walltime_ends_the_job(site, code, words, work):
    """Past its walltime a job gets TERM, and the rehearsal says why it ended."""
    command = "trap 'touch warned; exit 5' TERM; while :; do sleep 0.2; done"
    process = start(
        "run",
        "--site",
        site,
        "-t",
        "00:00:04",
        "--launcher",
        "tasks",
        "--tasks-per-node",
        "1",
        "--",
        "bash",
        "-c",
        command,
    )
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, (work / "warned").exists()) == (code, True)
    assert words in stdout + stderr
    assert processes_with(str(work / "hpclaunch-runs")) == []


def test_the_first_job_of_an_array_runs(work):
    """On PBS the first job of an array is rehearsed, with its index."""
    (work / "site_profiles").mkdir()
    (work / "site_profiles" / "here.yaml").write_text("extends: pbs\ntitle: The tests' own\n")
    words = ("--nodes", "1", "--directive", "-J 4-6", "--directive", "-r y", "--launcher", "tasks")
    folder = rehearse("here", *words, "--", "bash", "-c", "echo index $PBS_ARRAY_INDEX", nodes=1)
    assert (folder / "rank-0.log").read_text().startswith("index 4\n")


def test_what_a_task_of_pbs_does_not_get(work):
    """A command sees what the script exports, in the script's order, though pbsdsh passes none of it on."""
    folder = rehearse("gadi", "--launcher", "tasks", "--setup", "export MINE=here", "--", "python", "-c", REPORT)
    for path in sorted(folder.glob("rank-*.log")):
        report = json.loads(path.read_text())
        assert (report["MINE"], report["PBS_JOBID"]) == ("here", folder.name)
        assert report["PWD"] == str(work)


def test_only_some_schedulers_have_a_rehearsal(monkeypatch):
    """A scheduler without a stand-in is named, instead of being rehearsed as another."""
    monkeypatch.setattr(rehearsal, "REHEARSALS", {})
    plan = make_plan(search.load("gadi"), Request(site="gadi", command=["true"]))
    with pytest.raises(HpclaunchError, match="no rehearsal for scheduler pbs"):
        rehearsal.rehearse(plan, "")


@pytest.mark.slow
@pytest.mark.parametrize(("site", "launcher"), [("gadi", "torchrun"), ("jean-zay", "tasks")])
def test_it_goes_on_past_the_walltime(site, launcher, work):
    """A command of more than two walltimes is warned, saves, and goes on, no step lost or done twice."""
    (work / "count.py").write_text(COUNT.replace("LIMIT", "30"))
    words = ("-t", "00:00:25", "--warn-before", "15s", "--max-attempts", "12", "--launcher", launcher)
    folder = rehearse(site, *words, "--", "python", "count.py", seconds=400)
    log = (folder / "rank-3.log").read_text().splitlines()
    counted = [line for line in log if not line.startswith("---")]
    assert counted[:30] == [f"step {n}" for n in range(1, 31)]
    assert set(counted[30:]) == {"done"}  # once more if another rank was warned just before its own last step
    assert [line for line in log if line.startswith("---")][2] == "--- attempt 3 of 12 ---"


@pytest.mark.slow
def test_it_goes_on_where_jobs_may_not_submit_jobs(work):
    """At a site with `resubmit: false` all attempts are submitted together here too, and the work gets done."""
    (work / "site_profiles").mkdir()
    (work / "site_profiles" / "chain.yaml").write_text("extends: gadi\ntitle: The tests' own\nresubmit: false\n")
    (work / "count.py").write_text(COUNT.replace("LIMIT", "9"))
    words = ("-t", "00:00:20", "--warn-before", "12s", "--max-attempts", "3", "--launcher", "tasks")
    folder = rehearse("chain", *words, "--", "python", "count.py", nodes=1, seconds=100)
    log = (folder / "rank-0.log").read_text().splitlines()
    assert log[-1] == "done"
    assert [line for line in log if line.startswith("---")] == ["--- attempt 1 of 3 ---", "--- attempt 2 of 3 ---"]


@pytest.mark.train
@pytest.mark.parametrize(
    ("site", "nodes", "launcher"),
    [
        ("gadi", 2, "torchrun"),
        ("jean-zay", 2, "tasks"),
        *(slow("gadi", nodes, launcher) for nodes, launcher in ((2, "lightning"), (2, "mpirun"), (3, "tasks"))),
        *(slow("jean-zay", 2, launcher) for launcher in ("torchrun", "lightning", "mpirun")),
    ],
)
def test_the_bundled_workload_trains(site, nodes, launcher):
    """Lightning finds its world under the script that the site would get."""
    if launcher == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("no Open MPI on this machine (Debian: openmpi-bin)")
    words = (*AS_ROOT, "--launcher", launcher, "--env", "OMP_NUM_THREADS=1")
    folder = rehearse(site, *words, "--", sys.executable, str(MNIST), "--epochs", "1", nodes=nodes)
    log = folder / ("node-0.log" if launcher == "lightning" else "rank-0.log")
    assert "test accuracy" in log.read_text()
    assert f"MEMBER: 1/{2 * nodes}" in log.with_suffix(".err").read_text()
