"""`hpclaunch doctor`: what would keep a job from running is found before it is submitted, each with a remedy."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from standin.pbs.settings import Queue

from hpclaunch import doctor, paths
from hpclaunch.doctor import environment, folders, scheduler
from hpclaunch.doctor.result import ok

LOCAL = ("doctor", "--site", "local")


@pytest.fixture
def examined(cli, monkeypatch, tmp_path):
    """Call doctor: its diagnostics by probe, as verdict, text, remedy; the exit code must be as expected."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def call(*words: str, code: int) -> dict[str, list[tuple[str, str, str]]]:
        result = cli("doctor", "--json", *words)
        assert result.exit_code == code, result.output
        found: dict[str, list[tuple[str, str, str]]] = {}
        for row in json.loads(result.stdout):
            found.setdefault(row["check"], []).append((row["verdict"], row["message"], row["remedy"]))
            assert row["refuses"] == (row["verdict"] == "problem")
        return found

    return call


@pytest.fixture
def quick(monkeypatch):
    """Leave out the environment, whose import of torch takes seconds."""
    monkeypatch.delitem(doctor.PROBES, "environment")


@pytest.fixture
def light(monkeypatch, tmp_path):
    """Let a torch and a Lightning be found that import at once."""
    for name in ("torch", "pytorch_lightning"):
        (tmp_path / "light" / name).mkdir(parents=True)
        text = "__version__ = '2'\nclass version:\n    cuda = hip = None\n"
        (tmp_path / "light" / name / "__init__.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "light"))


@pytest.mark.train
def test_a_laptop_is_well(cli, examined):
    """On a laptop, `--site local` finds python, torch, Lightning and folders, asks no scheduler, and exits with 0."""
    found = examined("--site", "local", code=0)
    assert {row[0] for probe, rows in found.items() for row in rows if probe != "room"} == {"ok"}
    assert found["scheduler"][0][1] == "none is needed, jobs run on this machine"
    assert found["python"][0][1].startswith(sys.executable)
    assert {"environment", "torch", "lightning", "run folder", "room", "own folders"} <= found.keys()
    table = cli(*LOCAL).stdout.splitlines()
    assert table[0] == "ok       scheduler    none is needed, jobs run on this machine"


@pytest.mark.parametrize("site", ["gadi", "jean-zay"])
def test_no_scheduler_is_out_of_reach(site, examined, programs, quick):
    """Away from a login node the exit code is 3, with what is missing; folders are examined all the same."""
    found = examined("--site", site, code=3)
    verdict, text, remedy = found["scheduler"][0]
    assert verdict == "problem"
    assert text.startswith("not on PATH: qsub, qstat" if site == "gadi" else "not on PATH: sbatch, squeue")
    assert "login node" in remedy
    assert "server" not in found
    assert "own folders" in found


def test_a_silent_daemon_is_out_of_reach(examined, programs, quick, monkeypatch):
    """A scheduler whose daemon hangs is given up after some seconds: exit code 3, and the rest is examined."""
    monkeypatch.setattr(scheduler, "ASK_SECONDS", 0.5)
    for name in ("qsub", "qstat", "qdel"):
        programs(name, "exec sleep 30")
    began = time.monotonic()
    found = examined("--site", "gadi", code=3)
    assert time.monotonic() - began < 10
    assert found["server"] == [
        ("problem", "qstat: no answer after 0.5 s; its daemon may be down", found["server"][0][2])
    ]
    assert "maintenance" in found["server"][0][2]


def test_a_controller_that_is_down(examined, programs, quick):
    """A controller that scontrol finds DOWN is out of reach, whatever scontrol's exit code."""
    for name, line in {**SLURM, "scontrol": "echo 'Slurmctld(primary) at one is DOWN'"}.items():
        programs(name, line)
    found = examined("--site", "slurm", code=3)
    assert found["server"][0][:2] == ("problem", "Slurmctld(primary) at one is DOWN")


def test_a_pbs_that_answers(examined, quick, qsub):
    """On a PBS site the server and the queue are found; an account that no unix group has cannot be told."""
    qsub()
    found = examined("--site", "gadi-here", code=1)  # the tests' folder is node-local
    assert found["scheduler"] == [("ok", "qsub, qstat, qdel are on PATH", "")]
    assert found["server"] == [("ok", "gadi-pbs, PBS 23.06.06", "")]
    assert found["partition"] == [("ok", "gpuvolta is there and open", "")]
    assert found["account"][0][:2] == ("warning", "cannot tell whether ab12 is yours")


def test_a_queue_that_is_not_there(examined, quick, qsub):
    """A queue that the profile has and PBS has not is a problem, in PBS's own words."""
    qsub(queues={"normal": Queue()})
    found = examined("--site", "gadi-here", "-p", "hugemem", code=1)
    assert found["partition"][0][:2] == ("problem", "hugemem: qstat: Unknown queue destination hugemem")


def test_a_queue_that_is_closed(examined, programs, quick):
    """A queue that takes no jobs is told before the job waits in it."""
    for name in ("qsub", "qdel"):
        programs(name, "exit 0")
    programs("qstat", 'echo \'{"Queue": {"gpuvolta": {"enabled": "True", "started": "False"}}}\'')
    found = examined("--site", "gadi", code=1)
    assert found["partition"][0][1] == 'gpuvolta: "started": "False": it takes no jobs, or starts none'


@pytest.mark.parametrize(
    ("groups", "verdict", "text"),
    [({"ab12", "users"}, "ok", "ab12 is yours"), ({"users"}, "problem", "is not in it")],
)
def test_projects_are_unix_groups_on_pbs(groups, verdict, text, examined, qsub, quick, monkeypatch):
    """A project that is a unix group has this user in it, or the doctor says whom to ask."""
    qsub()
    monkeypatch.setattr("hpclaunch.schedulers.machine.my_groups", lambda: groups)
    monkeypatch.setattr(scheduler.grp, "getgrnam", lambda name: SimpleNamespace(gr_name=name))
    found = examined("--site", "gadi-here", code=1)["account"][0]
    assert found[0] == verdict
    assert text in found[1]


SLURM = {
    "scontrol": '[[ $1 == ping ]] && echo "Slurmctld(primary) at one is UP" || echo "PartitionName=gpu State=UP"',
    "sacctmgr": "printf 'chem|a|a|phys\\nphys|a|a|phys\\n'",
    "sbatch": "cat >/dev/null",
    "squeue": "",
    "scancel": "",
}


@pytest.mark.parametrize(
    ("account", "verdict", "text"),
    [("Phys", "ok", "Phys is yours"), ("bio", "problem", "bio is not yours"), (None, "ok", "yours: phys, chem")],
)
def test_slurm_accounts(account, verdict, text, examined, programs, quick):
    """An account is looked for among those that Slurm lists for this user."""
    for name, line in SLURM.items():
        programs(name, line)
    found = examined("--site", "slurm", *(["-A", account] if account else []), code=1)
    assert found["account"][0][0] == verdict
    assert text in found["account"][0][1]
    assert found["scheduler"][1][:2] == ("warning", "not on PATH: sacct")
    assert found["job"][0][0] == "ok"


def test_slurm_says_why_it_would_refuse(examined, programs, quick):
    """The job's own script is tried by sbatch --test-only, and its refusal is told before submission."""
    refuses = (
        'cat >"$HOME/tried"; [[ $1 == --test-only ]] && echo "sbatch: error: Invalid qos specification" >&2; exit 1'
    )
    for name, line in {**SLURM, "sbatch": refuses}.items():
        programs(name, line)
    found = examined("--site", "slurm", "--nodes", "2", "--", "true", code=1)
    assert found["job"][0][:2] == ("problem", "sbatch: error: Invalid qos specification")
    assert "#SBATCH --nodes=2\n" in Path(os.environ["HOME"], "tried").read_text()


def test_a_job_that_the_site_refuses(examined, quick, qsub):
    """What hpclaunch itself would refuse is a diagnostic among the others."""
    qsub()
    found = examined("--site", "gadi-here", "-t", "90h", code=1)
    assert found["job"][0][0] == "problem"
    assert "walltime: 90:00:00 exceeds" in found["job"][0][1]
    assert found["server"][0][0] == "ok"


def test_a_line_of_setup_that_fails(examined, light):
    """A module or line of setup that ends the job script is a problem, with its words; python is looked for still."""
    found = examined("--site", "local", "--setup", "echo no such thing >&2; exit 1", "--workload", "env", code=1)
    assert found["environment"][0][:2] == ("problem", "no such thing")
    assert found["python"][0][0] == "ok"


def test_what_setup_exports_counts(examined, work):
    """Python is looked for in the environment that the job's lines make, variables and folder included."""
    (work / "elsewhere" / "torch").mkdir(parents=True)
    (work / "elsewhere" / "torch" / "__init__.py").write_text("raise ImportError('libcuda is missing')")
    setup = ("--setup", "cd elsewhere", "--setup", "export PYTHONPATH=$PWD")
    found = examined("--site", "local", *setup, "--", sys.executable, "-c", "", code=1)
    assert found["torch"][0][:2] == ("problem", "ImportError: libcuda is missing")
    assert "--venv" in found["torch"][0][2]


def test_a_venv_without_torch(examined, work):
    """An environment without torch is a problem; without Lightning, a warning to a command of one's own."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "bare"], check=True)
    found = examined("--site", "local", "--venv", "bare", "--", "python", "train.py", code=1)
    assert found["python"][0][1].startswith(str(work / "bare" / "bin" / "python"))
    assert found["torch"][0][:2] == ("problem", "ModuleNotFoundError: No module named 'torch'")
    assert found["lightning"][0][0] == "warning"
    assert found["data"][0][:2] == ("warning", f"{work}/train.py is not there")


def test_torch_without_cuda_for_a_job_with_gpus():
    """A CPU build of torch is a problem to a job that asks for GPUs."""
    plan = SimpleNamespace(workload=None, gpus_per_node=4, launcher="tasks")
    found = {"torch": "2.9+cpu", "gpu": "", "lightning": "2"}
    result, _ = environment._torch(plan, found)
    assert result.verdict == "problem"
    assert "built for no GPU" in result.message


def test_no_python_in_the_environment(examined):
    """An environment without a python is a problem."""
    found = examined(
        "--site", "local", "--setup", "PATH=/nowhere:$(dirname $(command -v env))", "--", "python3.99", code=1
    )
    assert found["python"][0][:2] == ("problem", "python3.99 is not on the job's PATH")


def test_data_is_looked_for(examined, work, light):
    """The profile's datasets and the command's paths are looked for, in the job's environment."""
    (work / "data").mkdir()
    folder = paths.user_config() / "site_profiles"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(
        "extends: local\ntitle: Mine\ndatasets: {MNIST_DIR: $STORE/mnist, HERE_DIR: '${STORE}'}\n"
    )
    (work / "train.py").touch()
    words = ("--setup", f"export STORE={work}/data", "--", sys.executable, "train.py", "--data=/none/such")
    found = examined("--site", "mine", *words, code=0)["data"]
    assert [(verdict, text) for verdict, text, _ in found] == [
        ("warning", f"MNIST_DIR: {work}/data/mnist is not there"),
        ("ok", f"{work}/data is there"),
        ("ok", f"{work}/train.py is there"),
        ("warning", "/none/such is not there"),
    ]


def test_a_folder_that_cannot_be_written(examined, quick, monkeypatch):
    """Where the run folder cannot be made, the doctor says so."""
    monkeypatch.chdir("/proc")
    found = examined("--site", "local", code=1)
    assert found["run folder"][0][0] == "problem"
    assert "submit from a folder that you may write to" in found["run folder"][0][2]


def test_a_full_quota_is_a_problem(examined, quick, monkeypatch):
    """Where nothing more can be written the doctor says so in the system's words."""

    def full(_):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "fsync", full)
    found = examined("--site", "local", code=1)["run folder"]
    assert found[0][:2] == ("problem", f"{Path.cwd()}: Disk quota exceeded")


