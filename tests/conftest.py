"""What the tests share: a clean environment, the command line, fake PBS jobs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hpclaunch.cli import main

STANDINS = Path(__file__).parent / "pbs_standin"
FOREIGN = re.compile(
    r"(HPCLAUNCH|SLURM|PBS|OMPI|PMIX|TORCHELASTIC)_|(MASTER_ADDR|MASTER_PORT|WORLD_SIZE|(LOCAL_|NODE_)?RANK|VIRTUAL_ENV)$"
)


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write the golden scripts anew")


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    """Every test starts in an empty folder, with no settings of the person who runs it."""
    for name in os.environ:
        if FOREIGN.match(name) and name != "HPCLAUNCH_TEST_MNIST":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def work(tmp_path):
    """The folder the test starts in."""
    return tmp_path / "work"


@pytest.fixture
def cli():
    """Call the command line; a traceback fails the test."""

    def call(*words: str) -> Result:
        result = CliRunner().invoke(main, words, prog_name="hpclaunch")
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


def start(*words: object, **options) -> subprocess.Popen[str]:
    """Start the real command line as a process of its own."""
    command = [sys.executable, "-m", "hpclaunch", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **(pipes | options))


def call(*words: object, code: int = 0, seconds: float = 60) -> str:
    """Call the real command line, expect the exit code, return what it prints."""
    process = start(*words)
    stdout, stderr = process.communicate(timeout=seconds)
    assert process.returncode == code, stdout + stderr
    return stdout


def submit(*words: object, code: int = 0, seconds: float = 120) -> str:
    """Submit, expect the exit code, return the job's id."""
    return call("submit", "--quiet", *words, code=code, seconds=seconds).strip()


def state(job: str) -> dict:
    """Return what `status --json` says of one job."""
    return json.loads(call("status", "--json", job))[0]


