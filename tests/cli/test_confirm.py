"""Before a dear job is submitted: who is asked, on which stream, and what happens on no."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shlex
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from conftest import call, program, start

DEAR = ("--site", "gadi-here", "--nodes", "2", "-t", "10m", "--confirm-above", "10")  # 48 SU
NOT_SHIPPED = "hpclaunch: not shipped with hpclaunch: site_profiles/gadi-here.yaml\n"
ASKED = "hpclaunch: at most 48 SU = 3 SU x 0.166667 h x max(96 cpus, 760 GB / 7.95833 GB), above 10 (confirm_above)"


def at_terminal(*words: object, answer: bytes, code: int, command: str = "submit") -> tuple[str, str]:
    """Submit with stdin and stderr at a terminal, as in `job=$(hpclaunch submit ...)`; return stdout and the talk.

    The answer is typed once the question is there.
    """
    master, slave = pty.openpty()
    line = [sys.executable, "-m", "hpclaunch", command, *map(str, words), "--", "true"]
    talk = b""
    streams = {"stdin": slave, "stderr": slave, "stdout": subprocess.PIPE}
    with subprocess.Popen(line, **streams, text=True, preexec_fn=own_terminal) as process:  # noqa: PLW1509
        os.close(slave)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    chunk = os.read(master, 4096)
                except OSError:
                    break
                talk += chunk
                if chunk and talk.endswith(b"[y/N] ") and answer:
                    os.write(master, answer)
                    answer = b""
        else:
            process.kill()
        stdout, _ = process.communicate()
    os.close(master)
    said = talk.decode().replace("\r\n", "\n").removeprefix(NOT_SHIPPED)
    assert process.returncode == code, said
    return stdout, said


def own_terminal() -> None:
    """Make stdin the terminal from which Ctrl-C comes."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def jobs() -> list[str]:
    """List what was submitted, by its run folders."""
    folder = Path("hpclaunch-runs")
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_yes_submits_and_stdout_is_the_id_alone(qsub):
    """On a terminal the price is told with its formula, and asked about; y submits; stdout has the id alone."""
    qsub()
    stdout, talk = at_terminal(*DEAR, answer=b"y\n", code=0)
    assert f"{ASKED}. Submit? [y/N] " in talk
    assert re.fullmatch(r"\d+\.\S+\n", stdout)
    assert jobs() == [stdout.strip()]


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b"what?\n", b"\x04"], ids=["n", "enter", "what?", "ctrl-d"])
def test_all_else_submits_nothing(qsub, answer):
    """N, Enter and the end of input leave the queue as it was; the exit code is 1."""
    qsub()
    stdout, talk = at_terminal(*DEAR, answer=answer, code=1)
    assert stdout == ""
    assert talk.endswith("hpclaunch: not submitted\n")
    assert jobs() == []


def test_ctrl_c_submits_nothing(qsub):
    """Nor does Ctrl-C, without a traceback."""
    qsub()
    stdout, talk = at_terminal(*DEAR, answer=b"\x03", code=130)
    assert (stdout, jobs()) == ("", []) and "Traceback" not in talk


@pytest.mark.parametrize("words", [("--yes",), ("-y",), ("--confirm-above", "48"), ("--dry-run",)])
def test_nobody_is_asked_needlessly(qsub, words):
    """Not with --yes, not at the limit itself, not where nothing would be submitted."""
    qsub()
    stdout, talk = at_terminal(*DEAR, *words, answer=b"", code=0)
    assert "[y/N]" not in talk
    assert stdout
    assert len(jobs()) == ("--dry-run" not in words)


def test_a_script_never_waits_for_an_answer(qsub):
    """Without a terminal the job is submitted, and stderr says what it may cost and what would have refused it."""
    qsub()
    for words in ((), ("--quiet",)):
        process = start("submit", *words, *DEAR, "--", "true", stdin=subprocess.DEVNULL)
        stdout, stderr = process.communicate(timeout=60)
        assert process.returncode == 0
        assert re.fullmatch(r"\d+\.\S+\n", stdout)
        assert f"{ASKED}: submitted unasked, stdin is no terminal; use --max-cost\n" in stderr


def test_the_limit_comes_from_the_profile_and_the_config_file(qsub, work):
    """`confirm_above` in the site's profile holds for everybody, the config's or the option's instead of it."""
    qsub()
    profile = work / "site_profiles" / "gadi-here.yaml"
    profile.write_text(profile.read_text() + "confirm_above: 20\n")
    words = DEAR[:-2]
    assert "above 20 (confirm_above). Submit?" in at_terminal(*words, answer=b"n\n", code=1)[1]
    (work / "hpclaunch.yaml").write_text("confirm_above: 15\n")
    assert "above 15 (confirm_above). Submit?" in at_terminal(*words, answer=b"n\n", code=1)[1]
    assert "[y/N]" not in at_terminal(*words, "--confirm-above", "1000", answer=b"", code=0)[1]


