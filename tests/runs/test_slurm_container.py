"""--container on a real Slurm, with Charliecloud and an image that is made of this machine's own programs."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import call, slow, submit, wait_until

from hpclaunch.paths import WORKLOADS

pytestmark = pytest.mark.usefixtures("slurm")
NAMES = ("WORLD_SIZE", "NODE_RANK", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
REPORT = (
    "import json, os, socket; "
    "print(json.dumps(dict(os.environ, host=socket.gethostname(), image=os.listdir('/image'))))"
)
PYTHON = f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"'
TWO_BY_TWO = ("--site", "boxes", "--nodes", "2", "--tasks-per-node", "2")


@pytest.fixture(autouse=True)
def image(slurm, work, tmp_path, monkeypatch) -> Path:
    """An image that has this machine's /usr and python, and a file of its own; and a site whose containers use it."""
    if not shutil.which("ch-run"):
        pytest.skip("Charliecloud is not installed: no ch-run on PATH (Debian: charliecloud-runtime)")
    monkeypatch.setenv("USER", "root")  # as in any login; ch-run needs it
    folder = tmp_path / "image"
    needed = ["/usr", sys.prefix, sys.base_prefix, *(path for path in sys.path if Path(path).is_dir())]
    binds = sorted({path for path in needed if path == "/usr" or not path.startswith("/usr/")})
    made = ["dev", "proc", "sys", "tmp", "etc", "root", "home", "image/mine"]
    for path in (*made, WORKLOADS["env"].parent, *binds):
        (folder / str(path).lstrip("/")).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (folder / name).symlink_to(f"usr/{name}")
    for name in ("passwd", "group", "hosts", "resolv.conf"):
        (folder / "etc" / name).touch()
    if subprocess.run(["ch-run", folder, "--", "true"], capture_output=True, check=False).returncode == 31:
        pytest.skip("Charliecloud cannot make user namespaces here")
    keys = {"extends": "jz", "title": "Boxes", "container": {"runtime": "charliecloud", "binds": binds}}
    (work / "site_profiles" / "boxes.yaml").write_text(json.dumps(keys))
    return folder


@pytest.mark.parametrize("launcher", ["tasks", slow("torchrun"), slow("mpirun")])
def test_every_rank_has_its_place_in_the_image(image, launcher):
    """Two ranks on each of two nodes run in the image, with the variables that they would have without one."""
    as_root = ("--env", "OMPI_ALLOW_RUN_AS_ROOT=1", "--env", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
    words = (*TWO_BY_TWO, "--container", image, "--launcher", launcher, *as_root, "--wait")
    job = submit(*words, "--", sys.executable, "-c", REPORT)
    found = [json.loads(path.read_text()) for path in sorted(Path("hpclaunch-runs", job).glob("rank-*.log"))]
    assert [tuple(report[name] for name in NAMES) for report in found] == [
        ("4", str(rank // 2), str(rank), str(rank % 2), "2") for rank in range(4)
    ]
    assert {report["host"] for report in found} == {"r6i4n0", "r6i4n1"}
    assert all(report["image"] == ["mine"] for report in found)


def test_a_bundled_workload_comes_along(image):
    """The program of a workload is seen in the image."""
    job = submit(*TWO_BY_TWO, "--container", image, "--setup", PYTHON, "--workload", "env", "--wait")
    assert "world size" in call("logs", job).lower()


@pytest.mark.parametrize("launcher", ["tasks", slow("torchrun")])
def test_an_exit_code_comes_back(image, launcher):
    """The job ends with the exit code of the program in the image that failed."""
    words = (*TWO_BY_TWO, "--container", image, "--launcher", launcher, "--setup", PYTHON)
    submit(*words, "--wait", "--", "bash", "-c", "((RANK != 3)) || exit 7; sleep 60", code=7)


def test_signals_reach_the_program(image):
    """USR1, which warns of the walltime, reaches each program in its image."""
    wait = "trap 'echo warned; exit' USR1; echo ready; while :; do sleep 0.2; done"
    job = submit(*TWO_BY_TWO, "--container", image, "--max-attempts", "2", "--", "bash", "-c", wait)
    logs = [Path("hpclaunch-runs", job, f"rank-{rank}.log") for rank in range(4)]
    wait_until(lambda: all(log.exists() and "ready" in log.read_text() for log in logs), 60)
    subprocess.run(["scancel", "--batch", "--signal=USR1", job], check=True)
    wait_until(lambda: all("warned" in log.read_text() for log in logs), 60)
