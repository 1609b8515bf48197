"""Groups of runs: what is known of a sweep whose submission the scheduler or the user ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpclaunch.errors import SchedulerError
from hpclaunch.runs import groups
from hpclaunch.schedulers.local import Local

SWEEP = ("submit", "--site", "local", "--quiet", "--sweep", "n=0..3", "--", "echo", "{n}")


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize("error", [SchedulerError("too many jobs"), KeyboardInterrupt()])
def test_no_job_is_lost_when_a_submission_ends_early(cli, monkeypatch, error):
    """The message has the sweep's id; the jobs that are submitted have theirs, and a rerun submits the others."""
    ids = iter(["a", "b"])

    def submit(*_words: object) -> str:
        job = next(ids, None)
        if job is None:
            raise error
        folder = Path("hpclaunch-runs", job)
        folder.mkdir(parents=True)
        (folder / "exit").write_text("0\n")
        return job

    monkeypatch.setattr(Local, "submit", submit)
    result = cli(*SWEEP)
    (group,) = groups.newest_first()
    assert result.exit_code == 3
    assert f"2 of 4 jobs are submitted; for others: hpclaunch rerun {group.id} --failed" in result.stderr
    assert (str(error) or "interrupted") in result.stderr
    assert [element.ids for element in group.elements] == [["a"], ["b"], [], []]
    table = [line.split()[2:4] for line in cli("status", group.id).stdout.splitlines()[1:]]
    assert table == [["COMPLETED", "0"], ["COMPLETED", "0"], ["not", "submitted"], ["not", "submitted"]]
    ids = iter(["c", "d"])
    assert cli("rerun", group.id, "--failed", "--quiet").stdout.strip() == group.id
    assert [one["job"] for one in json.loads(cli("results", group.id, "--json").stdout)] == ["a", "b", "c", "d"]
    assert cli("rerun", group.id, "--failed").exit_code == 1


def test_a_name_of_no_group_is_a_runs(cli, monkeypatch):
    """A group, its element and a run are told apart; what is none of them is refused."""
    ids = iter("abcd")
    monkeypatch.setattr(Local, "submit", lambda *_words: next(ids))
    name = cli(*SWEEP).stdout.strip()
    assert [run.id for run in groups.runs([name])] == list("abcd")
    assert [run.id for run in groups.runs(["b", f"{name}:2"])] == ["b", "c"]
    assert [run.id for run in groups.runs([])] == list("abcd")
    for wrong in (f"{name}:7", "e", "results"):
        assert "no run" in cli("status", wrong).stderr
