"""Logs of a run: read, collapsed, followed while programs write them."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import time
import tracemalloc

import msgspec
import pytest

from hpclaunch import schedulers
from hpclaunch.errors import HpclaunchError
from hpclaunch.runs import logs, registry
from hpclaunch.runs.registry import Run

X = "\N{MULTIPLICATION SIGN}"


@pytest.fixture
def run(work):
    """A run of four ranks on two nodes."""
    folder = work / "hpclaunch-runs" / "12"
    folder.mkdir(parents=True)
    (folder / "job.sh").write_text('mkdir "$HPCLAUNCH_RUN_DIR"\n')
    return Run(
        id="12", site="s", scheduler="slurm", job_name="t", folder=str(folder), submitted=0, nodes=2, tasks_per_node=2
    )


def write(run: Run, rank: int | str, text: str | bytes) -> None:
    path = run.path / (f"rank-{rank}.log" if isinstance(rank, int) else f"{rank}.log")
    with path.open("ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def read(run: Run, rank: int | None = None) -> list[str]:
    return list(logs.read(run, rank))


def soon(seconds: float):
    """Answer as a scheduler does whose job ends so many seconds from now."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(logs, "ASK_SECONDS", 0.2)


def test_lines_collapse_in_the_order_of_first_sight(run):
    """Lines of several ranks become one, a line that a rank repeats stays two."""
    write(run, 0, "a\nb\na\n")
    write(run, 1, "a\nc\na\n")
    write(run, 2, "a\n")
    assert read(run) == [f"[{X}3] a", "[0] b", "[1] c", f"[{X}2] a"]


def test_logs_in_folders_by_node_are_found(run):
    """Logs of many ranks, which lie in a folder for each node, are read as those beside each other are."""
    for rank in range(4):
        folder = run.path / f"node-{rank // 2}"
        folder.mkdir(exist_ok=True)
        (folder / f"rank-{rank}.log").write_text(f"hello\nI am {rank}\n")
        (folder / f"rank-{rank}.err").write_text("oh\n")
    (run.path / "node-0.log").write_text("of the launcher\n")
    assert read(run) == [f"[{X}4] hello", *(f"[{rank}] I am {rank}" for rank in range(4)), f"[{X}4] oh"]
    assert read(run, 3) == ["hello", "I am 3", "oh"]


def test_read_collapses_drifting_ranks(run):
    """Rank 0's table of 70 lines and its loss after each step do not keep 500 steps of four ranks apart."""
    for rank in range(4):
        table = "".join(f"layer {n}\n" for n in range(70)) if rank == 0 else ""
        steps = "".join(f"step {n}\n" + (f"loss {n}\n" if rank == 0 else "") for n in range(500))
        write(run, rank, f"hello\n{table}{steps}")
    lines = read(run)
    assert lines[0] == f"[{X}4] hello"
    assert [line for line in lines if "step" in line] == [f"[{X}4] step {n}" for n in range(500)]
    assert [line for line in lines if "layer" in line] == [f"[0] layer {n}" for n in range(70)]
    assert len(lines) == 1 + 70 + 500 + 500


def test_ranks_that_differ_stand_side_by_side(run):
    """What each rank writes for itself is shown in turns, all of it, ranks in numerical order."""
    for rank in (10, 2):
        write(run, rank, f"loss {rank}.1\nloss {rank}.2\n")
    assert read(run) == ["[2] loss 2.1", "[10] loss 10.1", "[2] loss 2.2", "[10] loss 10.2"]


def test_one_rank_alone_has_no_labels(run):
    """--rank gives that rank's lines as they are, and an unknown rank is named."""
    write(run, 0, "zero\n")
    write(run, 1, "one\noh\n")
    assert read(run, 1) == ["one", "oh"]
    with pytest.raises(HpclaunchError, match=r"rank 9 wrote nothing there \(found: rank-0.log, rank-1.log"):
        read(run, 9)


