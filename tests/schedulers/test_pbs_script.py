"""The PBS job script, run as PBS runs it, on a stand-in that misbehaves as the real one does."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from pathlib import Path

import pytest
from conftest import FIRST_ID, PbsJob, processes_with, program, slow, wait_until

# Addresses of this machine that stand for two nodes.
HOSTS = ["127.0.0.1", "127.0.0.2"]
CONTRACT = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "NODE_RANK", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
REPORT = """
import json, os, sys, time
print(json.dumps(dict(os.environ, argv=sys.argv[1:], cwd=os.getcwd())), flush=True)
"""
MNIST = Path(__file__).parents[2] / "hpclaunch" / "workloads" / "mnist.py"


@pytest.fixture
def own_site(work):
    """A site like Gadi, without the modules that only Gadi has."""
    folder = work / "site_profiles"
    folder.mkdir()
    (folder / "mine.yaml").write_text("extends: gadi\ntitle: Mine\nmodules: []\n")


@pytest.fixture
def submit(cli, pbs, own_site):
    def call(*command: str, options=(), nodes=2, **pbs_options) -> PbsJob:
        asked = ["--site", "mine", "-A", "ab12", "--nodes", str(nodes), "--tasks-per-node", "2", *options]
        result = cli("render", *asked, "--", *command)
        assert result.exit_code == 0, result.stderr
        return pbs(result.stdout, HOSTS[:nodes], **pbs_options)

    return call


def contract(job: PbsJob) -> list[tuple[str, ...]]:
    reports = [json.loads(line) for log in job.logs() for line in log.splitlines() if line.startswith("{")]
    return [tuple(report.get(name, "-") for name in CONTRACT) for report in reports]


def script(work: Path, text: str = REPORT) -> list[str]:
    (work / "train.py").write_text(text)
    return [sys.executable, "train.py"]


@pytest.mark.parametrize("lines", ["node", "gpu", "cpu"])
def test_every_rank_gets_its_place_whatever_the_nodefile_repeats(submit, work, lines):
    """Two nodes of two ranks have the seven variables right with one line per node, per GPU and per CPU."""
    job = submit(*script(work), "a b", "$HOME", options=["--launcher", "tasks"], lines=lines)
    assert job.wait() == 0, job.output
    report = json.loads(job.logs()[3])
    assert 0 <= int(report["MASTER_PORT"]) - 20000 - FIRST_ID < 90  # the job's number, unless that is taken
    assert contract(job) == [
        (HOSTS[0], report["MASTER_PORT"], "4", str(rank // 2), str(rank), str(rank % 2), "2") for rank in range(4)
    ]
    assert report["argv"] == ["a b", "$HOME"]
    assert report["cwd"] == str(work)
    assert report["TMPDIR"].endswith("jobfs-1")
    assert report["OMP_NUM_THREADS"] == "24"


def test_open_mpi_without_tm_is_given_the_nodes(submit, work, tmp_path):
    """An Open MPI that does not know PBS starts the ranks of all nodes, by ssh or what else reaches them."""
    if not shutil.which("mpirun"):
        pytest.skip("Open MPI is not installed: no mpirun on PATH")
    program(tmp_path / "bin" / "reach", f'echo "$1" >>{tmp_path}/reached; shift; exec sh -c "$*"')
    environment = {
        "OMPI_MCA_plm_rsh_agent": tmp_path / "bin" / "reach",
        "OMPI_ALLOW_RUN_AS_ROOT": 1,
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": 1,
    }
    options = [f"--env={name}={value}" for name, value in environment.items()]
    job = submit(*script(work), options=["--launcher", "mpirun", *options])
    assert job.wait() == 0, job.output
    assert [row[2:] for row in contract(job)] == [("4", str(i // 2), str(i), str(i % 2), "2") for i in range(4)]
    assert (tmp_path / "reached").read_text().split() == HOSTS[1:]


@pytest.mark.slow
def test_torchrun_numbers_nodes_and_ranks_alike(submit, work):
    """Under torchrun each rank's NODE_RANK agrees with its RANK, and all meet at one address."""
    job = submit(*script(work), options=["--launcher", "torchrun"])
    assert job.wait() == 0, job.output
    found = contract(job)
    assert [row[2:] for row in found] == [("4", str(r // 2), str(r), str(r % 2), "2") for r in range(4)]
    assert len({row[:2] for row in found}) == 1


def test_lightning_starts_once_a_node_without_local_rank(submit, work):
    """The lightning launcher gives one process a node its place and leaves the local ranks to Lightning."""
    job = submit(*script(work), options=["--launcher", "lightning"])
    assert job.wait() == 0, job.output
    reports = [json.loads(log) for log in job.logs("node-*.log")]
    assert [report["NODE_RANK"] for report in reports] == ["0", "1"]
    assert all(report["WORLD_SIZE"] == "4" for report in reports)
    assert all("LOCAL_RANK" not in report and "RANK" not in report for report in reports)


def test_environment_reaches_the_other_node(submit, work):
    """What the job sets, values with blanks, quotes and newlines too, is set on every node; PBS's own stays its own."""
    nasty = 'it\'s a "b" $HOME `id` \\ \n#'
    options = ["--launcher", "tasks", "--env", f"NASTY={nasty}", "--setup", "export PYTHONPATH=/opt/mine"]
    job = submit(*script(work), options=options, V="from qsub -v")
    assert job.wait() == 0, job.output
    reports = [json.loads(log) for log in job.logs()]
    assert [report["NASTY"] for report in reports] == [nasty] * 4
    assert [report["PYTHONPATH"] for report in reports] == ["/opt/mine"] * 4
    assert [report["PBS_NODENUM"] for report in reports] == ["0", "0", "1", "1"]
    assert oct((job.run_folder / "node.sh").stat().st_mode)[-3:] == "600"


def test_it_works_from_a_folder_with_blanks_and_quotes(submit, work, monkeypatch):
    """The folder of submission may be called anything, with a newline in it too."""
    folder = work / 'it\'s a "b" $c\nd'
    folder.mkdir()
    shutil.copytree(work / "site_profiles", folder / "site_profiles")
    monkeypatch.chdir(folder)
    job = submit(*script(folder), options=["--launcher", "tasks"])
    assert job.wait() == 0, job.output
    assert len(contract(job)) == 4


@pytest.mark.parametrize("launcher", ["tasks", slow("torchrun")])
def test_a_failing_rank_ends_the_job_with_its_exit_code(submit, work, launcher):
    """A rank on the second node exits with 7: within seconds all end, the job's code is 7, and its log is shown."""
    fails = "import os, sys, time\nif os.environ['RANK'] == '3':\n    print('no data'); sys.exit(7)\ntime.sleep(100)\n"
    job = submit(*script(work, fails), options=["--launcher", launcher])
    began = time.monotonic()
    assert job.wait() == 7, job.output
    assert time.monotonic() - began < 40
    assert "first failure: rank 3 on " in job.output
    assert "no data" in job.output
    assert processes_with(str(work / "hpclaunch-runs")) == []


def test_a_builtin_is_no_program(submit, work):
    """A word that only the shell knows does not end the job script with success."""
    job = submit("exit", "0", options=["--launcher", "tasks"])
    assert job.wait() == 127, job.output


def test_a_rank_whose_shell_is_killed_fails_the_job(submit, work):
    """When the kernel kills what watches a rank, the job fails, though nobody could write down why."""
    job = submit("bash", "-c", "kill -9 $PPID", options=["--launcher", "tasks"])
    assert job.wait() == 137, job.output


def test_what_is_asked_for_reaches_every_node(submit, work):
    """--env TMPDIR and CUDA_VISIBLE_DEVICES, else each host's own, are the same on all nodes."""
    words = ["--launcher", "tasks", "--env", "TMPDIR=/var/mine", "--env", "CUDA_VISIBLE_DEVICES=3"]
    job = submit(*script(work), options=words)
    assert job.wait() == 0, job.output
    reports = [json.loads(log) for log in job.logs()]
    assert [(r["TMPDIR"], r["CUDA_VISIBLE_DEVICES"]) for r in reports] == [("/var/mine", "3")] * 4


def test_a_full_disk_ends_the_job(submit, work):
    """When no file can be written any more, the job fails instead of waiting for its walltime."""
    job = submit("bash", "-c", "sleep 1; exit 7", options=["--launcher", "tasks"])
    wait_until(lambda: len(job.logs("node-*.heartbeat.[1-9]*")) == 2)
    (job.run_folder / "failed.d").mkdir()
    (job.run_folder / "failed").symlink_to(job.run_folder / "failed.d" / "no" / "where")
    assert job.wait() == 7, job.output


def test_a_missing_program_fails_the_job(submit, work):
    """A command that is not there ends the job with 127 and bash's words, although pbsdsh itself returns 0."""
    job = submit("no-such-program", options=["--launcher", "tasks"])
    assert job.wait() == 127, job.output
    assert "no-such-program" in job.output


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["tasks", "torchrun"])
def test_qdel_gives_every_node_time_to_save(submit, work, launcher):
    """On qdel the ranks of both nodes get SIGTERM, have four seconds to save, and nothing is left behind."""
    saves = (
        "import os, signal, sys, time\n"
        "def save(*_):\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    time.sleep(4)\n"
        "    open(f'saved-{os.environ[\"RANK\"]}', 'w')\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('ready', flush=True)\n"
        "time.sleep(100)\n"
    )
    job = submit(*script(work, saves), options=["--launcher", launcher])
    wait_until(lambda: job.logs() == ["ready\n"] * 4)
    began = time.monotonic()
    job.qdel()
    assert job.wait() == 271, job.output
    assert time.monotonic() - began < 20
    assert sorted(path.name for path in work.glob("saved-*")) == [f"saved-{rank}" for rank in range(4)]
    assert processes_with(str(work / "hpclaunch-runs")) == []


@pytest.mark.slow
def test_a_dead_node_is_noticed_within_a_minute(submit, work):
    """A node that never answers ends the job with a message that names it, long before the walltime."""
    job = submit(*script(work, "import time; time.sleep(300)"), options=["--launcher", "tasks"], dead=HOSTS[1])
    began = time.monotonic()
    assert job.wait(80) == 1, job.output
    assert time.monotonic() - began < 75
    assert f"node {HOSTS[1]}, which is silent" in job.output


@pytest.mark.slow
def test_one_node_needs_no_fan_out(submit, work):
    """A job on one node runs there directly, with the same contract, and fails with its rank's code."""
    job = submit(*script(work), nodes=1, options=["--launcher", "tasks"])
    assert job.wait() == 0, job.output
    port = contract(job)[0][1]
    assert 0 <= int(port) - 20000 - FIRST_ID < 90  # as above
    assert contract(job) == [(HOSTS[0], port, "2", "0", str(r), str(r), "2") for r in range(2)]
    failing = submit(*script(work, "raise SystemExit(5)"), nodes=1, options=["--launcher", "tasks"])
    assert failing.wait() == 5, failing.output


def test_wrong_number_of_hosts_is_refused(pbs, own_site, cli):
    """Where PBS packs two chunks on one host the script says so instead of training with half the ranks."""
    script = cli("render", "--site", "mine", "-A", "ab12", "--nodes", "2", "--", "true").stdout
    totals = re.compile(r"#PBS -l (ncpus|ngpus|mem|jobfs)=.*\n")
    job = pbs(
        totals.sub("", script, count=3).replace("#PBS -l jobfs=800GB", "#PBS -l select=2:ncpus=12:ngpus=1"), HOSTS
    )
    assert job.wait() == 1
    assert "PBS gave 1 hosts, the job is made for 2" in job.output


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["tasks", "torchrun"])
def test_the_bundled_workload_trains(submit, launcher):
    """Lightning finds its world of two nodes and trains under the script Gadi would get."""
    job = submit(
        sys.executable, str(MNIST), "--epochs", "1", options=["--launcher", launcher, "--env", "OMP_NUM_THREADS=1"]
    )
    assert job.wait(150) == 0, job.output
    assert "MEMBER: 1/4" in job.output
    assert "test accuracy" in job.output


def test_a_line_of_setup_may_change_the_folder(submit, work):
    """The ranks of every node start in the folder that --setup went to."""
    (work / "sub").mkdir()
    job = submit(*script(work / "sub"), options=["--launcher", "tasks", "--setup", "cd sub"])
    assert job.wait() == 0, job.output
    assert {json.loads(report)["cwd"] for report in job.logs()} == {str(work / "sub")}


def test_a_job_that_is_told_to_end_early_does_not_look_well(submit, work):
    """Ended while it still loads its environment, a job leaves 143 in its run folder, not the 0 of its last line."""
    job = submit("true", options=["--launcher", "tasks", "--setup", "touch began; sleep 30"])
    wait_until((work / "began").exists)
    job.qdel()
    assert job.wait() == 271
    assert (job.run_folder / "exit").read_text() == "143\n"


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["tasks", "torchrun"])
def test_a_node_that_is_not_fit_is_named_before_the_ranks_start(submit, work, launcher):
    """With --preflight a node with a broken GPU ends the job, which names it; fit nodes train."""
    pytest.importorskip("torch")
    smi = "#!/bin/bash\n[[ ! -e broken || $NODE_RANK = 0 ]] || exit 9\necho '<log><gpu/><gpu/><gpu/><gpu/></log>'\n"
    (work / "nvidia-smi").write_text(smi)
    (work / "nvidia-smi").chmod(0o755)
    (work / "broken").touch()
    options = ["--launcher", launcher, "--preflight", "--setup", f'PATH="$PWD:{Path(sys.executable).parent}:$PATH"']
    job = submit(*script(work), options=options)
    assert job.wait() == 1, job.output
    assert re.search(r"first failure: node 1 \(\S+\), which cannot query its GPUs: .* status 9", job.output)
    assert contract(job) == []
    (work / "broken").unlink()
    job = submit(*script(work), options=options)
    assert job.wait() == 0, job.output
    assert len(contract(job)) == 4
    assert "preflight: 2 nodes are fit; " in "".join(job.logs("*-0.log"))
