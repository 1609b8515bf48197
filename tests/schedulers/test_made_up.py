"""A scheduler from outside the package, added as CONTRIBUTING says: the whole command line works with it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import call, start, state, submit, wait_until

from hpclaunch import paths

RECIPE = Path(__file__).parents[2] / "CONTRIBUTING.md"
REPORT = (
    "import json, os; "
    "print(json.dumps([os.environ.get(name) for name in ('RANK', 'LOCAL_RANK', 'NODE_RANK', 'WORLD_SIZE')]))"
)


@pytest.fixture(autouse=True)
def fork(monkeypatch, tmp_path):
    """Follow the recipe: each block is the file that the line before it names; a package is installed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    recipe = RECIPE.read_text().partition("## Add a scheduler")[2].partition("\n## ")[0]
    blocks = dict(re.findall(r"`([\w/.]+)`:\n\n```\w+\n(.*?)```", recipe, re.DOTALL))
    assert [*blocks] == ["fork_scheduler.py", "pyproject.toml", "templates/fork.sh.j2", "site_profiles/fork.yaml"]
    installed = tmp_path / "site-packages"
    metadata = installed / "fork_scheduler-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fork-scheduler\nVersion: 1\n")
    entries = blocks.pop("pyproject.toml").replace(
        'project.entry-points."hpclaunch.schedulers"', "hpclaunch.schedulers"
    )
    (metadata / "entry_points.txt").write_text(entries.replace('"', ""))
    (installed / "fork_scheduler.py").write_text(blocks.pop("fork_scheduler.py"))
    for name, text in blocks.items():
        path = paths.user_config() / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.setenv("HPCLAUNCH_SITE", "fork")


@pytest.mark.parametrize(
    ("launcher", "nodes"),
    [
        ("tasks", 2),
        ("torchrun", 1),
        ("lightning", 2),
        pytest.param("mpirun", 1, marks=pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun not found")),
    ],
)
def test_every_launcher_starts_its_ranks(launcher, nodes, monkeypatch):
    """A job's ranks have their places under each launcher; `status` and `logs` know it, `wait` has its exit code."""
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    words = ("--launcher", launcher, "--nodes", nodes, "--tasks-per-node", "2")
    job = submit(*words, "--wait", "--", sys.executable, "-c", REPORT)
    folder = Path("hpclaunch-runs", job)
    reports = [json.loads(path.read_text()) for path in sorted(folder.glob("*-*.log")) if "node-" not in path.name]
    if launcher == "lightning":
        reports = [json.loads(path.read_text()) for path in sorted(folder.glob("node-*.log"))]
        assert reports == [[None, None, str(node), "4"] for node in range(2)]
    else:
        assert reports == [[str(i), str(i % 2), str(i // 2), str(2 * nodes)] for i in range(2 * nodes)]
    assert (state(job)["word"], state(job)["exit_code"]) == ("COMPLETED", 0)
    assert call("logs", job).count("[") >= len(reports)


def test_render_prints_its_script():
    """`render` prints what `submit` submits, with the request's directives behind the scheduler's prefix."""
    words = ("--nodes", "2", "--directive", "priority=low", "--", "python", "train.py")
    script = call("render", *words)
    assert "#FORK priority=low\n" in script
    assert "hpclaunch-runs/$FORK_JOBID\n" in script
    job = submit("--nodes", "2", "--directive", "priority=low", "--wait", "--", "true")
    assert "hpclaunch-runs/$FORK_JOBID\n" in Path("hpclaunch-runs", job, "job.sh").read_text()


def test_a_failure_is_explained():
    """`wait` ends with the exit code of the first rank to fail, and `why` names it."""
    job = submit("--tasks-per-node", "2", "--wait", "--", "sh", "-c", "exit $((RANK * 7))", code=7)
    assert state(job)["word"] == "FAILED"
    assert "rank 1" in call("why", job)


def test_a_job_is_cancelled():
    """`cancel` ends a job that runs, and nothing of it is left."""
    job = submit("--", "sleep", "321.5")
    wait_until(lambda: state(job)["word"] == "RUNNING")
    call("why", job)
    call("cancel", job)
    call("wait", job, code=143)
    assert state(job)["word"] == "CANCELLED"
    assert "cancelled" in call("why", job).lower()


def test_python_functions_run_under_it():
    """A submitit executor comes with the scheduler: results come back from each rank."""
    script = """
import os, hpclaunch
executor = hpclaunch.executor("fork", tasks_per_node=2)
print(executor.submit(lambda: int(os.environ["RANK"]) * 10).results())
print([job.results() for job in executor.map_array(lambda n: n * n, range(2))])
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout == "[0, 10]\n[[0, 0], [1, 1]]\n", run.stderr


def test_doctor_and_site_know_it(monkeypatch):
    """The doctor looks for its commands; a profile with an unknown scheduler lists it among those that are known."""
    process = start("doctor", "--json", "--workload", "env")
    rows = json.loads(process.communicate(timeout=100)[0])
    assert next(row for row in rows if row["check"] == "scheduler")["message"] == "bash are on PATH"
    profile = paths.user_config() / "site_profiles" / "fork.yaml"
    profile.write_text(profile.read_text().replace("scheduler: fork", "scheduler: zzz"))
    process = start("render")
    assert "scheduler: no such scheduler (known: fork, local, pbs, slurm)" in process.communicate(timeout=60)[1]
    assert process.returncode == 1
