"""The console blocks of the README and of the pages in docs/ are run, and print what they say."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    {*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")} - {ROOT / "docs/remote.md"}
)  # tests/runs/test_remote.py has it
BLOCKS = {
    f"{page.name}-{number}": block
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```console\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
}


# Those that run a job's script or import torch take seconds.
SLOW = "run|rerun|submit|wait|doctor"
CASES = [
    pytest.param(block, id=name, marks=[pytest.mark.train] if re.search(f"hpclaunch ({SLOW})", block) else [])
    for name, block in BLOCKS.items()
]


@pytest.mark.parametrize("block", CASES)
def test_a_page_tells_what_happens(block, work, request):
    """Each command that a page shows prints what the page shows; ... stands for what differs."""
    if "scaling.svg" in block:
        request.getfixturevalue("plots")
    if "train.py\nhpclaunch: keep" not in block:
        (work / "train.py").touch()  # the reader's own
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}
    environment.pop("XDG_CONFIG_HOME")  # the pages say ~/.config
    for text in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = text.partition("\n")
        run = subprocess.run(
            ["bash", "-c", command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        # bash 5.2 warns now and then, on a busy machine, of a process that has ended already.
        printed = re.sub(r"^.*: wait_for: No record of process \d+\n", "", run.stdout, flags=re.MULTILINE)
        same = doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)
        assert same, f"$ {command}\n{run.stdout}\nbut the page says\n{expected}"
