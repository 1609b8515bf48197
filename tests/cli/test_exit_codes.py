"""docs/exit-codes.md: each code is provoked for real, and there are no others."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import program, start

TABLE = Path(__file__).parents[2] / "docs" / "exit-codes.md"
LOCAL = ("--site", "local", "--quiet")
HANG = "import time; print(1, flush=True); time.sleep(60)"

# The commands that end with each code; those for a signal and a closed pipe have a test of their own.
CASES = {
    "0": [("check", "-s", "gadi", "-A", "ab12", "--", "true"), ("submit", *LOCAL, "--wait", "--", "true"), ("jobs",)],
    "1": [
        ("render", "--site", "gady"), ("check", "--site", "gadi", "-A", "ab12", "-t", "99h", "--", "true"),
        ("compare", "-s", "gadi", "-A", "ab12", "-t", "99h", "--", "true"), ("status",), ("logs", "123"),
        ("site", "check", "none.yaml"), ("submit", *LOCAL, "--wait", "--", "false"),
    ],
    "2": [("rednder",), ("render", "--ndoes", "2"), ("render", "--nodes", "two"), ("logs", "--grep", "(")],
    "3": [("submit", "--site", "slurm", "--quiet", "--", "true"), ("doctor", "--site", "slurm", "--", "true")],
    "75": [("submit", *LOCAL, "--wait", "--", "sh", "-c", "exit 75")],
    "124": [("run", "--quiet", "--hang-after", "3s", "--", sys.executable, "-c", HANG)],
    "130": [],
    "141": [],
    "143": [("submit", *LOCAL, "--wait", "--", "sh", "-c", "kill $$")],
    "other": [("submit", *LOCAL, "--wait", "--", "sh", "-c", "exit 9"), ("run", "--quiet", "--", "sh", "-c", "exit 9")],
}  # fmt: skip


@pytest.fixture(autouse=True)
def cluster_out_of_reach(work, tmp_path, monkeypatch):
    """A scheduler whose commands fail, and no jobs yet."""
    for name in ("sbatch", "squeue", "scontrol", "scancel", "sacct"):
        program(tmp_path / "bin" / name, "echo 'unable to contact slurm controller' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_the_table_is_whole():
    """Each code of the table has a case here."""
    assert re.findall(r"^\| (\w+) +\|", TABLE.read_text(), re.MULTILINE)[1:] == [*CASES]


@pytest.mark.job
@pytest.mark.parametrize(
    ("code", "words"), [pytest.param(code, words, id=f"{code}-{words[0]}") for code in CASES for words in CASES[code]]
)
def test_a_code_means_what_the_table_says(code, words):
    """The command of each case ends with its code."""
    process = start(*words)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == (9 if code == "other" else int(code)), stdout + stderr
    assert "Traceback" not in stderr


@pytest.mark.job
def test_ctrl_c_and_a_closed_pipe():
    """Ctrl-C ends with 130 whatever the command does, without a word of Python's; a closed pipe with 141."""
    job = start("submit", *LOCAL, "--", "sleep", "30").communicate(timeout=20)[0].strip()
    for words in (("wait",), ("logs", "-f"), ("logs", "-f", job)):
        process = start(*words)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)
        process.send_signal(signal.SIGINT)
        stderr = process.communicate(timeout=20)[1]
        assert (process.returncode, "goes on" in stderr, "Abort" in stderr) == (130, True, False)
    start("cancel").communicate(timeout=20)
    listing = start("site", "show", "gadi")
    assert listing.stdout
    listing.stdout.close()
    listing.wait(20)
    assert listing.returncode == 141


@pytest.mark.parametrize("words", [("jobs",), ("site", "list"), ("run", *LOCAL, "--", "true")])
@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_command_whose_output_is_closed_does_its_work(words, closed):
    """Without stdout or stderr a command ends as with them."""
    command = ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-m", "hpclaunch", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
