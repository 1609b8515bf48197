"""--container: each rank in an image, with stand-ins for the runtimes; see test_slurm_container.py for a real one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from conftest import program, slow, start, wait_until
from test_run import AS_ROOT, CONTRACT, REPORT, run_folder

pytestmark = pytest.mark.job

RUNTIMES = Path(__file__).parents[1] / "standin" / "runtimes.py"
TWO_BY_TWO = ("--nodes", 2, "--tasks-per-node", 2)


@pytest.fixture
def site(work, tmp_path, monkeypatch):
    """Write the profile `boxes` with a runtime and further keys of `container`, and an image for it."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name in ("apptainer", "singularity", "podman-hpc"):
        program(tmp_path / "bin" / name, f"#!/usr/bin/env python3\n{RUNTIMES.read_text()}")
    (work / "image.sif").write_bytes(bytes(200_000))

    def write(runtime: str, **keys: object) -> list[str]:
        (work / "site_profiles").mkdir(exist_ok=True)
        profile = {"extends": "local", "title": "Boxes", "container": {"runtime": runtime, **keys}}
        (work / "site_profiles" / "boxes.yaml").write_text(json.dumps(profile))
        return ["--site", "boxes", "--container", "image.sif"]

    return write


def run(*words: object, code: int = 0) -> str:
    process = start("run", *words, env=os.environ | AS_ROOT)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == code, stdout + stderr
    return stdout + stderr


