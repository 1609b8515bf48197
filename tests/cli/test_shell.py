"""`hpclaunch shell`: a shell on the nodes of an interactive job, typed into as a user does."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import FIRST_ID

PROMPT = "ready-now> "


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *words: object, program: Sequence[str] = (sys.executable, "-m", "hpclaunch")) -> None:
        self.said = ""
        self.pid, self.file = pty.fork()
        if not self.pid:
            os.execvpe(program[0], [*program, *map(str, words)], os.environ)

    def wait_for(self, pattern: str, seconds: float = 30) -> re.Match[str]:
        """Return the first match in what the program prints from here on; fail if there is none in time."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.said)):
            assert time.monotonic() < end, self.said
            if select.select([self.file], [], [], 0.1)[0]:
                try:
                    self.said += os.read(self.file, 4096).decode(errors="replace")
                except OSError:  # so a terminal ends
                    assert re.search(pattern, self.said), self.said
        self.said = self.said[found.end() :]
        return found

    def type(self, line: str) -> None:
        """Type a line at the next prompt."""
        self.wait_for(re.escape(PROMPT), 60)
        os.write(self.file, f"{line}\n".encode())

    def code(self) -> int:
        """Return the exit code once the program has ended."""
        while True:
            try:
                self.said += os.read(self.file, 4096).decode(errors="replace")
            except OSError:
                return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def home_with(prompt: str) -> None:
    """Give the user a prompt, and the PATH of the test, that their login shells have too."""
    text = f"PATH={os.environ['PATH']!r}; PS1={prompt!r}; HISTFILE=\n"
    for name in (".bashrc", ".bash_profile"):
        (Path.home() / name).write_text(text)


def test_a_shell_on_this_machine(work):
    """Without a scheduler it is a bash with the job's variables and setup; its exit code is the command's."""
    home_with(PROMPT)
    shell = Terminal("shell", "--site", "local", "--env", "COLOUR=dark blue", "--setup", "greeting=hello", "--quiet")
    shell.type('echo "<$COLOUR> <$greeting>"')
    shell.wait_for("<dark blue> <hello>")
    shell.type("hpclaunch --version")
    shell.wait_for("hpclaunch, version")
    shell.type("exit 7")
    assert shell.code() == 7


def test_an_environment_that_fails_is_no_shell(work):
    """A line of the environment that fails ends the shell with its message, and says so."""
    home_with(PROMPT)
    shell = Terminal("shell", "--site", "local", "--venv", "/no/such", "--quiet")
    shell.wait_for("hpclaunch: the environment ended the shell")
    assert shell.code() == 1


@pytest.mark.job
def test_a_shell_of_a_pbs_job(qsub, work):
    """PBS gets the script's directives; its shell has the environment, and launch starts ranks on both nodes."""
    qsub()
    home_with(PROMPT)
    words = ("-q", "normal", "--nodes", 2, "--tasks-per-node", 1, "-t", "5m")
    shell = Terminal("shell", "--site", "pbs-here", *words, "--env", "COLOUR=dark blue", "--quiet")
    shell.wait_for(f"qsub: job {FIRST_ID}.gadi-pbs ready")
    shell.type('echo "<$COLOUR> <$PBS_ENVIRONMENT> <$(sort -u <"$PBS_NODEFILE" | wc -l)>"; pwd')
    shell.wait_for("<dark blue> <PBS_INTERACTIVE> <2>")
    shell.wait_for(re.escape(str(work)))
    program = """'import os; print(os.environ["RANK"], os.environ["COLOUR"])'"""
    shell.type(f"hpclaunch launch --launcher tasks --tasks-per-node 1 -- {shlex.quote(sys.executable)} -c {program}")
    shell.wait_for("world size 2", 60)
    shell.type(f"cat hpclaunch-runs/{FIRST_ID}.gadi-pbs-1/rank-?.log")
    shell.wait_for("0 dark blue\r\n1 dark blue")
    shell.type("exit")
    shell.wait_for(f"qsub: job {FIRST_ID}.gadi-pbs completed")
    assert shell.code() == 0


def test_what_cannot_be_is_refused(cli, work, monkeypatch):
    """The job's checks and price count as for submit; a COMMAND, and a shell inside a job, have another command."""
    too_long = cli("shell", "--site", "gadi", "-A", "ab12", "--nodes", "2", "-t", "99h")
    assert (too_long.exit_code, "walltime: 99:00:00 exceeds" in too_long.stderr) == (1, True)
    dear = cli("shell", "--site", "gadi", "-A", "ab12", "--nodes", "2", "--max-cost", "1")
    assert (dear.exit_code, "--max-cost" in dear.stderr) == (1, True)
    assert cli("shell", "--site", "local", "--", "true").exit_code == 2
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    inside = cli("shell", "--site", "gadi", "-A", "ab12")
    assert (inside.exit_code, "this is job 12 already; use hpclaunch launch" in inside.stderr) == (1, True)


def test_what_the_shell_reads_can_be_seen(cli, work):
    """--dry-run prints directives and environment, nothing of a launch."""
    shown = cli("shell", "--dry-run", "--site", "jean-zay", "-A", "abc@v100", "--nodes", "2").stdout
    assert "#SBATCH --nodes=2\n" in shown
    assert "module load pytorch-gpu/" in shown
    assert "srun" not in shown and "HPCLAUNCH_RUN_DIR" not in shown