def test_a_state_folder_that_cannot_be_written(examined, quick, monkeypatch):
    """Without its registry hpclaunch cannot follow jobs: a problem."""
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    found = examined("--site", "local", code=1)["own folders"]
    assert found[0][0] == "problem"
    assert "XDG_STATE_HOME" in found[0][2]


def test_one_bad_probe_stops_no_other(examined, quick, monkeypatch):
    """A probe that fails, or hangs on a dead file system, costs its own line only, and not for ever."""

    def fails(_):
        yield ok("odd", "so far")
        raise ValueError("a b\nc")

    def hangs(_):
        time.sleep(30)
        yield

    monkeypatch.setattr(doctor, "LEFT_SECONDS", 0.3)
    bad = {"odd": (fails, 0.2), "slow": (hangs, 0.2), "folders": (folders.probe, 10)}
    monkeypatch.setattr(doctor, "PROBES", bad)
    found = examined("--site", "local", code=1)
    assert found["odd"] == [("ok", "so far", ""), ("warning", "cannot tell: a b c", "")]
    assert found["slow"][0][:2] == ("problem", "no answer after 0.2 s")
    assert found["own folders"][0][0] == "ok"


def test_the_config_file_counts(examined, light):
    """What the user's hpclaunch.yaml says of site and setup is what is examined."""
    paths.user_config().mkdir(parents=True)
    (paths.user_config() / "hpclaunch.yaml").write_text("site: local\nsetup: ['exit 1']\nworkload: env\n")
    found = examined(code=1)
    assert found["environment"][0][:2] == ("problem", "its lines end with exit code 1")