@pytest.mark.parametrize(
    ("runtime", "launcher"),
    [("apptainer", "tasks"), ("apptainer", "mpirun"), ("singularity", "lightning"), ("podman-hpc", "tasks"),
     slow("apptainer", "torchrun"), slow("podman-hpc", "torchrun")],
)  # fmt: skip
def test_every_rank_runs_in_the_image(site, work, tmp_path, runtime, launcher):
    """The variables are those of a job without an image; working folder, run folder and binds are mounted."""
    if launcher == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("Open MPI is not installed: no mpirun on PATH")
    run(*site(runtime, binds=[f"{tmp_path}:/data"]), *TWO_BY_TWO, "--launcher", launcher, "--", "python", "-c", REPORT)
    logs = sorted(run_folder(work).glob("node-?.log" if launcher == "lightning" else "rank-?.log"))
    reports = [json.loads(log.read_text().splitlines()[-1]) for log in logs]
    if launcher != "lightning":
        assert [tuple(report[name] for name in CONTRACT) for report in reports] == [
            ("127.0.0.1", "4", str(rank // 2), str(rank), str(rank % 2), "2") for rank in range(4)
        ]
    box = json.loads(reports[-1]["IN_IMAGE"])
    assert (box["name"], box["image"], box["pwd"]) == (runtime, "image.sif", str(work))
    folders = [str(work), str(run_folder(work))]
    assert box["bind"] == [f"{tmp_path}:/data", *(f"{folder}:{folder}" for folder in folders)]


@pytest.mark.parametrize("launcher", ["tasks", slow("torchrun")])
def test_an_exit_code_and_a_log_come_back(site, work, launcher):
    """The job ends with the exit code of the program in the image, and says whose it was."""
    said = run(*site("apptainer"), *TWO_BY_TWO, "--launcher", launcher,
               "--", "bash", "-c", "((RANK != 3)) || { echo lost >&2; exit 7; }; sleep 60", code=7)  # fmt: skip
    assert "first failure: rank 3" in said
    assert (run_folder(work) / "rank-3.err").read_text() == "lost\n"


def test_a_term_reaches_the_program(site, work):
    """A program in an image may save at a TERM as any other."""
    wait = "trap 'echo saved; exit' TERM; echo ready; while :; do sleep 0.2; done"
    process = start("run", *site("apptainer"), *TWO_BY_TWO, "--", "bash", "-c", wait)

    def logs() -> list[str]:
        return [log.read_text() for log in work.glob("hpclaunch-runs/*/rank-?.log")]

    wait_until(lambda: [log == "ready\n" for log in logs()] == [True] * 4)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert logs() == ["ready\nsaved\n"] * 4


def test_ranks_on_pbs_nodes_run_in_the_image(cli, site, pbs, work):
    """The nodes of a PBS job, which inherit nothing, start their ranks in the image too; the first failure counts."""
    words = [*site("singularity"), "--account", "ab12", "--nodes", "2", "--tasks-per-node", "2", "--launcher", "tasks"]
    profile = {"extends": "gadi", "modules": [], "title": "Boxes", "container": {"runtime": "singularity"}}
    (work / "site_profiles" / "boxes.yaml").write_text(json.dumps(profile))
    others = 'until (($(cat "$HPCLAUNCH_RUN_DIR"/rank-?.log | wc -l) == 4)); do sleep 0.1; done'
    command = f"echo $RANK $WORLD_SIZE $NODE_RANK $IN_IMAGE; ((RANK != 3)) || {{ {others}; exit 7; }}; sleep 60"
    programs = f'export PATH="{work.parent}/bin:$PATH"'
    script = cli("render", *words, "--setup", programs, "--", "bash", "-c", command).stdout
    job = pbs(script, ["127.0.0.1", "127.0.0.2"])
    assert job.wait() == 7, job.output
    assert [log.split()[:3] for log in job.logs()] == [[str(rank), "4", str(rank // 2)] for rank in range(4)]
    assert all('"singularity"' in log for log in job.logs())


def test_a_bundled_workload_and_the_nodes_disk_are_seen(site, work, tmp_path):
    """The folder of bundled programs and $HPCLAUNCH_LOCAL are mounted, and python is the image's."""
    (work / "data").mkdir()
    run(*site("apptainer"), "--stage-in", "data", "--workload", "env")
    script = (run_folder(work) / "job.sh").read_text()
    assert '--bind="$HPCLAUNCH_LOCAL:$HPCLAUNCH_LOCAL"' in script and "command=(python " in script


@pytest.mark.parametrize(
    ("gpus", "keys", "option"),
    [({}, {}, "--nv"), ({"vendor": "amd"}, {}, "--rocm"), ({"vendor": "intel"}, {}, ""),
     ({}, {"gpu_option": "--nvccli"}, "--nvccli"), ({}, {"runtime": "podman-hpc"}, "--gpu")],
)  # fmt: skip
def test_an_image_gets_the_gpus(cli, work, gpus, keys, option):
    """The option that gives GPUs to an image is that of their vendor and of the runtime."""
    partition = {"gpus_per_node": 4, "cores_per_node": 8, **gpus}
    profile = {"title": "X", "scheduler": "slurm", "default_partition": "g", "partitions": {"g": partition},
               "container": {"modules": ["box/1"], **keys}, "modules": ["pytorch"]}  # fmt: skip
    Path("x.yaml").write_text(json.dumps(profile))
    script = cli("render", "--site", "./x.yaml", "--container", "docker://a/b:1", "--", "python", "t.py").stdout
    (line,) = (line.split() for line in script.splitlines() if re.match("    exec [a-z]", line))
    assert line[3] == (option or "--pwd") or line[4:6] == ["--env-host", "--network=host"]
    assert not option or option in line
    assert "module load box/1" in script and "module load pytorch" not in script


def test_pyxis_is_options_of_srun(cli, work):
    """With pyxis, which is a part of Slurm, the ranks start in the image; hpclaunch run rehearses without it."""
    Path("x.yaml").write_text(json.dumps({"extends": "slurm", "title": "X", "container": {"runtime": "pyxis"}}))
    words = ("--site", "./x.yaml", "--container", "nvcr.io#nvidia/pytorch:25.01-py3", "--", "python", "t.py")
    script = cli("render", *words).stdout
    assert "--container-image='nvcr.io#nvidia/pytorch:25.01-py3'" in script
    assert '--container-mounts="$PWD:$PWD","$HPCLAUNCH_RUN_DIR:$HPCLAUNCH_RUN_DIR" --container-workdir="$PWD"' in script
    run(*words[:4], "--", "true")
    refused = cli("render", "--launcher", "mpirun", *words)
    assert refused.exit_code == 1 and "pyxis starts containers by srun only" in refused.stderr
