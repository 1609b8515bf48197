"""What the tests share: a clean environment, the command line, jobs on a stand-in for PBS."""

from __future__ import annotations

import atexit
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, settings
from standin import pbs as rehearsal_pbs
from standin.pbs.settings import Settings, queues_of

from hpclaunch import paths
from hpclaunch.cli import main
from hpclaunch.profile import search

WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))  # this process of the tests
os.environ["TEST_CLUSTER"] = str(WORKER)  # for slurm_cluster/cluster
SCRATCH = Path(tempfile.mkdtemp(prefix="hpclaunch-tests-"))
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)

# Tests of logic stand on frozen copies of the shipped profiles, in sites/, so that a new price or limit changes nothing
# here; tests of the shipped ones carry the mark `shipped`. A process, as users start it, has the shipped ones always.
SHIPPED = paths.shipped("site_profiles")
FROZEN = SCRATCH / "site_profiles"
FROZEN.mkdir()
for other in (path for path in SHIPPED.iterdir() if path.suffix != ".yaml"):
    (FROZEN / other.name).symlink_to(other)
for profile in (Path(__file__).parent / "sites").glob("*.yaml"):
    shutil.copy(profile, FROZEN)
really_shipped = paths.shipped


def frozen(kind: str) -> Path:
    """Stand in for `paths.shipped`."""
    return FROZEN if kind == "site_profiles" else really_shipped(kind)


paths.shipped = frozen


class Process(subprocess.Popen):
    """A process that a test starts, and that does not outlive it."""

    started: ClassVar[list[Process]] = []

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self.started.append(self)


subprocess.Popen = Process
FOREIGN = re.compile(
    r"(HPCLAUNCH|SLURM|PBS|OMPI|PMIX|TORCHELASTIC)_|(COLUMNS|LINES|MASTER_ADDR|MASTER_PORT|WORLD_SIZE|(LOCAL_|NODE_)?RANK|VIRTUAL_ENV)$"
)


# Commands of a scheduler that this machine may have: only tests that started one see it.
SCHEDULERS = re.compile(
    r"q(sub|stat|del|alter|hold|rls|sig|mgr|select|msg|move|order|run|rerun)|pbs(nodes|dsh|_.*)|"
    r"s(acct|acctmgr|alloc|attach|batch|bcast|cancel|control|crontab|diag|info|prio|queue|report|run|share|stat|trigger)"
)
PATH = os.environ["PATH"]


def without_schedulers(path: str) -> str:
    """Return a PATH like this one; links take the place of a folder that has a scheduler's commands."""
    folders = path.split(os.pathsep)
    for number, folder in enumerate(folders):
        programs = list(Path(folder).iterdir()) if Path(folder).is_dir() else []
        if any(SCHEDULERS.fullmatch(program.name) for program in programs):
            links = SCRATCH / f"bin-{number}"
            links.mkdir()
            for program in programs:
                if not SCHEDULERS.fullmatch(program.name):
                    (links / program.name).symlink_to(program)
            folders[number] = str(links)
    return os.pathsep.join(folders)


# The processes of one run share the links: there are thousands.
NO_SCHEDULER = os.environ["TEST_PATH"] = os.environ.get("TEST_PATH") or without_schedulers(PATH)


# Random tests: some examples, or with --hypothesis-profile=many the number that finds what is rare.
RANDOM = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}
settings.register_profile("some", max_examples=100, derandomize=True, **RANDOM)
settings.register_profile("many", max_examples=2000, **RANDOM)
settings.load_profile("some")


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write the golden scripts anew")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What modules load when they are imported is not from the checkout's ./site_profiles, but frozen."""
    before = Path.cwd()
    os.chdir(SCRATCH)
    result = yield
    os.chdir(before)
    return result


def pytest_collection_finish():
    """Spare the garbage collector what stays: the tests' modules and thousands of tests."""
    gc.freeze()


def pytest_collection_modifyitems(items):
    """Tests of a real Slurm carry its mark; those in workloads/ import torch; others run jobs."""
    for item in items:
        if "slurm_cluster" in item.fixturenames:
            item.add_marker(pytest.mark.slurm)
        if "workloads" in item.path.parts:
            item.add_marker(pytest.mark.train)
        if JOBS_RUN & {*item.fixturenames} or item.path.stem in JOBS_RUN:
            item.add_marker(pytest.mark.job)