def processes_with(text: str) -> list[str]:
    """List the command lines of processes that carry `text` in theirs or in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
            if text.encode() in line + (folder / "environ").read_bytes():
                found.append(line.replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


@dataclass
class PbsJob:
    """A job script under a fake PBS on this machine; see pbs_standin/pbsdsh."""

    process: subprocess.Popen[str]
    folder: Path
    work: Path

    @property
    def run_folder(self) -> Path:
        return self.work / "hpclaunch-runs" / "107.gadi-pbs"

    def logs(self, pattern: str = "rank-*.log") -> list[str]:
        return [path.read_text() for path in sorted(self.run_folder.glob(pattern))]

    def sessions(self, node: str = "*") -> list[int]:
        return [int(path.name.split("-")[-1]) for path in self.folder.glob(f"session-{node}-*")]

    def qdel(self) -> None:
        """SIGTERM to every process of the job on the first node, and to none on the others."""
        for session in (self.process.pid, *self.sessions("0")):
            subprocess.run(["pkill", "-TERM", "-s", str(session)], check=False)

    def wait(self, seconds: float = 60) -> int:
        """Return the exit code; the end of the script kills what it started, with no warning."""
        try:
            return self.process.wait(timeout=seconds)
        finally:
            for session in (self.process.pid, *self.sessions()):
                subprocess.run(["pkill", "-KILL", "-s", str(session)], check=False)
            self.output = (self.folder / "job.o").read_text()


@pytest.fixture
def pbs(tmp_path):
    """Submit a script as PBS would start it: from $HOME, with nothing but PBS's own variables, umask 077."""
    jobs = []

    def submit(script: str, hosts: list[str], lines_per_host: int = 48, dead: str | None = None, **variables: str):
        folder = tmp_path / f"pbs {len(jobs)}"
        spool = folder / "spool"
        spool.mkdir(parents=True)
        path = spool / "107.SC"
        path.write_text(script)
        path.chmod(0o700)
        nodefile = spool / "nodefile"
        nodefile.write_text("".join(f"{host}\n" * lines_per_host for host in hosts))
        if dead:
            (folder / "dead").write_text(dead)
        listed = {
            "PBS_O_WORKDIR": str(Path.cwd()),
            "PBS_O_HOME": os.environ["HOME"],
            "PBS_JOBID": "107.gadi-pbs",
            "PBS_JOBNAME": "train",
            "PBS_STANDIN": str(folder),
            **variables,
        }
        (folder / "variables.json").write_text(json.dumps(listed))
        for node in range(len(hosts)):
            (folder / f"jobfs-{node}").mkdir()
        environment = listed | {
            "PATH": f"{STANDINS}:/usr/bin:/bin",
            "HOME": os.environ["HOME"],
            "TMPDIR": str(folder / "jobfs-0"),
            "PBS_NODEFILE": str(nodefile),
            "PBS_ENVIRONMENT": "PBS_BATCH",
            "PBS_JOBCOOKIE": "cookie",
            "PBS_MOMPORT": "15003",
            "PBS_NODENUM": "0",
            "PBS_TASKNUM": "1",
            "NCPUS": "48",
            "OMP_NUM_THREADS": "48",
        }
        output = (folder / "job.o").open("a")
        process = subprocess.Popen(
            [str(path)],
            env=environment,
            cwd=environment["HOME"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            umask=0o077,
            start_new_session=True,
        )
        output.close()
        jobs.append(PbsJob(process, folder, Path.cwd()))
        return jobs[-1]

    yield submit
    for job in jobs:
        if job.process.poll() is None:
            os.killpg(job.process.pid, signal.SIGKILL)
            job.wait()


def wait_until(condition, seconds: float = 30) -> None:
    """Wait until `condition()` holds, and fail if it never does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to pass"
        time.sleep(0.1)


CLUSTER = Path(__file__).parent / "slurm_cluster" / "cluster"
SLURM_PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "mariadbd", "munged", "ip")


@pytest.fixture(scope="session")
def slurm_cluster():
    """A real Slurm of four nodes, up for the whole test run; see slurm_cluster/cluster."""
    if os.geteuid() != 0:
        pytest.skip("a Slurm cluster in network namespaces needs root")
    sbin = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if missing := [program for program in SLURM_PROGRAMS if not shutil.which(program, path=sbin)]:
        pytest.skip(
            f"Slurm is not installed: no {', '.join(missing)} (Debian: slurm-wlm slurmdbd mariadb-server munge)"
        )
    was_up = subprocess.run([CLUSTER, "status"], capture_output=True, check=False).returncode == 0
    subprocess.run([CLUSTER, "up"], check=True, stdout=subprocess.DEVNULL)
    yield CLUSTER
    if not was_up:
        subprocess.run([CLUSTER, "down"], check=True)


@pytest.fixture
def slurm(slurm_cluster, work, monkeypatch, tmp_path):
    """A folder with a profile like Jean-Zay's for this cluster, and an empty registry."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HPCLAUNCH_SITE", "jz")
    monkeypatch.setenv("HPCLAUNCH_ACCOUNT", "abc@v100")
    monkeypatch.setenv("HPCLAUNCH_WALLTIME", "00:05:00")
    (work / "site_profiles").mkdir()
    (work / "site_profiles" / "jz.yaml").write_text("extends: jean-zay\ntitle: The tests' own\nmodules: []\n")
    yield slurm_cluster
    subprocess.run(["scancel", "--me"], check=False)


@pytest.fixture
def qsub(work, monkeypatch, tmp_path):
    """PBS's programs on PATH, from a stand-in with options of its own, and profiles for it in the folder."""
    from hpclaunch.rehearsal import pbs

    def install(**options: object) -> None:
        settings = {"kill_delay": 1, "poll": 1} | options
        for name, value in pbs.install(tmp_path / "pbs server", **settings).items():
            monkeypatch.setenv(name, value)

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (work / "site_profiles").mkdir()
    for name, text in PBS_PROFILES.items():
        (work / "site_profiles" / f"{name}.yaml").write_text(text)
    return install


PBS_PROFILES = {
    # Gadi without what this machine has not: its modules and its project.
    "gadi-here": "extends: gadi\ntitle: The tests' own\nmodules: []\nmodule_paths: []\nstorage: []\numask: null\n"
    "account: ab12\nhostnames: []\npoll: '00:00:01'\n",
    "pbs-here": "extends: pbs\ntitle: The tests' own\npoll: '00:00:01'\n",
    "gadi-slow": "extends: gadi-here\ntitle: The tests' own\npoll: '00:10:00'\n",
    "gadi-no-qsub": "extends: gadi-here\ntitle: The tests' own\nresubmit: false\n",
}
