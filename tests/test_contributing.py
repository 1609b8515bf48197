"""The walks of CONTRIBUTING.md, followed literally in a copy of the package; that of schedulers has its own test."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def blocks(heading: str) -> list[str]:
    """Return the code blocks below a heading."""
    (part,) = re.findall(rf"^## {heading}\n(.*?)(?=^## )", TEXT, re.DOTALL | re.MULTILINE)
    return re.findall(r"^```\w+\n(.*?)^```", part, re.DOTALL | re.MULTILINE)


@pytest.fixture
def checkout(tmp_path):
    """Copy what the walks change, and return the copy and a way to call its command."""
    copy = tmp_path / "copy"
    for folder in ("hpclaunch", "templates", "site_profiles"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    environment = os.environ | {"PYTHONPATH": str(copy)}

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hpclaunch", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    return copy, call


def insert(file: Path, after: str, text: str) -> None:
    """Put a text behind the first place where `after` stands."""
    whole = file.read_text()
    assert after in whole
    file.write_text(whole.replace(after, after + text, 1))


def test_a_site(cli, work):
    """The smallest profile checks and renders."""
    (profile,) = blocks("Add a site")
    (work / "small.yaml").write_text(profile)
    assert cli("site", "check", "small.yaml").exit_code == 0
    script = cli("render", "--site", "./small.yaml", "--nodes", "2", "--", "true").stdout
    assert "#SBATCH --partition=gpu\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gres=gpu:4\n" in script


def test_a_directive(cli, work):
    """A template of one's own adds a line to a shipped one."""
    (template,) = blocks("Add a directive")
    (work / "templates").mkdir()
    (work / "templates" / "gadi.sh.j2").write_text(template)
    script = cli("render", "--site", "gadi", "-A", "ab12", "--", "true").stdout
    assert "#PBS -l wd\n#PBS -l software=matlab\n#PBS -l walltime=" in script


def test_a_key_and_its_check(checkout, work):
    """A new key refuses what exceeds it, in requests and in scripts of other people, with the profile's line."""
    copy, call = checkout
    key, function, row = blocks("Add a key and its check")
    insert(
        copy / "hpclaunch/profile/model.py",
        "    aliases: list[Word] = []  # Other names for it.\n",
        key,
    )
    file = copy / "hpclaunch/job/checks/sizes.py"
    file.write_text(f"{file.read_text()}\n\n{function}")
    insert(copy / "hpclaunch/job/checks/__init__.py", "CHECKS: dict[str, Check] = {\n", row)
    (work / "own.yaml").write_text(blocks("Add a site")[0] + "    max_ranks: 16\n")
    refused = call("render", "--site", "./own.yaml", "--nodes", "5", "--", "true")
    message = "hpclaunch: max-ranks: 20 ranks exceed gpu's limit of 16; use --nodes 4 [./own.yaml:8]\n"
    assert refused.returncode == 1 and message in refused.stderr
    assert call("render", "--site", "./own.yaml", "--nodes", "4", "--", "true").returncode == 0
    asked = "-p gpu --nodes=5 --ntasks-per-node=4 --gres=gpu:4 -c 16"
    (work / "job.sh").write_text(f"#!/bin/bash\n#SBATCH {asked}\n#SBATCH -t 1:00:00\nsrun hostname\n")
    checked = call("check", "--script", "job.sh", "--site", "./own.yaml").stdout
    assert "job.sh:2: error: max-ranks: 20 ranks exceed gpu's limit of 16; use --nodes=4" in checked


def test_a_launcher(checkout):
    """A new launcher starts the ranks."""
    copy, call = checkout
    (template,) = blocks("Add a launcher")
    (copy / "templates/launch/nice.sh.j2").write_text(template)
    insert(copy / "hpclaunch/profile/types.py", 'Launcher = Literal["tasks", ', '"nice", ')
    words = ("run", "--quiet", "--nodes", "2", "--launcher", "nice", "--", "sh", "-c", "echo $RANK has $(nice)")
    done = call(*words)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"^\[\d\] (.*)$", done.stdout, re.MULTILINE)) == ["0 has 10", "1 has 10"]


def test_a_workload(checkout):
    """A new workload is listed and runs."""
    copy, call = checkout
    (program,) = blocks("Add a workload")
    (copy / "hpclaunch/workloads/hello.py").write_text(program)
    file = copy / "hpclaunch/paths.py"
    file.write_text(file.read_text().replace('for name in ("mnist", ', 'for name in ("hello", "mnist", '))
    assert "hello      Print the rank of each process." in call("workload", "list").stdout
    done = call("run", "--quiet", "--workload", "hello")
    assert "[0] hello from rank 0 of 1" in done.stdout