# Fixtures and files of tests that run jobs, each a second or more.
JOBS_RUN = {
    "standin", "pbs", "qsub", "test_run", "test_runs", "test_made_up", "test_rehearsal", "test_packaging", "test_hang",
    "test_debug_rank", "test_mpi", "test_remote", "test_secrets",
}  # fmt: skip


def scope_of(nodeid: str) -> str:
    """Return what one process of several runs together, by a test's name, which is all that the scheduler knows.

    A file with fixtures of its own makes them once, and alice has one home; other tests go where time is.
    """
    own = re.search("test_mnist|test_packaging|test_slurm_remote", nodeid)
    return nodeid.partition("::")[0] if own else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Deal tests out by `scope_of`."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return Scheduling(config, log)


def slow(*values: object):
    """Return values of a parametrized test that only `make test-all` runs."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path, request):
    """Every test starts in an empty folder, with no settings of the person who runs it."""
    for name in os.environ:
        if FOREIGN.match(name) and name != "HPCLAUNCH_TEST_MNIST":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(SCRATCH / "cache"))
    monkeypatch.setenv("PATH", NO_SCHEDULER)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # several tests share the cores
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    if request.node.get_closest_marker("shipped"):
        monkeypatch.setattr(paths, "shipped", really_shipped)
    yield
    while Process.started:
        with Process.started.pop() as process:  # which closes its pipes
            process.kill()


@pytest.fixture
def plots(monkeypatch):
    """Let this test's processes find matplotlib, which the Makefile keeps from those of the others."""
    folder = str(Path(sys.prefix) / "plot")
    monkeypatch.setattr(sys, "path", [*sys.path, folder])
    monkeypatch.setenv("PYTHONPATH", folder)


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


def start(*words: object, under: Iterable[str] = (), **options) -> subprocess.Popen[str]:
    """Start the real command line as a process of its own, under a program that runs another."""
    command = [*under, sys.executable, "-m", "hpclaunch", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **(pipes | options))


def call(*words: object, code: int = 0, seconds: float = 60, under: Iterable[str] = ()) -> str:
    """Call the real command line, expect the exit code, return what it prints."""
    process = start(*words, under=under)
    stdout, stderr = process.communicate(timeout=seconds)
    assert process.returncode == code, stdout + stderr
    return stdout


def submit(*words: object, code: int = 0, seconds: float = 120, under: Iterable[str] = ()) -> str:
    """Submit, expect the exit code, return the job's id."""
    return call("submit", "--quiet", *words, code=code, seconds=seconds, under=under).strip()


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


def oldest(processes: Iterable[object]) -> int:
    """Return the process that was started first, whose number is not the lowest once they begin anew."""
    words = ["ps", "--sort=start_time", "-o", "pid=", "-p", ",".join(map(str, processes))]
    return int(subprocess.check_output(words, text=True).split()[0])


def program(path: Path, text: str) -> None:
    """Write a program, of sh if it does not say otherwise, whose folder need not be there."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Write programs of the test's own, which are all of PATH but for a few: no scheduler of this machine answers."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "cat", "sleep", "env"):
        (folder / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(folder))
    return lambda name, text: program(folder / name, text if text.startswith("#!") else f"#!/bin/bash\n{text}\n")


@dataclass
class Standin:
    """A stand-in for PBS, set up in a folder of its own."""

    folder: Path
    environment: dict[str, str]

    def call(self, *words: object, code: int = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Call one of its programs; another exit code fails the test."""
        command = [str(word) for word in words]
        run = subprocess.run(command, input=stdin, env=self.environment, capture_output=True, text=True, check=False)
        assert run.returncode == code, f"{run.returncode}: {run.stdout}{run.stderr}"
        return run

    def submit(self, script: str, *options: object) -> str:
        """Submit a script and return the job's id."""
        return self.call("qsub", *options, stdin=script).stdout.strip()

    def job(self, job_id: str) -> dict[str, Any]:
        """Return what qstat shows of a job."""
        return json.loads(self.call("qstat", "-x", "-f", "-F", "json", job_id).stdout)["Jobs"][job_id]

    def ended(self, job_id: str, seconds: float = 30) -> dict[str, Any]:
        """Wait for a job's end and return what qstat shows of it."""
        wait_until((self.folder / "history" / f"{job_id}.json").exists, seconds)
        return self.job(job_id)


