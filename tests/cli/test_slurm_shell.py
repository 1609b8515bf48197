"""`hpclaunch shell` on a real Slurm."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time

import pytest
from conftest import wait_until
from test_shell import PROMPT, Terminal, home_with

pytestmark = pytest.mark.usefixtures("slurm")


def queue() -> str:
    """Return the user's jobs."""
    return subprocess.run(["squeue", "--me", "--noheader"], capture_output=True, text=True, check=True).stdout


def test_a_shell_of_a_slurm_job(work):
    """The salloc gets the directives, the shell on the first node the environment, and launch both nodes."""
    home_with(PROMPT)
    shell = Terminal("shell", "--nodes", 2, "--tasks-per-node", 2, "--env", "COLOUR=dark blue", "--yes")
    shell.wait_for("at most .* GPU-hours")
    shell.wait_for(r"salloc: Granted job allocation \d+")
    shell.type('echo "<$COLOUR> <$SLURM_JOB_NUM_NODES> <$SLURMD_NODENAME> <$SLURM_JOB_NAME>"; pwd')
    shell.wait_for("<dark blue> <2> <r6i4n0> <shell>")
    shell.wait_for(str(work))
    program = """'import os; print(os.environ["RANK"], os.environ["SLURMD_NODENAME"], os.environ["COLOUR"])'"""
    shell.type(f"hpclaunch launch -- {shlex.quote(sys.executable)} -c {program}")
    shell.wait_for("world size 4", 60)
    shell.type("cat hpclaunch-runs/*-1/rank-?.log")
    shell.wait_for("0 r6i4n0 dark blue\r\n1 r6i4n0 dark blue\r\n2 r6i4n1 dark blue\r\n3 r6i4n1 dark blue")
    shell.type("exit 7")
    assert shell.code() == 7
    wait_until(lambda: not queue())


def test_the_terminal_is_the_shells(work):
    """Ctrl-C ends the program in the shell and not the job, which ends with the terminal."""
    home_with(PROMPT)
    shell = Terminal("shell", "--quiet", "--yes")
    shell.type("sleep 100")
    shell.wait_for("sleep 100")
    time.sleep(2)
    os.write(shell.file, b"\x03")
    shell.type("echo interrupted: $?")
    shell.wait_for("interrupted: 130")
    assert queue()
    os.close(shell.file)
    wait_until(lambda: not queue())
