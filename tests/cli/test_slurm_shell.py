"""`hpclaunch shell` on a real Slurm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import wait_until
from test_shell import PROMPT, Terminal, home_with


def test_a_shell_of_a_slurm_job(slurm, work, monkeypatch):
    """The salloc gets the directives, the shell on the first node the environment, and launch both nodes."""
    home_with(PROMPT)
    shell = Terminal("shell", "--nodes", 2, "--tasks-per-node", 2, "--env", "COLOUR=dark blue", "--yes")
    shell.wait_for("at most .* GPU-hours")
    shell.wait_for(r"salloc: Granted job allocation (\d+)")
    shell.type('echo "<$COLOUR> <$SLURM_JOB_NUM_NODES> <$SLURMD_NODENAME> <$SLURM_JOB_NAME>"; pwd')
    shell.wait_for("<dark blue> <2> <r6i4n0> <shell>")
    shell.wait_for(str(work))
    program = """'import os; print(os.environ["RANK"], os.environ["SLURMD_NODENAME"], os.environ["COLOUR"])'"""
    shell.type(f"hpclaunch launch -- {sys.executable} -c {program}")
    shell.wait_for("world size 4", 60)
    shell.type("cat hpclaunch-runs/*-1/rank-?.log")
    shell.wait_for("0 r6i4n0 dark blue\r\n1 r6i4n0 dark blue\r\n2 r6i4n1 dark blue\r\n3 r6i4n1 dark blue")
    shell.type("exit 7")
    assert shell.code() == 7
    left = subprocess.run(["squeue", "--me", "--noheader"], capture_output=True, text=True, check=True)
    wait_until(lambda: not left.stdout)


def test_ctrl_c_in_the_shell_ends_only_the_command(slurm, work):
    """Ctrl-C reaches the program that runs in the shell; a closed terminal ends the job."""
    home_with(PROMPT)
    shell = Terminal("shell", "--quiet", "--yes")
    shell.type("sleep 100; echo interrupted: $?")
    shell.wait_for("sleep 100")
    wait_until(lambda: "sleep\0100" in " ".join(p.read_text() for p in Path("/proc").glob("[0-9]*/cmdline")))
