"""Groups of runs: what is known of a sweep whose submission the scheduler or the user ended."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from conftest import start

from hpclaunch.errors import SchedulerError
from hpclaunch.runs import groups
from hpclaunch.schedulers.local import Local

SWEEP = ("submit", "--site", "local", "--quiet", "--sweep", "n=0..3", "--", "echo", "{n}")


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize(("error", "code"), [(SchedulerError("too many jobs"), 3), (KeyboardInterrupt(), 130)])
def test_no_job_is_lost_when_a_submission_ends_early(cli, monkeypatch, error, code):
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
    assert result.exit_code == code
    assert f"2 of 4 jobs are submitted; to submit the others: hpclaunch rerun {group.id} --failed" in result.stderr
    assert (str(error) or "interrupted") in result.stderr
    assert [element.ids for element in group.elements] == [["a"], ["b"], [], []]
    table = [line.split()[2:4] for line in cli("status", group.id).stdout.splitlines()[1:]]
    assert table == [["COMPLETED", "0"], ["COMPLETED", "0"], ["not", "submitted"], ["not", "submitted"]]
    for words in (("status", f"{group.id}:3"), ("submit", "--site", "local", "--after", f"{group.id}:3", "--", "true")):
        assert "the scheduler has not taken it" in cli(*words).stderr
    result = cli("submit", "--site", "local", "--after", group.id, "--", "true")
    assert f"not all jobs are submitted; use: hpclaunch rerun {group.id} --failed" in result.stderr
    assert "1 single job;" in cli("rerun", f"{group.id}:0", "--dry-run").stderr
    ids = iter(["c", "d"])
    assert cli("rerun", group.id, "--quiet", "--failed").stdout.strip() == group.id
    assert [one["job"] for one in json.loads(cli("results", group.id, "--json").stdout)] == ["a", "b", "c", "d"]
    assert cli("rerun", group.id, "--failed").exit_code == 1


@pytest.mark.parametrize("sweep", [(), ("--sweep", "n=0..3")])
def test_ctrl_c_loses_no_job_that_was_taken(cli, programs, sweep):
    """A job that the scheduler took when Ctrl-C came is noted; where it did not say so, the message tells."""
    programs("sbatch", 'cat >/dev/null; kill -INT "$PPID"; sleep 0.2; echo 1010')
    result = cli("submit", "--site", "slurm", "--quiet", "-t", "1h", *sweep, "--", "echo", "{n}" if sweep else "a")
    assert (result.exit_code, result.stdout) == ((0, "1010\n") if sweep else (130, "1010\n"))
    assert [run.id for run in groups.runs(["1010"])] == ([f"1010_{n}" for n in range(4)] if sweep else ["1010"])
    programs("sbatch", 'cat >/dev/null; kill -INT "$PPID"; sleep 0.2; kill -INT $$')
    result = cli("submit", "--site", "slurm", "--quiet", "-t", "1h", *sweep, "--", "echo", "{n}" if sweep else "a")
    assert (result.exit_code, result.stdout) == (130, "")
    assert "interrupted, but the scheduler may have the job: look with squeue" in result.stderr


def test_a_name_of_no_group_is_a_runs(cli, monkeypatch):
    """A group, its element and a run are told apart; what is none of them is refused."""
    ids = iter("abcd")
    monkeypatch.setattr(Local, "submit", lambda *_words: next(ids))
    name = cli(*SWEEP).stdout.strip()
    assert [run.id for run in groups.runs([name])] == list("abcd")
    assert [run.id for run in groups.runs(["b", f"{name}:2"])] == ["b", "c"]
    assert [run.id for run in groups.runs([])] == list("abcd")
    for wrong in (f"{name}:7", "e", "results", ""):
        assert all("no run" in cli(command, wrong).stderr for command in ("status", "cancel", "results", "report"))


ARRAY = ("submit", "--site", "slurm", "--quiet", "-t", "1h")


def test_an_array_is_noted_whatever_happens(cli, programs, monkeypatch, tmp_path):
    """An interrupt does not leave half of its jobs unknown, and a full home folder does not lose its id."""
    programs("sbatch", "cat >/dev/null; echo 1010")
    programs("sacct", 'echo "$*" >>asked; echo "1010_1|FAILED|3:0|n1"; echo "1010_3|COMPLETED|0:0|n1"')
    programs("squeue", "true")
    note, folder = groups.note, Path("hpclaunch-runs")
    monkeypatch.setattr(groups, "note", lambda *words: (os.kill(os.getpid(), signal.SIGINT), note(*words))[1])
    result = cli(*ARRAY, "--env", "MAX_TOKENS={n}", "--sweep", "n=0..3", "--", "echo")
    assert (result.stdout, result.stderr) == ("1010\n", "")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert [run.id for run in groups.runs(["1010"])] == [f"1010_{n}" for n in range(4)]
    assert (folder / "1010_0" / "job.sh").stat().st_nlink == 4
    call = cli("rerun", "1010", "--failed", "--dry-run")
    assert "export MAX_TOKENS=1" in call.stdout
    assert "--jobs=1010 " in Path("asked").read_text()
    programs("sbatch", "cat >/dev/null; echo 1020")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    result = cli(*ARRAY, "--array", "0-1", "--", "echo")
    assert (result.exit_code, result.stdout) == (0, "1020\n")
    assert "1020 is submitted, but" in result.stderr
    plan = json.loads((folder / "1020_1" / "plan.json").read_text())
    assert plan["request"]["env"] == {"SLURM_ARRAY_TASK_ID": "1"}


def test_a_sweeps_id_is_said_even_if_stdout_is_full():
    """The jobs are submitted by then."""
    with Path("/dev/full").open("w") as full:
        process = start(*SWEEP, stdout=full)
    stderr = process.communicate(timeout=30)[1]
    assert f"job {groups.newest_first()[0].id} is submitted, but stdout" in stderr
    assert process.returncode == 0


def test_a_scheduler_without_an_answer_knows_of_no_failure(cli, programs):
    """`rerun --failed` and `results` say that nothing is known."""
    programs("sbatch", "cat >/dev/null; echo 1010")
    cli(*ARRAY, "--array", "0-1", "--", "echo")
    programs("sacct", "echo down >&2; exit 1")
    programs("squeue", "echo down >&2; exit 1")
    result = cli("rerun", "1010", "--failed")
    assert result.exit_code == 1
    assert "warning: " in result.stderr and "no job is known to have failed" in result.stderr
    assert "warning: " in cli("results", "1010").stderr


def test_every_program_of_a_sweep_is_looked_up(cli):
    """Not only that of the first job."""
    Path("a.py").touch()
    for site in ("slurm", "local"):
        result = cli("submit", "--site", site, "--sweep", "f=a.py,b.py", "--", "python", "{f}")
        assert "there is no file b.py" in result.stderr
        assert result.exit_code == 1