def test_progress_bars_junk_and_cut_lines_are_readable(run):
    """Of a progress bar the last state is shown, bytes that are no text do no harm, the end needs no newline."""
    write(run, 0, b"\r 10%\r 99%\r100%\n\xff\xfe\x00junk\nwindows\r\n\n 1%\r 2%")
    assert read(run) == ["[0] 100%", "[0] \udcff\udcfe\0junk", "[0] windows", "[0] ", "[0]  2%"]


def test_long_lines_are_whole(run):
    """A line of a megabyte is one line, and so is a progress bar of a megabyte."""
    write(run, 0, b"x" * 1_000_000 + b"\n")
    assert read(run, 0) == ["x" * 1_000_000]
    write(run, 1, b"".join(b"\r%d of many" % n for n in range(100_000)) + b"\n")
    assert read(run, 1) == ["99999 of many"]


def test_nodes_then_the_job_speak_where_ranks_do_not(run):
    """Without logs of ranks those of the nodes are shown, without these the job's own output, else nothing."""
    assert read(run) == []
    (run.path.parent.parent / "train_12.out").write_text("module: not found\n")
    assert read(run) == ["[job] module: not found"]
    write(run, "node-0", "hello\n")
    write(run, "node-1", "hello\nbye\n")
    assert read(run) == [f"[{X}2] hello", "[node 1] bye"]
    write(run, 0, "rank\n")
    assert read(run) == ["[0] rank"]


def test_follow_shows_lines_as_a_program_writes_them(run):
    """A line is shown while its program still runs, whole, and the end without a newline is not lost."""
    code = (
        "import sys, time; file = open(sys.argv[1], 'w', 1); file.write('one\\nt'); file.flush(); time.sleep(2)\n"
        "file.write('wo\\n'); file.write('three')"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(run.path / "rank-0.log")])
    seen = [(line, process.poll()) for line in logs.read(run, None, lambda: process.poll() is not None)]
    assert seen[0] == ("[0] one", None)
    assert [line for line, _ in seen] == ["[0] one", "[0] two", "[0] three"]


@pytest.mark.slow
def test_follow_collapses_what_four_programs_write_at_about_the_same_time(run):
    """Ranks that write the same line within a poll of each other are collapsed, logs that appear late are found."""
    code = (
        "import sys, time; rank = int(sys.argv[1]); time.sleep(rank * 0.04)\n"
        "with open(f'rank-{rank}.log', 'w', 1) as file:\n"
        "    for n in range(4): file.write(f'step {n}\\n'); time.sleep(0.5)\n"
        "    file.write(f'I am {rank}\\n')"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, str(rank)], cwd=run.path) for rank in range(4)]
    lines = list(logs.read(run, None, lambda: all(process.poll() is not None for process in processes)))
    assert lines[:4] == [f"[{X}4] step {n}" for n in range(4)]
    assert sorted(lines[4:]) == [f"[{rank}] I am {rank}" for rank in range(4)]


@pytest.mark.slow
def test_follow_survives_logs_that_are_cut_replaced_and_gone(run):
    """A log that is emptied, put in place of another, or removed and written again is shown from its new start."""
    path = run.path / "rank-0.log"
    path.write_text("a long first line\n")
    lines = logs.read(run, 0, soon(3))
    assert next(lines) == "a long first line"
    path.write_text("cut\n")
    assert next(lines) == "cut"
    path.rename(run.path / "rank-0.log.1")
    path.write_text("in its place\n")
    assert next(lines) == "in its place"
    again = "rm rank-0.log; sleep 1; echo written again, and longer >rank-0.log"
    with subprocess.Popen(["sh", "-c", again], cwd=run.path):
        assert list(lines) == ["written again, and longer"]


def test_follow_of_a_job_that_wrote_nothing_ends(run):
    """A job that is cancelled while it waits ends the following, with nothing to show."""
    assert list(logs.read(run, None, soon(0.5))) == []


def test_follow_shows_the_output_of_a_script_of_ones_own(run):
    """Where the script writes no logs of ranks, the job's own output is followed live."""
    (run.path / "job.sh").write_text("echo hi\n")
    (run.path.parent.parent / "slurm-12.out").write_text("hi\n")
    lines = logs.read(run, None, soon(1))
    assert next(lines) == "[job] hi"
    assert list(lines) == []


