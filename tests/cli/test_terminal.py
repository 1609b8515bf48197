"""What a terminal, a pipe and a user without a home get."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys

import pytest

from hpclaunch.errors import printable

GADI = ("--site", "gadi", "-A", "ab12")


@pytest.mark.parametrize(
    "words",
    [
        ("site", "list"),
        ("site", "show", "gadi"),
        ("render", *GADI, "--", "true"),
        ("check", *GADI, "--json"),
        ("--help",),
    ],
)
def test_a_closed_pipe_ends_a_command_quietly(words):
    """Whoever has read enough, as `| head -1`, ends the command without a word, with 141 as for any program."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "hpclaunch", *words]
    with subprocess.Popen(command, stdout=write, stderr=subprocess.PIPE, text=True) as process:
        os.close(write)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 141
    assert "Error" not in stderr and "ipe" not in stderr


@pytest.mark.parametrize(("setting", "colour"), [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)])
def test_no_color_is_honoured(setting, colour, monkeypatch):
    """The doctor's verdicts have colours on a terminal, unless NO_COLOR says not (https://no-color.org)."""
    monkeypatch.setenv("PATH", "/nowhere")
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "hpclaunch", "doctor", *GADI, "--", "true"]
    with subprocess.Popen(command, stdout=slave, stderr=slave, env=os.environ | setting):
        os.close(slave)
        said = b""
        try:
            while chunk := os.read(master, 4096):
                said += chunk
        except OSError:  # so a terminal ends
            os.close(master)
    assert b"problem" in said
    assert (b"\x1b[" in said) == colour


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü \N{NO-BREAK SPACE}1\tx\n", "plain ü \N{NO-BREAK SPACE}1\tx\n"),
        ("\x1b[2J\x1b]0;t\x07", "\\x1b[2J\\x1b]0;t\\x07"),
        ("\x9b2J\r\x00\x7f", "\\x9b2J\\r\\x00\\x7f"),
        ("\u202egpj", "\\u202egpj"),
        (os.fsdecode(b"\xff"), "\\udcff"),
    ],
)
def test_what_a_terminal_would_obey_is_spelled(text, shown):
    """Escape sequences, control characters, changes of direction and bytes that are no text are shown, not sent."""
    assert printable(text) == shown


def test_names_of_files_and_words_of_errors_are_harmless(cli, work):
    """A profile's file name, an unknown site and a missing script cannot write to the terminal by themselves."""
    (work / "site_profiles").mkdir()
    (work / "site_profiles" / "a\x1b[2Jb.yaml").write_text("extends: gadi\ntitle: Mine\n")
    (work / "hpclaunch.yaml").write_text('site: gadi\ncommand: [python, "/path/to/\\e[2J"]\n')
    for words in (
        ("site", "list"),
        ("site", "check"),
        ("site", "show", "a\x1b[2Jb"),
        ("render", "--site", "x\x1b[2J"),
        ("render", "-o", "no\x1b[2J/x", "--force", "placeholders"),
        ("render", "--explain", "--force", "placeholders"),
        ("check",),
        ("compare",),
    ):
        assert "\x1b" not in cli(*words).output, words


@pytest.mark.parametrize(
    "words",
    [
        ("render", *GADI, "--", "python", "~/x.py"),
        ("check", *GADI, "--", "python", "~/x.py"),
        ("compare", *GADI, "--", "true"),
        ("site", "list"),
        ("jobs",),
        ("check", "--script", "old.sh", "--site", "gadi"),
        ("run", "--quiet", "--", "true"),
    ],
    ids=" ".join,
)
def test_no_home_and_no_name_are_no_matter(words, work, monkeypatch):
    """A container's user, with no HOME and no entry in the list of users, has every command."""
    alone = ["unshare", "--user", "--map-user=12345", "--map-group=12345"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare --user makes no user without a name here")
    (work / "old.sh").write_text("#!/bin/bash\n#PBS -P ab12\n#PBS -l ncpus=1\ncd ~/x\nsource ~/v/bin/activate\ntrue\n")
    monkeypatch.delenv("HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(work / "state"))
    command = [*alone, sys.executable, "-m", "hpclaunch", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