def test_a_price_that_is_not_confirmed_is_told_so(qsub, cli):
    """Where the profile is not sure of its charge, the question, check's table and compare say so beside the amount."""
    qsub()
    words = ("--site", "gadi-here", "-p", "normalbw", "-t", "1h")
    price = "35 SU = 1.25 SU x 1 h x max(28 cpus, 128 GB / 9.14286 GB) (not confirmed)"
    _, talk = at_terminal(*words, "--confirm-above", "10", answer=b"n\n", code=1)
    assert f"hpclaunch: at most {price}, above 10 (confirm_above). Submit? " in talk
    assert f"cost at most    {price}\n" in cli("check", *words, "--", "true").stdout
    assert re.search(r"^price +at most 35 SU \(not confirmed\)$", cli("compare", *words, "--", "true").stdout, re.M)


def test_max_cost_submits_nothing(qsub):
    """Above --max-cost nothing is asked and nothing is submitted."""
    qsub()
    stdout, talk = at_terminal(*DEAR, "--max-cost", "40", answer=b"y\n", code=1)
    assert "max-cost: the job may cost 48 SU" in talk and "[y/N]" not in talk
    assert (stdout, jobs()) == ("", [])


def test_a_script_of_ones_own_has_no_price(qsub, work):
    """With --script the limits are said not to count, rather than applied to a job that is not this one."""
    qsub()
    (work / "job.sh").write_text("#!/bin/bash\ntrue\n")
    process = start("submit", "--site", "gadi-here", "--max-cost", "1", "--script", "job.sh")
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0 and stdout
    assert stderr == NOT_SHIPPED + (
        "hpclaunch: warning: max_cost and confirm_above are not checked: the price of job.sh is not known\n"
    )
    process = start("submit", "--site", "gadi-here", "--max-cost", "1", "--dry-run", "--script", "job.sh")
    assert process.communicate(timeout=60) == ("#!/bin/bash\ntrue\n", NOT_SHIPPED)
    profile = work / "site_profiles" / "gadi-here.yaml"
    profile.write_text(profile.read_text() + "confirm_above: 20\n")
    process = start("submit", "--site", "gadi-here", "--script", "job.sh")
    assert process.communicate(timeout=60)[1] == NOT_SHIPPED + (
        "hpclaunch: warning: max_cost and confirm_above are not checked: the price of job.sh is not known\n"
    )


def allocation(folder: Path, monkeypatch, script: str) -> None:
    program(folder / "nci_account", f"touch asked\n{script}")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_what_is_left_is_told_before_the_question(qsub, tmp_path, monkeypatch):
    """On a terminal the person sees what the project has left, and where that is too little, before they answer."""
    qsub()
    allocation(tmp_path, monkeypatch, "echo '  Avail:  0.04 KSU'")
    _, talk = at_terminal(*DEAR, answer=b"n\n", code=1)
    told = talk.splitlines()
    assert told[1:3] == [
        "hpclaunch: ab12 has 40 SU left",
        "hpclaunch: warning: the job costs up to 48 SU, and ab12 has 40 SU left: it may wait for more",
    ]
    assert told[3].startswith(ASKED)


@pytest.mark.parametrize("script", ["exit 1", "echo hello", "kill -9 $$"])
def test_the_allocation_is_never_required(qsub, tmp_path, monkeypatch, script):
    """A command that fails or mumbles is not mentioned, and the job is submitted."""
    qsub()
    allocation(tmp_path, monkeypatch, script)
    stdout, talk = at_terminal(*DEAR, "--yes", answer=b"", code=0)
    assert Path("asked").exists() and stdout
    assert talk.count("\n") == 1


def test_scripts_do_not_ask_for_the_allocation(qsub, tmp_path, monkeypatch):
    """A loop of submissions, which nobody reads, does not call the site's command each time."""
    qsub()
    allocation(tmp_path, monkeypatch, "echo 'Avail: 5 SU'")
    call("submit", *DEAR, "--", "true")
    assert not Path("asked").exists()


def test_check_tells_what_is_left(qsub, tmp_path, monkeypatch):
    """On a terminal `check` says what the project has left, on stderr; elsewhere it calls nothing."""
    qsub()
    allocation(tmp_path, monkeypatch, "echo 'Avail: 1.5 KSU'")
    words = DEAR[:-2]
    stdout, talk = at_terminal(*words, answer=b"", code=0, command="check")
    assert talk == "hpclaunch: ab12 has 1,500 SU left\n"
    assert "cost at most    48 SU = 3 SU x 0.166667 h x max(96 cpus, 760 GB / 7.95833 GB)\n" in stdout
    Path("asked").unlink()
    call("check", *words, "--", "true")
    assert not Path("asked").exists()


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_closed_streams_are_no_terminal(qsub, closed):
    """A submission from a daemon that has closed its streams goes through."""
    qsub()
    words = shlex.join([sys.executable, "-m", "hpclaunch", "submit", *map(str, DEAR), "--", "true"])
    done = subprocess.run(["bash", "-c", f"{words} {closed}"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\d+\.\S+\n", done.stdout)
