"""Config files in layers, their sections for sites and presets; the commands config and init."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import call
from test_confirm import own_terminal

from hpclaunch import paths

USER = "site: gadi\naccount: ab12\nsites:\n  jean-zay: {account: abc@v100, walltime: 3h}\n"
PRESET = "presets:\n  debug: {nodes: 1, walltime: 30m}\n  test: {workload: env}\n"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder with a project of two folders below it; the inner one is the current folder."""
    monkeypatch.delenv("XDG_CONFIG_HOME")
    home = tmp_path / "home"
    for folder in (".config/hpclaunch", "project/inner"):
        (home / folder).mkdir(parents=True)
    (home / ".config/hpclaunch/hpclaunch.yaml").write_text(USER + PRESET)
    monkeypatch.chdir(home / "project" / "inner")
    return home


@pytest.fixture
def shown(cli):
    """Return what `config --json` says: value and place by name."""

    def read(*words: str) -> dict[str, tuple[object, str]]:
        result = cli("config", "--json", *words)
        assert result.exit_code == 0, result.stderr
        rows = {row["name"]: row for row in json.loads(result.stdout)}
        return {name: (row["value"], row["where"]) for name, row in rows.items() if row["source"] != "default"}

    return read


def test_files_are_merged_key_by_key_and_the_nearer_wins(home, shown):
    """From the home folder down, each file adds its keys; variables by their names; null takes a key away."""
    (home / "hpclaunch.yaml").write_text("nodes: 2\nwalltime: 1h\nqos: far\nenv: {A: '1', B: '1'}\n")
    (home / "project" / "hpclaunch.yaml").write_text("walltime: 2h\nqos: null\nenv: {B: '2'}\n")
    (home.parent / "hpclaunch.yaml").write_text("nodes: 9\nmem_gb: 9\n")  # above the home folder
    Path("hpclaunch.yaml").write_text("walltime: 3h\n")
    assert shown("--env", "C=3", "--env", "D_KEY=4") == {
        "site": ("gadi", "~/.config/hpclaunch/hpclaunch.yaml:1"),
        "account": ("ab12", "~/.config/hpclaunch/hpclaunch.yaml:2"),
        "nodes": (2, "~/hpclaunch.yaml:1"),
        "walltime": ("3h", "./hpclaunch.yaml:1"),
        "env.A": ("1", "~/hpclaunch.yaml:4"),
        "env.B": ("2", "~/project/hpclaunch.yaml:3"),
        "env.C": ("3", "--env"),
        "env.D_KEY": ("(hidden)", "--env"),
    }


def test_presets_win_over_sites_and_these_over_general_keys(home, shown):
    """Also over those of nearer files; among sections of one kind the nearer file wins."""
    Path("hpclaunch.yaml").write_text("account: xy99\nwalltime: 10h\nsites: {jean-zay: {nodes: 4}}\n")
    assert shown("--site", "jean-zay")["account"] == ("abc@v100", "~/.config/hpclaunch/hpclaunch.yaml:4")
    assert shown("--site", "jean-zay")["walltime"][0] == "3h"
    assert shown("--site", "gadi")["account"] == ("xy99", "./hpclaunch.yaml:1")
    debug = shown("--site", "jean-zay", "--preset", "debug")
    assert (debug["nodes"][0], debug["walltime"][0], debug["account"][0]) == (1, "30m", "abc@v100")
    assert shown("--preset", "debug", "--nodes", "3")["nodes"] == (3, "--nodes")


def test_what_belongs_to_a_cluster_counts_for_its_site(home, cli, shown):
    """An account beside `site: gadi` is not Jean-Zay's, and nothing of a cluster is this machine's but its section."""
    (home / ".config/hpclaunch/hpclaunch.yaml").write_text(
        "site: gadi\naccount: ab12\npartition: normal\nmail: a@b\nnodes: 2\n"
    )
    assert {*shown("--site", "jean-zay")} == {"site", "mail", "nodes"}
    assert {*shown("--site", "local")} == {"site", "nodes"}
    Path("hpclaunch.yaml").write_text("sites: {local: {gpus_per_node: 0}}\n")
    assert shown("--site", "local")["gpus_per_node"][0] == 0


def test_the_nearer_program_counts(home, cli, shown, monkeypatch):
    """A project's command wins over the workload of a file further away, and a preset's workload over both."""
    (home / "hpclaunch.yaml").write_text("workload: env\n")
    Path("hpclaunch.yaml").write_text("command: [python, train.py]\n")
    assert "workload" not in shown()
    assert shown()["command"] == (["python", "train.py"], "./hpclaunch.yaml:1")
    monkeypatch.setenv("HPCLAUNCH_PRESET", "test")
    assert "workloads/env.py" in cli("render").stdout


def test_a_site_is_compared_by_its_own_section(home, cli):
    """Each column of a comparison has what the files say of that site."""
    result = cli("compare", "--json", "-s", "gadi", "-s", "jean-zay", "--", "true")
    assert [column["walltime"] for column in json.loads(result.stdout)] == ["01:00:00", "03:00:00"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sites:\n  gadi:\n    acount: x\n", "hpclaunch.yaml:3: sites.gadi.acount: unknown key (did you mean acc"),
        ("presets: {a b: {}}\n", "hpclaunch.yaml:1: presets.a b: expected one word of letters"),
        ("presets:\n  a: {nodes: 0}\n", "hpclaunch.yaml:2: presets.a.nodes: expected"),
        ("nodse: 2\n", "/project/hpclaunch.yaml:1: nodse: unknown key (did you mean nodes?)"),
    ],
)
def test_mistakes_are_named_in_every_section_of_every_file(home, cli, text, message):
    """Also in sections that do not count for this job."""
    (home / "project" / "hpclaunch.yaml").write_text(text)
    result = cli("check", "--site", "local", "--", "true")
    assert (result.exit_code, message in result.stderr) == (1, True), result.stderr


