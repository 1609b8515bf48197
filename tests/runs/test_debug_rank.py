"""`hpclaunch run --debug-rank`: one rank has the terminal, tried with a real one."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import time

import pytest
from conftest import processes_with, slow, wait_until

FOUR = ("--tasks-per-node", "4")
# Each rank waits for the others, as in a collective; rank 1 stops at a breakpoint first.
PROGRAM = """
import os, pathlib, sys, time
folder, rank = pathlib.Path(os.environ["HPCLAUNCH_RUN_DIR"]), os.environ["RANK"]
x = 41 + int(rank)
if rank == "1":
    breakpoint()
(folder / f"there-{rank}").touch()
while len([*folder.glob("there-*")]) < 4:
    time.sleep(0.1)
sys.exit(CODE if rank == "1" else 0)
"""


class Terminal:
    """A terminal with `hpclaunch run` in it, as a user has it: keys go in, what is shown comes out."""

    def __init__(self, *words: str) -> None:
        self.shown = ""
        self.master, slave = pty.openpty()
        self.slave = os.ttyname(slave)
        self.modes = termios.tcgetattr(slave)
        command = ["setsid", "--ctty", "--wait", sys.executable, "-m", "hpclaunch", "run", "--quiet", *words]
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave)
        self.keeps = slave

    def wait_for(self, text: str, seconds: float = 60) -> None:
        """Read until `text` is shown, behind what was waited for before."""
        end = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < end, f"{text!r} is not in {self.shown!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.shown += os.read(self.master, 4096).decode()
        self.shown = self.shown.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def end(self, seconds: float = 60) -> int:
        """Return the exit code; the terminal must be as it was, and no process left."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, self.shown
            if select.select([self.master], [], [], 0.1)[0]:
                self.shown += os.read(self.master, 4096).decode()
        assert termios.tcgetattr(self.keeps) == self.modes
        os.close(self.keeps)
        os.close(self.master)
        return self.process.returncode


@pytest.fixture
def terminal(work):
    opened = []

    def start(*words: str) -> Terminal:
        opened.append(Terminal(*words))
        return opened[0]

    yield start
    for one in opened:
        one.process.kill()
        one.process.wait()
    wait_until(lambda: processes_with(str(work)) == [], 10)


@pytest.mark.parametrize("code", [0, 7])
@pytest.mark.parametrize("launcher", ["tasks", slow("torchrun"), slow("mpirun")])
def test_a_breakpoint_of_one_rank_takes_commands(terminal, work, launcher, code, monkeypatch):
    """`p x` at the breakpoint of rank 1 shows its value, `c` goes on with the others, and the exit code comes back."""
    if launcher == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("Open MPI is not installed: no mpirun on PATH")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    (work / "train.py").write_text(PROGRAM.replace("CODE", str(code)))
    shell = terminal(*FOUR, "--launcher", launcher, "--debug-rank", "1", "--", sys.executable, "train.py")
    shell.wait_for("(Pdb) ")
    shell.type("p x * 100\r")
    shell.wait_for("4200")
    shell.wait_for("(Pdb) ")
    shell.type("c\r")
    assert shell.end() == code


def test_lightning_gives_the_terminal_to_the_process_of_a_node(terminal, work):
    """With the lightning launcher it is the one process that is started on the node, here the second node's."""
    (work / "train.py").write_text("import os\nprint(f\"node {os.environ['NODE_RANK']} {input('name? ')}\")\n")
    words = ("--nodes", "2", "--tasks-per-node", "2", "--launcher", "lightning", "--debug-rank", "2")
    shell = terminal(*words, "--", "sh", "-c", 'test "$NODE_RANK" = 0 || exec "$@"', "sh", sys.executable, "train.py")
    shell.wait_for("name? ")
    shell.type("Ada\r")
    shell.wait_for("node 1 Ada")
    assert shell.end() == 0


def test_ctrl_c_interrupts_the_rank_and_then_the_run(terminal, work):
    """Ctrl-C is a KeyboardInterrupt of the rank that has the terminal, the others are not interrupted."""
    (work / "train.py").write_text(
        "import os, time\nrank = os.environ['RANK']\n"
        "try:\n    print('ready ' + rank); time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('stopped ' + rank); raise SystemExit(9)\n"
    )
    shell = terminal(*FOUR, "--debug-rank", "2", "--", sys.executable, "train.py")
    shell.wait_for("ready 2")
    shell.type("\x03")
    shell.wait_for("stopped 2")
    assert shell.end() == 9


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_and_the_terminal_is_as_before(terminal, work, number):
    """A run that is terminated ends its ranks and leaves the terminal's modes as they were."""
    code = "import os, time; input('ready? ') if os.environ['RANK'] == '0' else time.sleep(60)"
    shell = terminal(*FOUR, "--debug-rank", "0", "--", sys.executable, "-c", code)
    shell.wait_for("ready? ")
    shell.process.send_signal(number)
    assert shell.end() == 143


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("run", *FOUR, "--debug-rank", "4"), "--debug-rank 4: no such rank; use 0, 1, 2, 3"),
        (
            ("run", *FOUR, "--launcher", "lightning", "--debug-rank", "1"),
            "--debug-rank 1: no such rank; use 0 (lightning starts one process a node, which is its first rank)",
        ),
        (("run", *FOUR, "--debug-rank", "1"), "--debug-rank 1: stdin is not a terminal; run it in one"),
        (
            ("run", "--site", "gadi", "-A", "ab12", "--debug-rank", "1"),
            "--debug-rank 1: the job of gadi has no terminal; leave out --site",
        ),
        (("submit", "--debug-rank", "1"), "--debug-rank needs a terminal, which a job has not; use hpclaunch run"),
        (("render", "--debug-rank", "1"), "--debug-rank needs a terminal, which a job has not; use hpclaunch run"),
    ],
)
def test_where_no_rank_can_have_a_terminal_the_reason_is_given(cli, words, error):
    """A rank that is not there, no terminal, or a scheduler's job."""
    result = cli(*words, "--", "true")
    assert result.exit_code in (1, 2)
    assert error in result.stderr.replace("\n", " ")
