"""Values that nobody else may read: in files of their owner alone, in no comment, in no list, or never written."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from conftest import call, start, submit

SECRET = "k3y-0f-mine"  # noqa: S105
GADI = ("render", "--site", "gadi", "-A", "ab12", "--quiet")
PRINT = ("--", "bash", "-c", 'echo "key=$WANDB_API_KEY"')


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("there", ["nothing", "a readable file", "a link"])
def test_a_script_with_a_value_of_the_command_line_is_its_owners_alone(cli, work, there):
    """With --env NAME=VALUE the file of -o has mode 0600 whatever was there; without one nothing changes."""
    os.umask(0o022)
    if there == "a link":
        (work / "job.sh").symlink_to("real.sh")
    if there != "nothing":
        (work / "job.sh").write_text("#!/bin/bash\n# Made by hpclaunch, old\n")
    assert cli(*GADI, "-o", "job.sh", "--env", "A=b", "--", "true").exit_code == 0
    assert "export A=b" in (work / "job.sh").read_text()
    assert mode(work / "job.sh") == 0o600
    assert (work / "job.sh").is_symlink() == (there == "a link")
    (work / "hpclaunch.yaml").write_text("env: {A: b}\n")
    assert cli(*GADI, "-o", "other.sh", "--", "true").exit_code == 0
    assert mode(work / "other.sh") == 0o644
    assert cli(*GADI, "-o", "/dev/null", "--env", "A=b", "--", "true").exit_code == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("name", ["WANDB_API_KEY", "hf_token", "MY_SECRET", "PGPASSWORD", "AWS_CREDENTIALS"])
def test_a_secret_stands_in_the_script_once(cli, name):
    """The script needs the value; its comment names the variable alone, and other values stay as they are."""
    script = cli(*GADI, "--env", f"{name}={SECRET}", "--env", "A=b", "--", "true").stdout
    assert script.count(SECRET) == 1
    assert f"export {name}={SECRET}" in script
    assert f"--env {name} --env A=b -- true" in script


@pytest.mark.parametrize(
    "words",
    [
        ("render", "--explain"),
        ("render", "--explain", "--json"),
        ("check",),
        ("check", "--json"),
        ("compare", "--diff", "--json"),
        ("compare", "--diff", "-p", "gpuvolta", "-p", "normal"),
    ],
)
def test_no_list_and_no_report_has_a_secret(cli, words):
    """What explains, checks and compares says of a secret that it is hidden, at most."""
    result = cli(*words, "--site", "gadi", "-A", "ab12", "--env", f"WANDB_API_KEY={SECRET}", "--", "true")
    assert result.exit_code == 0
    assert SECRET not in result.output
    refused = cli(*words, "--site", "gadi", "-A", "ab12", "--env", f"DB_PASSWORD=<{SECRET}>", "--", "true")
    assert "--env DB_PASSWORD '(hidden)': a part of it is left from an example" in " ".join(refused.output.split())
    assert SECRET not in refused.output


def test_run_folder_and_registry_keep_no_secret_but_the_script_does(work, monkeypatch, tmp_path):
    """After a submission the value is in job.sh, mode 0600, and nowhere else in run folder and registry."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    os.umask(0o022)
    job = submit("--site", "local", "--wait", "--env", f"WANDB_API_KEY={SECRET}", "--", "true")
    files = [path for folder in (work, tmp_path / "state") for path in folder.rglob("*") if path.is_file()]
    holders = [path for path in files if SECRET in path.read_text()]
    assert [path.name for path in holders] == ["job.sh"]
    assert mode(holders[0]) == 0o600
    assert json.loads((work / "hpclaunch-runs" / job / "plan.json").read_text())["request"]["env"] == {
        "WANDB_API_KEY": "(hidden)"
    }
    assert SECRET not in call("jobs", "--json")


