"""Jobs that run the code as it was at submission, and runs that are submitted again."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import COUNT, call, start, submit

from hpclaunch.errors import HpclaunchError
from hpclaunch.runs import snapshot

pytestmark = pytest.mark.job

RUNS = Path("hpclaunch-runs")
LOCAL = ("--site", "local", "--snapshot", "--wait")
# What a job finds: the code's version, data, where it is; it writes by a relative path, and into the data.
TRAIN = """
import os, pathlib, sub.model
print(sub.model.VERSION, pathlib.Path("data/set").read_text(), pathlib.Path("big.bin").stat().st_size)
pathlib.Path("result").write_text(os.environ["RANK"])
pathlib.Path("data/new").touch()
"""


def git(*words: str) -> str:
    line = ["git", "-c", "user.name=n", "-c", "user.email=e", *words]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def project(work, monkeypatch, tmp_path):
    """A repository with a commit, a change, a new file, ignored data and a big file."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, text in {
        "train.py": TRAIN,
        "sub/model.py": "VERSION = 1\n",
        "sub/deleted.py": "",
        "data/set": "all",
        "sub/weights.pt": "w",
        ".gitignore": "data/\n*.pt\n",
    }.items():
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(text)
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    (work / "sub" / "model.py").write_text("VERSION = 2\n")
    (work / "sub" / "deleted.py").unlink()
    (work / "sub" / "new.py").touch()
    (work / "big.bin").touch()
    os.truncate(work / "big.bin", 60_000_000)
    return work


def test_a_job_runs_the_code_as_it_was(project):
    """Uncommitted changes and new files included; data and big files are the originals; results lie in the run."""
    process = start(
        "submit", *LOCAL, "--setup", "until [[ -e $OLDPWD/go ]]; do sleep 0.1; done", "--", "python", "train.py"
    )
    while not list(RUNS.glob("code/[0-9a-f]*/code/data")):
        assert process.poll() is None, process.communicate()
    (project / "sub" / "model.py").write_text("VERSION = 3\n")
    (project / "train.py").unlink()
    (project / "go").touch()
    job, talk = process.communicate(timeout=60)
    assert process.returncode == 0, talk
    assert "hpclaunch: above 50 MB, linked and not copied: big.bin\n" in talk
    folder = RUNS / job.strip()
    assert (folder / "rank-0.log").read_text() == "2 all 60000000\n"
    assert (folder / "code" / "result").read_text() == "0"
    assert (project / "data" / "new").exists()
    assert not (project / "result").exists()
    assert (folder / "code" / "data").readlink() == project / "data"
    assert (folder / "code" / "sub" / "weights.pt").readlink() == project / "sub" / "weights.pt"
    assert sorted(path.name for path in (folder / "code" / "sub").glob("*.p*")) == ["model.py", "new.py", "weights.pt"]
    assert (folder / "commit").read_text() == git("rev-parse", "HEAD")
    assert "-VERSION = 1\n+VERSION = 2\n" in (folder / "code.diff").read_text()
    assert "\nclick==" in (folder / "packages.txt").read_text()


def test_the_same_code_makes_the_same_script(cli, project):
    """Byte for byte; looking writes no copy, and a changed file, mode or link changes it."""
    words = ("render", "--site", "gadi", "-A", "ab12", "--snapshot", "--quiet", "--", "python", "train.py")
    scripts = [cli(*words).stdout]
    (project / "data" / "more").touch()
    assert cli(*words).stdout == scripts[0]
    assert not RUNS.exists()
    for change in ("echo >>train.py", "chmod +x train.py", "ln -s train.py link", "ln -sf sub/new.py link"):
        subprocess.run(["bash", "-c", change], check=True)
        scripts.append(cli(*words).stdout)
    assert len({*scripts}) == 5
    assert "hpclaunch-runs" not in cli(*words).stderr


def test_without_git_all_but_hidden_files_and_environments_is_code(work, monkeypatch):
    """These are linked; caches and runs are neither."""
    for name in ("a/b.py", ".hidden/x", "env/pyvenv.cfg", "env/lib", "a/__pycache__/b.pyc", "hpclaunch-runs/1/job.sh"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).touch()
    (work / "out").symlink_to("../elsewhere")
    name, files, big = snapshot.look()
    assert (files, big) == (["a/b.py"], [])
    snapshot.write(name)
    copy = snapshot.FOLDER / name / "code"
    assert {path.name: path.is_symlink() for path in copy.iterdir()} == {
        "a": False,
        "out": True,
        ".hidden": True,
        "env": True,
    }
    assert (copy / "out").readlink() == work / "out"  # which leads out of the folder
    assert [path.name for path in (copy / "a").iterdir()] == ["b.py"]


