"""Files that nobody would write and somebody may be given: YAML that bites, a registry with strangers in it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import call

BASE = "extends: gadi\ntitle: Bad\n"
MANY = ",".join


def bomb(begin: str, item: str) -> str:
    """Nine levels, each of nine times the one before."""
    levels = "abcdefghij"
    return f"a: &a {begin}\n" + "".join(
        f"{name}: &{name} {item.format(MANY(f'*{levels[i]}' for _ in range(9)))}\n" for i, name in enumerate(levels[1:])
    )


YAML = {
    "bool": (BASE + "module_purge: !!bool x\n", ": no valid YAML: 'x'"),
    "timestamp": (BASE + "checked: !!timestamp x\n", ": no valid YAML: "),
    "no date": (BASE + "checked: 2026-99-99\n", ": no valid YAML: month must be in 1..12"),
    "empty int": (BASE + "max_attempts: !!int ''\n", ": no valid YAML: "),
    "float": (BASE + "home_gb: !!float x\n", ": no valid YAML: could not convert string to float: 'x'"),
    "python": (BASE + "x: !!python/object/apply:os.system ['touch canary']\n", ":3: could not determine a constructor"),
    "huge int": (BASE + f"max_attempts: {'9' * 5000}\n", ": no valid YAML: "),
    "huge hex": (BASE + f"max_attempts: 0x{'f' * 9000}\n", ":3: max_attempts: expected `int` <= 999999999"),
    "sexagesimal": (BASE + f"max_attempts: 1{':1' * 4900}\n", ":3: max_attempts: "),
    "long": (BASE + f"docs: {'a' * 20000}\n", ":3: a value of more than 10,000 characters"),
    "nested": (BASE + f"setup: {'[' * 500_000}\n", ":3: nested in more than 50 levels"),
    "nested maps": (BASE + f"setup: {'{a: ' * 900}{'}' * 900}\n", ":3: nested in more than 50 levels"),
    "nested blocks": (BASE + f"setup:\n{'- ' * 2000}x\n", ":4: nested in more than 50 levels"),
    "aliases": (bomb("[x,x,x]", "[{}]"), "values, aliases counted"),
    "merges": (bomb("{x: 1}", "{{<<: [{}]}}"), "values, aliases counted"),
    "itself": ("a: &a [*a]\n", ":1: more than 20,000 values, aliases counted"),
    "keys": (BASE + "".join(f"key{i}: 1\n" for i in range(20_000)), "more than 20,000 values"),
    "fewer keys": (BASE + "".join(f"key{i}: 1\n" for i in range(9_000)), ":3: key0: unknown key"),
    "partitions": (
        "title: x\nscheduler: slurm\ndefault_partition: a\npartitions:\n"
        + "".join(f"  p{i}: {{max_core: 1}}\n" for i in range(4_000)),
        ":5: partitions.p0.max_core: unknown key (did you mean max_cores?)",
    ),
    "pattern": (BASE + "refused_directives: [{pattern: '(a+)+$', why: x}]\n", "may take forever"),
    "choices": (BASE + "refused_directives: [{pattern: '((a|a)b?)*$', why: x}]\n", "may take forever"),
    "repeats": (BASE + "refused_directives: [{pattern: '.*a.*a.*a.*a', why: x}]\n", "more than 3 repeats"),
    "empty list": (BASE + "allocation: {command: []}\n", ":3: allocation.command: expected `array` of length >= 1"),
    "escape": ('title: "\\e[2Jx"\nscheduler: "\\e]0;hi\\a"\n"\\e[31mkey": 1\n', ":3: \\x1b[31mkey: unknown key"),
    "direction": (BASE + 'docs: "a\\u202eb"\n', ":3: docs: expected one line of text"),
    "c1": (BASE + 'docs: "\\x9b2J"\n', ":3: docs: expected one line of text"),
}


def bounded() -> None:
    """Leave no room for what a bomb would make."""
    resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000, 1_500_000_000))


def check(file: str) -> str:
    """Check a profile in little memory and little time; return what is said, which is no traceback."""
    command = [sys.executable, "-m", "hpclaunch", "site", "check", file]
    done = subprocess.run(command, capture_output=True, timeout=20, check=False, preexec_fn=bounded)
    said = done.stderr.decode()
    assert done.returncode == 1, said
    assert "Traceback" not in said
    assert not any(code in said for code in "\x1b\x07\x9b\u202e")
    assert len(said) < 100_000
    return said


@pytest.mark.parametrize("name", YAML)
def test_yaml_that_bites_is_one_message(work, name):
    """Whatever a profile says, the answer is a line with file and line, soon and in bounded memory."""
    text, said = YAML[name]
    (work / "bad.yaml").write_text(text)
    answer = check("./bad.yaml")
    assert said in answer
    assert answer.startswith("hpclaunch: bad.yaml:")
    assert not (work / "canary").exists()


def test_what_is_no_file_of_text_is_no_profile(work):
    """A device, a pipe, a folder, bytes and a gigabyte are named, and neither waited for nor read to the end."""
    Path("zero.yaml").symlink_to("/dev/zero")
    os.mkfifo("fifo.yaml")
    Path("folder.yaml").mkdir()
    Path("bytes.yaml").write_bytes(bytes(range(128, 256)))
    with Path("big.yaml").open("w") as file:
        file.truncate(10**9)
    assert check("./zero.yaml") == "hpclaunch: zero.yaml: no regular file\n"
    assert check("./fifo.yaml") == "hpclaunch: fifo.yaml: no regular file\n"
    assert check("./folder.yaml") == "hpclaunch: folder.yaml: cannot be read: Is a directory\n"
    assert check("./bytes.yaml") == "hpclaunch: bytes.yaml: not UTF-8: invalid start byte at byte 0\n"
    assert "big.yaml: larger than 1,000,000 bytes" in check("./big.yaml")


def test_one_broken_profile_breaks_nothing_else(cli, work, monkeypatch):
    """`sites` lists it with its first problem; rendering, completion and the doctor do not mind it."""
    (work / "site_profiles").mkdir()
    for name, (text, _) in YAML.items():
        if name in ("bool", "nested", "aliases", "escape", "pattern"):
            (work / "site_profiles" / f"{name}.yaml").write_text(text)
    listed = " ".join(cli("site", "list").stdout.split())
    assert "bool broken site_profiles/bool.yaml: no valid YAML: 'x'" in listed
    assert "gadi pbs 15" in listed
    assert "\x1b" not in cli("site", "list").stdout
    assert cli("render", "--site", "gadi", "-A", "ab12", "--", "true").exit_code == 0
    assert '"verdict"' in cli("doctor", "--json", "--site", "gadi", "--", "true").stdout
    monkeypatch.setenv("_HPCLAUNCH_COMPLETE", "bash_complete")
    for words in ("hpclaunch render -s ", "hpclaunch render -s bool -p "):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
        done = subprocess.run([Path(sys.executable).with_name("hpclaunch")], capture_output=True, text=True, check=True)
        assert not done.stderr
        assert ("plain,gadi" in done.stdout) == words.endswith("-s ")


def test_a_stranger_in_the_registry_is_named_and_left_aside(work, tmp_path, monkeypatch):
    """Files that are no runs are named on stderr; the runs beside them are listed as ever."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    job = call("submit", "--quiet", "--site", "local", "--", "true").strip()
    runs = tmp_path / "state" / "hpclaunch" / "runs"
    (runs / "12x.json").write_text("{}")
    (runs / "9-\x1b[2J.json").write_text("[" * 100_000)
    (runs / "8-bytes.json").write_bytes(b"\xff\xfe")
    (runs / "7-folder.json").mkdir()
    os.mkfifo(runs / "6-fifo.json")
    (runs / "5-zero.json").symlink_to("/dev/zero")
    (record,) = map(json.loads, (path.read_text() for path in runs.glob(f"*{job[-4:]}*.json")))
    (runs / "4-far.json").write_text(json.dumps(record | {"id": "4", "submitted": 1e300}))
    (runs / "3-null.json").write_text(json.dumps(record | {"id": "3", "folder": "a\0b"}))
    command = [sys.executable, "-m", "hpclaunch", "jobs"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0
    assert job in done.stdout
    assert done.stderr.count(": not a run's file, skipped\n") == 8
    assert "\x1b" not in done.stderr