def test_a_name_alone_is_passed_on_and_never_written(cli, work, monkeypatch, tmp_path):
    """--env NAME gives the job the value of where it is submitted; no file has it; unset, nothing is submitted."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    words = ("submit", "--site", "local", "--quiet", "--wait", "--env", "WANDB_API_KEY", *PRINT)
    process = start(*words)
    assert process.communicate(timeout=30) == (
        "",
        "hpclaunch: --env WANDB_API_KEY: not set here; export WANDB_API_KEY first, or give --env WANDB_API_KEY=VALUE\n",
    )
    assert process.returncode == 1 and not (work / "hpclaunch-runs").exists()
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    job = call(*words).strip()
    folder = work / "hpclaunch-runs" / job
    assert (folder / "rank-0.log").read_text() == f"key={SECRET}\n"
    assert {path.name for path in folder.iterdir() if SECRET in path.read_text()} == {"job.out", "rank-0.log"}


def test_run_passes_a_name_on_or_says_that_it_is_missing(monkeypatch):
    """`run` has the value of its own environment, and starts nothing without one."""
    process = start("run", "--quiet", "--env", "WANDB_API_KEY", *PRINT)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode
    assert "WANDB_API_KEY: must come from where the job is submitted" in stderr
    assert "key=" not in stdout
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    assert f"[0] key={SECRET}\n" in call("run", "--quiet", "--env", "WANDB_API_KEY", *PRINT)


def test_config_and_environment_can_name_what_is_passed_on(cli, work, monkeypatch):
    """`pass_env` in hpclaunch.yaml and HPCLAUNCH_ENV=NAME do as the option does."""
    expected = cli(*GADI, "--env", "A_KEY", "--", "true").stdout
    assert "\n#PBS -v A_KEY\n" in expected
    assert "<- --env A_KEY (command line)" in cli(*GADI, "--explain", "--env", "A_KEY", "--", "true").stdout
    monkeypatch.setenv("HPCLAUNCH_ENV", "A_KEY")
    assert cli(*GADI, "--", "true").stdout == expected
    monkeypatch.delenv("HPCLAUNCH_ENV")
    (work / "hpclaunch.yaml").write_text("pass_env: [A_KEY]\nenv: {B: c}\n")
    script = cli(*GADI, "--", "true").stdout
    assert "#PBS -v A_KEY\n" in script and "export B=c\n" in script
    assert "--env: expected a variable's name (it says 'A-KEY')" in cli(*GADI, "--env", "A-KEY", "--", "true").stderr


@pytest.mark.slow
@pytest.mark.parametrize("site", ["gadi-here", "gadi-no-qsub"])
def test_pbs_carries_a_name_to_every_node_and_attempt(qsub, work, monkeypatch, site):
    """On PBS each rank of each attempt has the value, also where all attempts are submitted together."""
    qsub()
    code = (
        'echo "key=$WANDB_API_KEY"; [[ -e $HPCLAUNCH_RUN_DIR/been ]] && exit; touch "$HPCLAUNCH_RUN_DIR/been"; exit 75'
    )
    sizes = "--tasks-per-node 1 --gpus-per-node 1 -t 10m --max-attempts 2"
    words = ("submit", "--site", site, *sizes.split(), "--env", "WANDB_API_KEY")
    process = start(*words, "--", "true")
    assert "--env WANDB_API_KEY: not set here" in process.communicate(timeout=30)[1]
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    job = call(*words, "--quiet", "--wait", "--", "bash", "-c", code).strip()
    folder = work / "hpclaunch-runs" / job
    assert (folder / "rank-0.log").read_text().count(f"key={SECRET}\n") == 2
    assert SECRET not in (folder / "job.sh").read_text()


@pytest.mark.slow
def test_slurm_carries_a_name_to_every_rank(slurm, work, monkeypatch):
    """On a real Slurm each rank on each node has the value, and the script does not."""
    words = ("submit", "--quiet", "--wait", "--nodes", "2", "--tasks-per-node", "1", "--gpus-per-node", "1")
    words = (*words, "--env", "WANDB_API_KEY", *PRINT)
    process = start(*words)
    assert "--env WANDB_API_KEY: not set here" in process.communicate(timeout=30)[1]
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    folder = work / "hpclaunch-runs" / call(*words, seconds=120).strip()
    assert [path.read_text() for path in folder.glob("rank-*.log")] == [f"key={SECRET}\n"] * 2
    assert SECRET not in (folder / "job.sh").read_text()