def test_a_repository_inside_is_code_too(project):
    """Of a submodule or a nested clone the tracked and unignored files are copied."""
    git("init", "-q", "inner")
    Path("inner/.gitignore").write_text("x\n")
    Path("inner/x").touch()
    Path("inner/y").touch()
    assert {"inner/.gitignore", "inner/y"} == {file for file in snapshot.look()[1] if file.startswith("inner")}


def test_too_much_code_is_refused(cli, work):
    """With the limit and what to do."""
    for i in range(21):
        (work / f"{i}.dat").touch()
        os.truncate(work / f"{i}.dat", 49_000_000)
    result = cli("render", "--site", "local", "--snapshot", "--", "true")
    assert result.stderr.endswith(
        "hpclaunch: --snapshot: 21 files, 1.0 GB, exceed the limit of 20,000 and 1 GB; list data in .gitignore, or use "
        "--no-snapshot\n"
    )


def test_code_that_changes_meanwhile_is_not_submitted(project):
    """The script is made for one state of the code."""
    name, _, _ = snapshot.look()
    (project / "train.py").touch()
    (project / "train.py").write_text("")
    with pytest.raises(HpclaunchError, match="the code changed while it was copied"):
        snapshot.write(name)
    assert not any(snapshot.FOLDER.iterdir())


def test_a_script_without_its_copy_says_so(cli, project):
    """It was rendered and submitted by hand."""
    script = cli("render", "--site", "local", "--snapshot", "--", "true").stdout
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the copy of hpclaunch-runs/code/" in done.stdout
    assert "which hpclaunch submit writes" in done.stdout


@pytest.mark.slow
def test_further_attempts_go_on_in_the_same_copy(qsub, work):
    """What the first attempt wrote by a relative path is there."""
    qsub()
    (work / "count.py").write_text(COUNT.replace("LIMIT", "5").replace("{os.environ['HPCLAUNCH_RUN_DIR']}/", ""))
    words = ("--site", "gadi-here", "-t", "20s", "--warn-before", "16s", "--max-attempts", "9", "--snapshot")
    job = submit(*words, "--tasks-per-node", 1, "--force", "walltime", "--", "python", "count.py")
    call("wait", job, seconds=90)
    log = (RUNS / job / "rank-0.log").read_text()
    lines = [line for line in log.splitlines() if not line.startswith("---")]
    # A warning that comes while the last attempt leaves may kill it: one more attempt then finds nothing to do.
    assert list(dict.fromkeys(lines)) == [*(f"step {i}" for i in range(1, 6)), "done"]
    assert (RUNS / job / "code" / "count-0").read_text() == "5"


@pytest.mark.slow
def test_a_run_is_submitted_again(project):
    """With its code, from any folder, whatever the config says now; typed options win, secrets come from here."""
    job = submit(
        *LOCAL, "--env", "A=1", "--env", "B_KEY=secret", "--", "bash", "-c", "cat sub/model.py; echo $A $B_KEY"
    )
    (project / "sub" / "model.py").write_text("VERSION = 3\n")
    (project / "hpclaunch.yaml").write_text("env: {A: '9'}\nworkload: env\n")
    again = ("rerun", job, "--wait", "--quiet")
    assert "--env B_KEY: not set here" in start(*again).communicate(timeout=30)[1]
    os.environ["HPCLAUNCH_TASKS_PER_NODE"] = "2"
    second = call(*again, "--env", "B_KEY=s").strip()
    del os.environ["HPCLAUNCH_TASKS_PER_NODE"]
    assert [path.name for path in (RUNS / second).glob("rank-*.log")] == ["rank-0.log"]
    assert (RUNS / second / "rank-0.log").read_text() == "VERSION = 2\n1 s\n"
    os.chdir("sub")
    third = call(*again, "--env", "B_KEY=s", "--env", "A=2", "--tasks-per-node", 2, "--", "cat", "sub/model.py").strip()
    os.chdir("..")
    assert (RUNS / third / "rank-1.log").read_text() == "VERSION = 2\n"
    assert json.loads((RUNS / third / "plan.json").read_text())["request"]["env"]["A"] == "2"
    fourth = call(*again, "--env", "B_KEY=s", "--no-snapshot").strip()
    assert (RUNS / fourth / "rank-0.log").read_text() == "VERSION = 3\n1 s\n"
    assert not (RUNS / fourth / "code").exists()


def test_what_cannot_be_submitted_again_is_one_line(cli, project):
    """A run without plan.json, a copy that is gone."""
    job = submit(*LOCAL, "--", "true")
    (RUNS / "code").rename(project / "moved")
    result = cli("rerun", job)
    assert result.exit_code == 1
    assert "is gone; use --no-snapshot" in result.stderr
    (RUNS / job / "plan.json").unlink()
    assert "plan.json, which has its request, cannot be read" in cli("rerun", job).stderr