def test_an_unknown_preset_is_refused_with_the_known_ones(home, cli):
    """A typing mistake runs nothing."""
    result = cli("render", "--preset", "debg", "--", "true")
    assert (result.exit_code, result.stderr) == (
        1,
        "hpclaunch: --preset debg: there is no such preset (did you mean debug?)\n",
    )


@pytest.mark.parametrize("command", ["render", "check", "submit"])
def test_a_variable_that_no_option_has_is_named(cli, monkeypatch, command):
    """Outside of jobs, whose scripts set variables of their own."""
    monkeypatch.setenv("HPCLAUNCH_NODE", "2")
    monkeypatch.setenv("HPCLAUNCH_WALLTIME", "1h")
    words = (command, *(["--dry-run"] if command == "submit" else []), "--site", "gadi", "-A", "ab12", "--", "true")
    warning = "hpclaunch: warning: HPCLAUNCH_NODE: no option has this variable (did you mean HPCLAUNCH_NODES?)\n"
    assert cli(*words).stderr.count("HPCLAUNCH") == 2
    assert warning in cli(*words).stderr
    monkeypatch.setenv("HPCLAUNCH_RUN_DIR", "/x")
    assert "HPCLAUNCH" not in cli(*words).stderr


def test_config_is_for_users_too(home, cli, monkeypatch):
    """In columns: value, and file and line, variable, option or default."""
    monkeypatch.setenv("HPCLAUNCH_NODES", "2")
    lines = cli("config", "-t", "1h", "--", "echo", "a b").stdout.splitlines()
    assert lines[:3] == [
        "site            gadi                    ~/.config/hpclaunch/hpclaunch.yaml:1",
        "nodes           2                       HPCLAUNCH_NODES",
        "account         ab12                    ~/.config/hpclaunch/hpclaunch.yaml:2",
    ]
    assert "command         echo 'a b'              COMMAND" in lines
    assert "max_attempts    1                       default" in lines


def test_init_without_a_terminal_takes_options_and_never_overwrites(cli, work, monkeypatch):
    """What it writes is a config file that counts; a second call changes nothing."""
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    result = cli("init", "--site", "gadi", "-A", "ab12", "--venv", "~/my env")
    assert result.stdout == "hpclaunch.yaml\n"
    assert (work / "hpclaunch.yaml").read_text().startswith("site: gadi\naccount: ab12\nvenv: ~/my env\n\n# ")
    assert "-P ab12" in cli("render", "--", "true").stdout
    again = cli("init", "--site", "local")
    assert (again.exit_code, again.stderr) == (1, "hpclaunch: hpclaunch.yaml exists; edit it, or remove it first\n")
    (work / "hpclaunch.yaml").unlink()
    assert "no site profile 'gady' (did you mean gadi?)" in cli("init", "--site", "gady").stderr
    assert not (work / "hpclaunch.yaml").exists()


def test_what_init_leaves_commented_out_is_valid(cli, work):
    """A user may remove any of the comment signs."""
    cli("init", "--site", "gadi", "-A", "ab12")
    text = (work / "hpclaunch.yaml").read_text()
    (work / "hpclaunch.yaml").write_text(re.sub(r"^# (?=\w+: )", "", text, flags=re.MULTILINE))
    result = cli("config", "--preset", "debug")
    assert "walltime        30m  " in result.stdout, result.stderr


def test_init_asks_three_questions(work, monkeypatch):
    """On a terminal, with what it finds as the default; stdout is the file's name."""
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    (work / ".venv").mkdir()
    master, slave = pty.openpty()
    os.write(master, b"jean-zay\nabc@v100\n\n")
    line = [sys.executable, "-m", "hpclaunch", "init"]
    done = subprocess.run(line, stdin=slave, stderr=slave, stdout=-1, preexec_fn=own_terminal, check=True)
    os.close(slave)
    talk = b""
    with suppress(OSError):  # EIO is how a terminal ends
        while chunk := os.read(master, 4096):
            talk += chunk
    os.close(master)
    assert done.stdout == b"hpclaunch.yaml\n"
    assert re.findall(r"(Site|Account|Environment).*?: ", talk.decode()) == ["Site", "Account", "Environment"]
    text = (work / "hpclaunch.yaml").read_text()
    assert text.startswith("site: jean-zay\naccount: abc@v100\nvenv: .venv\n")


@pytest.mark.train
def test_three_commands_to_a_trained_model(home):
    """On a laptop with nothing set up: init, check, run."""
    (home / ".config/hpclaunch/hpclaunch.yaml").unlink()
    assert call("init") == "hpclaunch.yaml\n"
    assert "site            local" in call("check")
    program = ("--", sys.executable, paths.WORKLOADS["mnist"], "--epochs", 1)
    assert "test accuracy: " in call("run", *program, seconds=120)