def test_much_to_read_takes_little_memory(run):
    """Four logs of 1.2 MB each are read in half of what they hold."""
    for rank in range(4):
        write(run, rank, "".join(f"rank {rank} says that its step {n} is done\n" for n in range(30_000)))
    tracemalloc.start()
    count = sum(1 for _ in logs.read(run, None))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 4 * 30_000
    assert peak < 2_400_000


@pytest.mark.parametrize(
    ("scheduler", "job_id", "name"),
    [("slurm", "12", "train_12.out"), ("slurm", "12_3", "train_12_3.out"), ("pbs", "12.gadi-pbs", "train.o12")],
)
def test_own_output_is_found_by_the_jobs_id(run, scheduler, job_id, name):
    """The scheduler's file for the job is found in the folder of submission, not that of another job."""
    top = run.path.parent.parent
    for other in (name, name.replace("12", "112"), "train.o1"):
        (top / other).write_text("")
    assert schedulers.scheduler(scheduler).output(msgspec.structs.replace(run, id=job_id)) == top / name


@pytest.mark.parametrize(
    ("scheduler", "job_id", "directive", "name"),
    [
        ("slurm", "12", "#SBATCH --output=log/%x.%6j", "log/t.000012"),
        ("slurm", "12_3", "#SBATCH -o %A/%a-100%%", "12/3-100%"),
        ("pbs", "12.gadi-pbs", "#PBS -j oe -o log/mine", "log/mine"),
        ("pbs", "12.gadi-pbs", "#PBS -o login1:log/", "log/12.gadi-pbs.OU"),
    ],
)
def test_own_output_is_where_a_script_of_ones_own_puts_it(run, scheduler, job_id, directive, name):
    """The file that the script names for its output is read, once it is there."""
    run = msgspec.structs.replace(run, scheduler=scheduler, id=job_id)
    (run.path / "job.sh").write_text(f"#!/bin/bash\n{directive}\necho hi\n")
    output = run.path.parent.parent / name
    output.parent.mkdir()
    assert read(run) == []
    output.write_text("hi\n")
    assert read(run) == ["[job] hi"]


NASTY = b"\x1b]0;title\x07 \x1b[31mred\x1b[0m \x1b[2J\xc2\x9b2J \xe2\x80\xae \xff \ttab\n"
SPELLED = r"[0] \x1b]0;title\x07 red \x1b[2J\x9b2J \u202e " + "\ufffd \ttab"


def test_a_terminal_gets_no_control_characters_and_a_pipe_every_byte(run, monkeypatch, tmp_path):
    """Escape sequences in logs and names are spelled on a terminal; a pipe gets the bytes that the rank wrote."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    registry.register(msgspec.structs.replace(run, scheduler="local", job_name="a\x1b[2Jb\nc"))
    write(run, 0, NASTY)
    (run.path / "failed").write_text("7 rank-0.log rank 0 on n\x1b[2J1\n")
    (run.path / "exit").write_text("7\n")
    command = [sys.executable, "-m", "hpclaunch"]
    assert subprocess.run([*command, "logs", "12"], capture_output=True, check=True).stdout == b"[0] " + NASTY
    shown = {name: on_terminal(*command, name, "12") for name in ("logs", "why", "status")}
    assert shown["logs"] == f"{SPELLED}\n"
    assert SPELLED.removeprefix("[0]") in shown["why"]
    assert "rank 0 on n\\x1b[2J1 exited with 7" in shown["why"]
    assert "a\\x1b[2Jb\\nc" in shown["status"]


def on_terminal(*words: str) -> str:
    """Return what a command writes to a terminal."""
    master, slave = pty.openpty()
    subprocess.run(words, stdout=slave, check=True)
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):  # EIO is how a terminal ends.
        while chunk := os.read(master, 65536):
            shown += chunk
    os.close(master)
    return shown.decode().replace("\r\n", "\n")
