"""What remains of an allocation, from commands that answer, mumble, fail and hang."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from conftest import processes_with, program

from hpclaunch.job.consider import make_plan
from hpclaunch.job.cost import Cost
from hpclaunch.job.request import make_request
from hpclaunch.profile import search
from hpclaunch.runs import budget

NCI = """\
Usage Report: Project=ab12 Period=2026.q4
=============================================================
    Grant:    160.00 KSU
     Used:     59.78 KSU
 Reserved:    288.00 SU
    Avail:     99.93 KSU

Storage: scratch  Grant: 1.00 TiB  Avail: 0.40 TiB
"""


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Put a command of a site on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return lambda name, script: program(tmp_path / "bin" / name, f"#!/bin/bash\n{script}\n")


def left(name: str = "gadi", **asked) -> Cost | None:
    asked = {"account": "ab12" if name == "gadi" else "abc@v100"} | asked
    return budget.remaining(make_plan(search.load(name), make_request(asked)))


def said(text: str) -> str:
    return f"cat <<'END'\n{text}\nEND"


def test_what_nci_account_says_is_understood(command):
    """The project's Avail counts, in SU, whatever else the report lists; the command is asked for that project."""
    command("nci_account", 'echo "$@" >asked\n' + said(NCI))
    assert left() == Cost(99930, "SU")
    assert Path("asked").read_text() == "-P ab12\n"


def test_no_command_is_no_matter(monkeypatch):
    """Away from the site nothing is asked and nothing is said."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert left() is None
    assert left("jean-zay") is None


def test_no_account_asks_nobody(command):
    """Without a project there is nothing to ask about."""
    command("nci_account", "touch asked\n" + said(NCI))
    assert left(account=None) is None
    assert not Path("asked").exists()


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("Avail: 12.5 SU", 12.5),
        ("Avail: 12.5", 12.5),
        ("avail = 1,234,567.89 SU", 1234567.89),
        ("Available | 2 MSU |", 2e6),
        ("Avail: -0.50 KSU", -500),
        ("Avail: +3 ksu", 3000),
        ("Avail: 1 KSU\nAvail: 1000 SU", 1000),  # the same twice
        ("ab12 Avail: 5 SU\nxy34 Avail: 9 SU", 5),  # the project's own line goes first
        ("Avail: 40 %\nAvail: 7 SU", 7),
        ("Avail: 1 TiB", None),
        ("Avail: 5 GiB", None),
        ("Avail: 5 MB\nAvail: 7 SU", 7),
        ("Avail: 5 SU\nAvail: 9 SU", None),  # which?
        ("Avail: much", None),
        ("Avail: 1.2.3 SU", None),
        ("Project does not exist", None),
        ("", None),
        ("\x1b[1mAvail:\x1b[0m 12 SU", None),
    ],
)
def test_numbers_are_read_tolerantly_and_never_guessed(command, text, amount):
    """One amount in the site's unit is told; what could be another, a size of a disk or a share, is not."""
    command("nci_account", said(text))
    assert left() == (amount if amount is None else Cost(amount, "SU"))


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("abc@v100  remaining: 1234 h", 1234),
        ("abc@v100  Remaining 1234 hours\nabc@a100  Remaining 99 hours", 1234),
        ("Reste : 1234,5 heures", 1234.5),
        ("Remaining 12 345 h", 12345),
        ("Remaining 1 234 567,5 h", 1234567.5),
        ("Reste : 12\u202f345,25 heures", 12345.25),
        ("Reste : 12\u00a0345 h", 12345),
        ("Remaining 12 34 h", 12),  # the next column
        ("Remaining 12  345 h", 12),
        ("Remaining 1,234 567 h", 1234),
        ("Remaining 1,234,5 h", None),
        ("remaining: 10 h\nremaining: 20 h", None),
    ],
)
def test_jean_zay_counts_hours(command, text, amount):
    """Hours are what Jean-Zay counts in, by the account's own line where there is one."""
    command("idracct", said(text))
    assert left("jean-zay") == (amount if amount is None else Cost(amount, "GPU-hours"))


@pytest.mark.parametrize(
    "script",
    [
        said(NCI) + "\nexit 1",
        "head -c 3000 /dev/urandom",
        "kill -9 $$",
        "echo Avail: 5 SU >&2",
        "yes Avail: 5 SU",
    ],
)
def test_failures_are_no_answer(command, script):
    """A command that fails, babbles or does not stop is as good as none."""
    command("nci_account", script)
    begun = time.monotonic()
    assert left() is None
    assert time.monotonic() - begun < 3


def test_a_command_that_cannot_start_is_no_answer(command):
    """Nor is one that this machine cannot run."""
    command("nci_account", "")
    Path(os.environ["PATH"].split(":")[0], "nci_account").write_bytes(b"\x7fELF nonsense")
    assert left() is None


@pytest.mark.parametrize("script", ["sleep 4242", "echo Avail: 5 SU; sleep 4242", "exec >&-; sleep 4242"])
def test_a_command_that_hangs_is_ended(command, monkeypatch, tmp_path, script):
    """Nobody waits for it longer than a few seconds, and it leaves nothing running."""
    monkeypatch.setattr(budget, "SECONDS", 0.5)
    monkeypatch.setenv("BUDGET_TEST", f"hangs in {tmp_path}")
    command("nci_account", script)
    begun = time.monotonic()
    assert left() is None
    assert time.monotonic() - begun < 3
    monkeypatch.delenv("BUDGET_TEST")
    time.sleep(0.1)
    assert not [line for line in processes_with(f"hangs in {tmp_path}") if "sleep" in line]


def test_what_is_free_asks_nobody(command):
    """A job that costs nothing needs no allocation."""
    command("idracct", "touch asked\n" + said("remaining: 5 h"))
    assert left("jean-zay", partition="prepost", account="abc@cpu") is None
    assert not Path("asked").exists()


def test_too_little_is_said_with_both_numbers():
    """Where the job may cost more than is left, the warning has the price and what there is."""
    made = make_plan(search.load("gadi"), make_request({"account": "ab12", "nodes": 2}))
    assert budget.shortage(made, Cost(288, "SU")) is None
    assert budget.shortage(made, Cost(100, "SU")) == (
        "the job costs up to 288 SU, and ab12 has 100 SU left: it may wait for more"
    )


def test_a_pattern_that_is_none_is_a_mistake_of_the_profile(cli, work):
    """A regular expression that is none is named by file and line, not met at the next submission."""
    text = "extends: gadi\nallocation:\n  command: [mybalance]\n  remaining: 'Avail('\n"
    (work / "mine.yaml").write_text(text)
    result = cli("site", "check", "mine.yaml")
    assert result.exit_code == 1
    assert result.stderr.startswith("hpclaunch: mine.yaml:4: allocation.remaining: no regular expression: ")


def test_render_asks_nobody(cli, command):
    """Render looks at no command of the site, even where there is one."""
    command("nci_account", "touch asked\n" + said(NCI))
    assert cli("render", "--site", "gadi", "-A", "ab12", "--", "true").exit_code == 0
    assert not Path("asked").exists()