@dataclass
class PbsJob:
    """A job on a stand-in for PBS."""

    pbs: Standin
    work: Path
    id: str
    output: str = ""

    @property
    def folder(self) -> Path:
        return self.pbs.folder

    @property
    def run_folder(self) -> Path:
        return self.work / "hpclaunch-runs" / self.id

    def logs(self, pattern: str = "rank-*.log") -> list[str]:
        return [path.read_text() for path in sorted(self.run_folder.glob(pattern))]

    def qdel(self) -> None:
        self.pbs.call("qdel", self.id)

    def wait(self, seconds: float = 60) -> int:
        """Return the Exit_status; the job's output is there after its end, not before."""
        job = self.pbs.ended(self.id, seconds)
        self.output = Path(job["Output_Path"].partition(":")[2]).read_text()
        return job["Exit_status"]


@pytest.fixture
def standin(tmp_path):
    """Set up stand-ins for PBS, and end what they run when the test is over."""
    folders = []

    def install(name: str = "", dead: str | None = None, hosts: Sequence[str] = (), **options) -> Standin:
        folders.append(tmp_path / (name or f"pbs {len(folders)}"))
        gadi = queues_of(search.load(str(paths.shipped("site_profiles") / "gadi.yaml")).site)
        asked = {"queues": gadi, "hosts": tuple(hosts), "poll": 1, "kill_delay": 1, "answers_one": True, **options}
        own = rehearsal_pbs.install(folders[-1], Settings(**asked), dead=dead, first_id=FIRST_ID)
        return Standin(folders[-1], {**os.environ, **own})

    yield install
    for folder in folders:
        rehearsal_pbs.stop(folder)


@pytest.fixture
def pbs(standin):
    """Submit a script to a PBS of its own, whose nodes are addresses of this machine."""

    def submit(script: str, hosts: list[str], lines: str = "cpu", dead: str | None = None, **variables: str):
        server = standin(hosts=hosts, lines=lines, dead=dead, kill_delay=10)
        server.environment |= variables
        listed = ["-v", ",".join(variables)] if variables else []
        return PbsJob(server, Path.cwd(), server.submit(script, *listed))

    return submit


# The number of a stand-in's first job. Ports follow a job's number: those of tests that run side by side must differ.
FIRST_ID = 107 + 100 * WORKER

# A command that counts to LIMIT, a step a second, saves each, and leaves with 75 when it is warned of the end.
COUNT = """
import os, signal, sys, time
warned = []
signal.signal(signal.SIGUSR1, lambda *_: warned.append(1))
path = f"{os.environ['HPCLAUNCH_RUN_DIR']}/count-{os.environ['RANK']}"
n = int(open(path).read()) if os.path.exists(path) else 0
while n < LIMIT:
    time.sleep(1)
    n += 1
    print("step", n, flush=True)
    open(path + "~", "w").write(str(n))
    os.replace(path + "~", path)
    if warned:
        sys.exit(75)
print("done", flush=True)
"""


# Uses so many MB and seconds of a core, rests so many seconds, and prints how many GB and seconds it used in the end.
USES = """
import os, resource, sys, time
megabytes, seconds, rest = map(float, sys.argv[1:])
data = bytearray(os.urandom(1 << 20)) * int(megabytes)
while time.process_time() < seconds:
    pass
time.sleep(rest)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2, time.process_time())
"""


def used_by_ranks(folder: Path) -> list[tuple[float, float]]:
    """Return the GB of memory and the seconds of a core of each rank of USES."""
    texts = [path.read_text().split()[-2:] for path in sorted(folder.glob("rank-*.log"))]
    return [(float(memory), float(seconds)) for memory, seconds in texts]


# idr_torch's README example, and the Trainer of IDRIS's page on Lightning; the latter without GPUs.
IDRIS = """
import os
import idr_torch
import pytorch_lightning as pl
import torch.distributed as dist
dist.init_process_group(
    backend="gloo", init_method="env://", world_size=idr_torch.world_size, rank=idr_torch.rank
)
trainer = pl.Trainer(
    accelerator="cpu", devices=int(os.environ["SLURM_GPUS_ON_NODE"]), num_nodes=int(os.environ["SLURM_NNODES"])
)
print(dist.get_rank(), trainer.global_rank, os.environ["SLURM_PROCID"], os.environ["RANK"])
print(dist.get_world_size(), trainer.world_size, os.environ["SLURM_NTASKS"], os.environ["WORLD_SIZE"])
"""


def wait_until(condition, seconds: float = 30) -> None:
    """Wait until `condition()` holds, asking a third of the time at most, and fail if it never does."""
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if condition():
            return
        asked = time.monotonic()
        assert asked < end, "it never came to pass"
        time.sleep(max(0.1, 2 * (asked - began)))


