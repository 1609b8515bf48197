"""The files of a run folder: job scripts, Python and the docs name the same ones."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from hpclaunch import paths
from hpclaunch.schedulers import run_folder

DOCS = (Path(__file__).parents[2] / "docs" / "run-folder.md").read_text()
NAMES = {value.replace("{}", "N") for key, value in vars(run_folder).items() if key.isupper() and key != "RUNS"}
SITES = {"gadi": ["-A", "ab12"], "jean-zay": ["-A", "abc@v100"], "local": [], "pbs": [], "slurm": []}
# What follows the run folder in a script; a process's mark in HPCLAUNCH_NODE is no file.
USED = re.compile(r'(?<!NODE=)(?<!mark=)\$HPCLAUNCH_RUN_DIR"?/((?:\$?\{[^}]*\}|[\w.$*/-])+)')
NUMBER = re.compile(r"\$\{[^}]*\}|\$(?:\w+|\$)|\{\d+\.\.\d+\}|\*|\d+")


def used(script: str) -> set[str]:
    """Return the names of files below the run folder, with N for a number or a variable."""
    found: set[str] = set()
    for match in USED.finditer(script):
        name = NUMBER.sub("N", match[1]).rstrip("/")
        choice = re.fullmatch(r"\{(.*)\}", name)
        for each in choice[1].split(",") if choice else [name]:
            found |= {each, *each.split("/")} if "/" not in each else {*each.split("/")}
    return {name for name in found if not re.fullmatch(r"((rank-|node-)?N\.)?N|N\.(log|err)", name)}


@pytest.mark.parametrize("site", SITES)
def test_scripts_use_only_files_that_python_names(cli, site):
    """Whatever the launcher, the nodes and the attempts, a script's files are those of the module."""
    found = set()
    for launcher, nodes, attempts in product(["tasks", "torchrun", "lightning", "mpirun"], "12", "13"):
        words = ["--launcher", launcher, "--nodes", nodes, *(["--max-attempts", attempts] if site != "local" else [])]
        words += ["--hang-after", "1m"] if attempts == "3" else []
        result = cli("render", "--site", site, *SITES[site], *words, "--force", "attempts", "--", "true")
        assert result.exit_code == 0, result.stderr
        found |= used(result.stdout)
    assert {"failed", "rank-N.log"} <= found
    strange = {
        name
        for name in found
        if not any(known in (name, f"{name}N") or known.startswith(f"{name}.") for known in NAMES)
    }
    assert strange == set()


def test_the_process_of_a_run_here_uses_them_too():
    """What keeps a run on this machine writes and reads files of the module."""
    words = set(
        re.findall(
            r"(?<=[ />\"])(?:exit|started|job\.\w+)(?=[ \"\n])", (paths.shipped("templates") / "keeper.sh").read_text()
        )
    )
    assert words == {"exit", "started", "job.out", "job.sh"} <= NAMES


def test_the_docs_list_every_file():
    """The page for users has a row for each file, and none besides."""
    rows = DOCS.partition("## All files")[2]
    listed = [name for row in re.findall(r"^\| (`.*?) \|", rows, re.MULTILINE) for name in re.findall(r"`(.*?)`", row)]
    assert sorted(listed) == sorted(NAMES)
