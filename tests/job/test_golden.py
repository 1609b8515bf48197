"""The scripts that each site gets, byte for byte; `make golden` writes them anew, and somebody reads the diff."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from hpclaunch.profile.model import LAUNCHERS

GOLDEN = Path(__file__).parents[1] / "golden"
ACCOUNTS = {
    ("gadi", "normal"): "ab12",
    ("gadi", "gpuvolta"): "ab12",
    ("gadi", "dgxa100"): "ab12",
    ("gadi", "gpuhopper"): "ab12",
    ("gadi", "copyq"): "ab12",
    ("jean-zay", "v100"): "abc@v100",
    ("jean-zay", "gpu_p2"): "abc@v100",
    ("jean-zay", "a100"): "abc@a100",
    ("jean-zay", "h100"): "abc@h100",
    ("jean-zay", "cpu_p1"): "abc@cpu",
    ("local", "here"): None,
}
CASES = [
    (site, partition, nodes, launcher)
    for site, partition in ACCOUNTS
    for nodes in (1, 2)
    for launcher in LAUNCHERS
    if partition != "copyq" or (nodes, launcher) == (1, "tasks")
]


@pytest.mark.parametrize(("site", "partition", "nodes", "launcher"), CASES)
def test_script_is_as_reviewed(cli, request, site, partition, nodes, launcher):
    """A person gets the very script that was reviewed."""
    words = ["--site", site, "-p", partition, "--nodes", str(nodes), "--launcher", launcher, "--quiet"]
    account = ACCOUNTS[site, partition]
    words += ["--account", account] if account else ["--tasks-per-node", "2"]
    result = cli("render", *words, "--", "python", "train.py", "--epochs", "3")
    assert result.exit_code == 0, result.stderr
    golden = GOLDEN / f"{site}-{partition}-{nodes}-{launcher}.sh"
    if request.config.getoption("--update-golden"):
        golden.write_text(result.stdout)
    assert result.stdout == golden.read_text()


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("*.sh")), ids=lambda path: path.stem)
def test_script_is_sound_shell(golden):
    """Each script is bash without a mistake, and its directives precede the first command."""
    checked = subprocess.run(["bash", "-n", golden], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    lines = golden.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.strip() and not line.startswith("#"))
    directives = [i for i, line in enumerate(lines) if re.match("#(PBS|SBATCH|LOCAL) ", line)]
    assert all(i < first for i in directives)
    assert bool(directives) != golden.stem.startswith("local")


def test_no_golden_is_left_over():
    """Every golden script belongs to a case."""
    assert {path.stem for path in GOLDEN.glob("*.sh")} == {f"{s}-{p}-{n}-{launcher}" for s, p, n, launcher in CASES}