CLUSTER = Path(__file__).parent / "slurm_cluster" / "cluster"
SLURM_PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "mariadbd", "munged", "ip")


@pytest.fixture(scope="session")
def slurm_cluster():
    """The settings of a real Slurm of four nodes, one for each process of the tests; see slurm_cluster/cluster."""
    if os.geteuid() != 0:
        pytest.skip("a Slurm cluster in network namespaces needs root")
    sbin = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if missing := [program for program in SLURM_PROGRAMS if not shutil.which(program, path=sbin)]:
        pytest.skip(
            f"Slurm is not installed: no {', '.join(missing)} (Debian: slurm-wlm slurmdbd mariadb-server munge)"
        )
    was_up = subprocess.run([CLUSTER, "status"], capture_output=True, check=False).returncode == 0
    up = subprocess.run([CLUSTER, "up"], capture_output=True, text=True, check=False)
    if up.returncode:
        pytest.fail(f"the tests' own Slurm did not start: {up.stderr}", pytrace=False)
    yield up.stdout.strip().partition("=")[2]
    if not was_up:
        subprocess.run([CLUSTER, "down"], check=True)


@pytest.fixture
def slurm(slurm_cluster, work, monkeypatch, tmp_path):
    """A folder with a profile like Jean-Zay's for this cluster, whose commands know no other, and an empty registry."""
    monkeypatch.setenv("PATH", PATH)
    monkeypatch.setenv("SLURM_CONF", slurm_cluster)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HPCLAUNCH_SITE", "jz")
    monkeypatch.setenv("HPCLAUNCH_ACCOUNT", "abc@v100")
    monkeypatch.setenv("HPCLAUNCH_WALLTIME", "00:05:00")
    (work / "site_profiles").mkdir()
    (work / "site_profiles" / "jz.yaml").write_text("extends: jean-zay\ntitle: The tests' own\nmodules: []\n")
    yield CLUSTER
    subprocess.run(["scancel", "--me"], check=False)
    # The next test expects the first nodes, which jobs that are ending still have.
    wait_until(lambda: not subprocess.run(["squeue", "--noheader"], capture_output=True, check=False).stdout, 60)


@pytest.fixture
def qsub(standin, work, monkeypatch, tmp_path):
    """PBS's programs on PATH, from a stand-in with options of its own, and profiles for it in the folder."""

    def install(**options: object) -> None:
        for name, value in standin("pbs server", **options).environment.items():
            monkeypatch.setenv(name, value)

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (work / "site_profiles").mkdir()
    for name, text in PBS_PROFILES.items():
        (work / "site_profiles" / f"{name}.yaml").write_text(text)
    return install


PBS_PROFILES = {
    # Gadi without what this machine has not: its modules and its project.
    "gadi-here": "extends: gadi\ntitle: The tests' own\nmodules: []\nmodule_paths: []\nstorage: []\numask: null\n"
    "account: ab12\nhostnames: []\npoll: '00:00:01'\ndead_after: '00:00:20'\n"
    "partitions: {gpuvolta: {charge: {unit: SU, per: core, rate: 3.0, mem_gb: 7.958333333333333}}}\n",
    "pbs-here": "extends: pbs\ntitle: The tests' own\npoll: '00:00:01'\n",
    "gadi-slow": "extends: gadi-here\ntitle: The tests' own\npoll: '00:10:00'\n",
    "gadi-no-qsub": "extends: gadi-here\ntitle: The tests' own\nresubmit: false\n",
}


# A Lightning training in STEPS steps that saves after each EVERY of them.
TRAINING = """
import os, time, torch, pytorch_lightning as pl
from torch.utils.data import DataLoader, TensorDataset
from hpclaunch.lightning import SaveAndLeave, resume_path, trainer_places
class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def on_train_start(self):
        print("world", self.trainer.world_size, flush=True)
    def training_step(self, batch, index):
        time.sleep(0.3)
        print("step", self.global_step, "of", os.environ["WORLD_SIZE"], flush=True)
        return self.layer(batch[0]).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)
trainer = pl.Trainer(accelerator="cpu", max_steps=STEPS, logger=False, enable_progress_bar=False,
                     callbacks=[SaveAndLeave(every_steps=EVERY)], enable_checkpointing=False, **trainer_places())
trainer.fit(Model(), DataLoader(TensorDataset(torch.ones(1000, 4))), ckpt_path=resume_path())
os._exit(0)  # else torch 2.13 with gloo aborts now and then when all is done
"""
