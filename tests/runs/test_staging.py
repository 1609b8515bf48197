"""--stage-in and --stage-out on this machine's emulated nodes."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import processes_with, program, slow, start, wait_until

pytestmark = pytest.mark.job

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# Each rank lists what is on its node's disk and leaves a result there.
PROGRAM = """
import os, pathlib
disk = pathlib.Path(os.environ["HPCLAUNCH_LOCAL"])
print(*sorted(str(path.relative_to(disk)) for path in disk.rglob("*") if path.is_file()), sep="\\n")
(disk / "results").mkdir(exist_ok=True)
(disk / "results" / os.environ.get("RANK", f"node {os.environ['NODE_RANK']}")).write_text(os.environ["NODE_RANK"])
"""


@pytest.fixture
def disk(work, tmp_path, monkeypatch) -> Path:
    """The nodes' own disk, and data in the working folder; `cp` and `tar` note each call in the file `copies`."""
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setenv("TMPDIR", str(disk))
    (work / "data" / "below").mkdir(parents=True)
    (work / "data" / "below" / "b").write_text("b")
    (work / "data" / "a").symlink_to("below/b")
    (work / "train.py").write_text(PROGRAM)
    for name in ("cp", "tar"):
        program(tmp_path / "bin" / name, f'echo "$*" >>{work}/copies\nexec {shutil.which(name)} "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}")
    return disk


def run(*words: object, code: int = 0) -> Path:
    """Run two ranks on each of two nodes and return the run folder."""
    process = start("run", "--nodes", 2, "--tasks-per-node", 2, *words, env=os.environ | AS_ROOT)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == code, stdout + stderr
    return max(Path("hpclaunch-runs").iterdir())


@pytest.mark.parametrize("launcher", ["tasks", slow("torchrun"), "mpirun", slow("lightning")])
def test_each_node_has_a_copy_of_its_own(work, disk, launcher):
    """A folder and a file are copied once to each node, under their names or others; the results come back."""
    if launcher == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("Open MPI is not installed: no mpirun on PATH")
    stage = ("--stage-in", "data", "--stage-in", "train.py:code/t.py", "--stage-out", "results:out/put")
    folder = run(*stage, "--launcher", launcher, "--", sys.executable, "train.py")
    logs = sorted(folder.glob("node-?.log" if launcher == "lightning" else "rank-?.log"))
    assert len(logs) == (2 if launcher == "lightning" else 4)
    assert all(log.read_text().split()[:3] == ["code/t.py", "data/a", "data/below/b"] for log in logs)
    assert sum("out/put" not in line for line in (work / "copies").read_text().splitlines()) == 2 * 2
    if launcher == "lightning":
        assert {path.name for path in Path("out/put").iterdir()} == {"node 0", "node 1"}
    else:
        assert {path.name: path.read_text() for path in Path("out/put").iterdir()} == dict(
            zip("0123", "0011", strict=True)
        )
    assert not [*disk.glob("hpclaunch-*")]


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.xz", "zip"])
def test_an_archive_is_unpacked(work, disk, suffix):
    """The files of an archive are on the disk, in the folder that was given or as they are in it."""
    if suffix == "zip":
        if not shutil.which("unzip"):
            program(disk.parent / "bin" / "unzip", f'exec {shlex.quote(sys.executable)} -m zipfile -e "$2" "$4"')
        with zipfile.ZipFile("data.zip", "w") as archive:
            archive.write("data/below/b")
    else:
        subprocess.run(["/bin/tar", "-caf", f"data.{suffix}", "data/below/b"], check=True)
    stage = ("--stage-in", f"data.{suffix}", "--stage-in", f"data.{suffix}:in/side")
    folder = run(*stage, "--", sys.executable, "train.py")
    assert (folder / "rank-3.log").read_text().split()[:2] == ["data/below/b", "in/side/data/below/b"]


def test_by_default_results_come_to_the_run_folder(disk):
    """A file that a node has not got is no mistake."""
    write = '((RANK)) || echo done >"$HPCLAUNCH_LOCAL/result.txt"'
    folder = run("--stage-out", "result.txt", "--", "bash", "-c", write)
    assert (folder / "result.txt").read_text() == "done\n"


@pytest.mark.parametrize("launcher", ["tasks", slow("torchrun")])
@pytest.mark.parametrize("ends", ["by a signal", "as a rank fails"])
def test_results_come_back_however_the_job_ends(disk, launcher, ends):
    """What was saved until a TERM, or after it, and what there is when a rank fails, is brought back."""
    save = """
        trap 'echo saved >"$HPCLAUNCH_LOCAL/out/$RANK"; exit' TERM
        mkdir -p "$HPCLAUNCH_LOCAL/out"; echo begun >"$HPCLAUNCH_LOCAL/out/$RANK"
        touch "$HPCLAUNCH_RUN_DIR/begun-$RANK"
        while :; do ((RANK != FAILS)) || [[ ! -e $HPCLAUNCH_RUN_DIR/all-begun ]] || exit 7; sleep 0.2; done"""
    fails = "3" if ends == "as a rank fails" else "9"
    words = (
        "--nodes",
        2,
        "--tasks-per-node",
        2,
        "--launcher",
        launcher,
        "--env",
        f"FAILS={fails}",
        "--stage-out",
        "out:back",
    )
    process = start("run", *words, "--", "bash", "-c", save)
    wait_until(lambda: len([*Path().glob("hpclaunch-runs/*/begun-*")]) == 4, 60)
    next(Path("hpclaunch-runs").iterdir()).joinpath("all-begun").touch()
    if fails == "9":
        process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == (7 if fails == "3" else 143), stdout + stderr
    expected = {str(rank): "begun\n" if str(rank) == fails else "saved\n" for rank in range(4)}
    assert {path.name: path.read_text() for path in Path("back").iterdir()} == expected
    wait_until(lambda: not processes_with(str(disk)))


def test_what_is_not_there_ends_the_job_with_a_sentence(disk):
    """The job says which file could not be copied to which node, and why."""
    process = start("run", "--stage-in", "$NOWHERE/data", "--", "true")
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "first failure: the copy of /data to node 0 (" in stdout
    assert "cannot stat '/data': No such file or directory" in stdout


def test_a_disk_that_takes_no_folder_ends_the_job_with_a_sentence(disk):
    """The job says which folder cannot be made on which node, and why."""
    disk.rmdir()
    disk.touch()
    process = start("run", "--stage-out", "results", "--", "true")
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "first failure: node 0 (" in stdout
    assert f"which cannot make {disk}/hpclaunch-" in stdout and ": Not a directory, exit code 1" in stdout
