"""What waiting looks like on a terminal, and that a pipe gets none of it."""

from __future__ import annotations

import json
import os
import re
import time

import pytest
from conftest import call, start, state, submit, wait_until
from test_shell import Terminal

from hpclaunch.cli.progress import describe
from hpclaunch.runs import registry
from hpclaunch.runs.registry import Run
from hpclaunch.schedulers import run_folder
from hpclaunch.schedulers.job import PENDING, REQUEUED, RUNNING, UNKNOWN, State

pytestmark = pytest.mark.job
TRAIN = 'for i in {1..100}; do echo "Epoch $i/100: loss 0.1, step: $((i * 10))"; sleep 0.2; done'


@pytest.fixture(autouse=True)
def registry_of_its_own(tmp_path, monkeypatch):
    """Start without jobs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TERM", "xterm")


def test_wait_shows_the_state_and_how_far_it_is(work):
    """On a terminal one line is written anew: state, time, epoch and step; Ctrl-C ends only the waiting, with 130."""
    job = submit("--site", "local", "--job-name", "train", "--", "bash", "-c", TRAIN)
    waiting = Terminal("wait")
    waiting.wait_for(rf"\r\x1b\[K{job} train RUNNING for 00:00:0\d, epoch \d+/100, step \d+")
    waiting.wait_for(rf"\r\x1b\[K{job} train RUNNING")
    assert "\n" not in waiting.said
    os.write(waiting.file, b"\x03")
    assert waiting.code() == 130
    assert f"job {job} goes on; to come back: hpclaunch wait {job}, hpclaunch logs -f {job}" in waiting.said
    assert state(job)["word"] == "RUNNING"
    call("cancel")


def test_the_end_is_shown_in_its_colour(work, monkeypatch):
    """At the end the line gives way to the job's state."""
    waiting = Terminal("submit", "--quiet", "--site", "local", "--wait", "--", "sh", "-c", "sleep 1; exit 7")
    waiting.wait_for(r"sh \x1b\[31mFAILED\x1b\[0m")
    assert waiting.code() == 7
    for words in (("status",), ("jobs",)):
        listing = Terminal(*words)
        listing.wait_for(r"JOB +STATE +SITE .*\r\n\S+  \x1b\[31mFAILED\x1b\[0m  +local ")
        assert listing.code() == 0
        monkeypatch.setenv("NO_COLOR", "1")
        plain = Terminal(*words)
        plain.wait_for(r"\S+  FAILED +local .* exit code 7\r\n")
        monkeypatch.delenv("NO_COLOR")
        assert "\x1b" not in call(*words)


def test_follow_writes_the_logs_above_the_line(work):
    """--follow shows what the ranks write, and the line below it; each line of a log is whole."""
    following = Terminal("submit", "--site", "local", "--follow", "--", "bash", "-c", "echo one; sleep 5; echo two")
    following.wait_for(r"\r\x1b\[K\[0\] one\r\n")
    following.wait_for(r"\r\x1b\[K\S+ bash RUNNING for")
    following.wait_for(r"\r\x1b\[K\[0\] two\r\n")
    assert following.code() == 0


def test_a_pipe_gets_nothing_of_it(work):
    """Without a terminal nothing is written but what was asked for; SIGINT says how to come back all the same."""
    job = submit("--site", "local", "--", "sleep", "30")
    process = start("wait", "--json", job)
    time.sleep(3)
    process.send_signal(2)
    stdout, stderr = process.communicate(timeout=20)
    assert (process.returncode, stdout) == (130, "")
    assert stderr.startswith(f"hpclaunch: job {job} goes on; ") and stderr.count("\n") == 1
    call("cancel", job)
    (row,) = json.loads(call("wait", "--json", job, code=143))
    assert (row["id"], row["word"]) == (job, "CANCELLED")


def test_a_line_says_what_is_known(work):
    """How long a job waits and until when, how long it runs of its walltime, and nothing that is not known."""
    now = time.time()
    run = Run(
        id="7", site="gadi", scheduler="pbs", job_name="t", folder=str(work / "7"), submitted=now - 65, seconds=7200
    )
    assert describe(run, State(PENDING)) == "7 t PENDING for 00:01:05"
    soon = describe(run, State(PENDING, "Priority", expected_start=now + 600))
    assert re.fullmatch(r"7 t PENDING for 00:01:05, Priority, expected to start at \d{4}-\d\d-\d\d \d\d:\d\d", soon)
    assert describe(run, State(RUNNING)) == "7 t RUNNING"
    (work / "7").mkdir()
    (work / "7" / run_folder.ABOUT).touch()
    os.utime(work / "7" / run_folder.ABOUT, (now - 30, now - 30))
    for word in (RUNNING, PENDING, UNKNOWN):  # the scheduler was asked before it began
        assert describe(run, State(word)) == "7 t RUNNING for 00:00:30 of 02:00:00"
    (work / "7" / "rank-0.err").write_text(
        "Epoch 3:  40%|####      | 12/30 [00:01<00:02]\rEpoch 3:  50%|#####     | 15/30"
    )
    assert describe(run, State(RUNNING)).endswith(", epoch 3")
    assert describe(run, State(REQUEUED)) == "7 t REQUEUED for 00:01:05"


def test_logs_can_be_chosen(work):
    """--tail gives the last lines of each stream, --grep those with an expression, both the last of these."""
    lines = "for i in {1..30}; do echo line $i; done; echo bad >&2"
    job = submit("--site", "local", "--wait", "--", "bash", "-c", lines)
    assert call("logs", "--tail", 2, job) == "[0] line 29\n[0] line 30\n[0] bad\n"
    assert call("logs", "--grep", "[345]7|7$", job) == "[0] line 7\n[0] line 17\n[0] line 27\n"
    assert call("logs", "--grep", "^line", "--tail", 1, "-f", job) == "[0] line 30\n"
    assert call("logs", "--tail", 0, job) == ""
    process = start("logs", "--grep", "(", job)
    assert "'(' is no regular expression" in process.communicate(timeout=20)[1]
    assert process.returncode == 2


def test_follow_begins_with_the_tail(work):
    """-f --tail 1 leaves out what was there before, and shows all that comes."""
    job = submit(
        "--site", "local", "--", "bash", "-c", "echo a; echo b; until [ -e go ]; do sleep 0.1; done; echo c; echo d"
    )
    wait_until(lambda: "b" in call("logs", job))
    process = start("logs", "-f", "--tail", 1, job)
    time.sleep(2)
    (work / "go").touch()
    assert process.communicate(timeout=20)[0] == "[0] b\n[0] c\n[0] d\n"


def test_cancel_says_what_it_cancelled(work):
    """Each job with its state before, and those that had ended; as JSON too."""
    ended = submit("--site", "local", "--job-name", "first", "--wait", "--", "true")
    job = submit("--site", "local", "--job-name", "second", "--", "sleep", "60")
    wait_until(lambda: state(job)["word"] == "RUNNING")
    assert call("cancel", job, ended) == (
        f"{job} (local, second): cancelled, was RUNNING\n{ended} (local, first): had ended before, COMPLETED\n"
    )
    wait_until(lambda: state(job)["word"] == "CANCELLED")
    assert [row["word"] for row in json.loads(call("cancel", "--json", job, ended))] == ["CANCELLED", "COMPLETED"]


def test_json_of_submit_and_why(work):
    """A program gets the id, the folder and the plan of what it submits, and the explanation as a list."""
    answer = json.loads(call("submit", "--json", "--site", "local", "--tasks-per-node", 2, "--wait", "--", "true"))
    assert (answer["site"], answer["tasks_per_node"], answer["price"]) == ("local", 2, None)
    assert answer["folder"] == registry.find([answer["id"]])[0].folder
    why = json.loads(call("why", "--json"))
    assert why["id"] == answer["id"]
    assert why["explanation"][0].endswith("COMPLETED")
