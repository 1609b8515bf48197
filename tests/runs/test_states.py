"""What becomes of states: Slurm's answers case by case, schedulers out of reach, jobs that nobody knows."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from conftest import call, program, start, submit

from hpclaunch.executors.job import Watcher
from hpclaunch.runs import registry
from hpclaunch.runs.registry import Run
from hpclaunch.schedulers import slurm
from hpclaunch.schedulers.job import CANCELLED, COMPLETED, FAILED, PENDING, REQUEUED, RUNNING, UNKNOWN, State


@pytest.fixture(autouse=True)
def empty_registry(monkeypatch, tmp_path):
    """An empty registry."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def make_run(job_id: str, scheduler: str, left: str = "", **more: object) -> Run:
    """Register a run; `left` is the exit code in its run folder."""
    folder = Path("hpclaunch-runs", job_id).absolute()
    folder.mkdir(parents=True)
    if left:
        (folder / "exit").write_text(f"{left}\n")
    run = Run(id=job_id, site=scheduler, scheduler=scheduler, job_name="j", folder=str(folder), submitted=0, **more)
    registry.register(run)
    return run


def on_path(work: Path, monkeypatch, name: str, text: str) -> None:
    program(work / "bin" / name, text)
    monkeypatch.setenv("PATH", f"{work / 'bin'}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("sacct", "squeue", "left", "expected"),
    [
        ("COMPLETED|0:0", "", "", State(COMPLETED, "", 0, "n1")),
        ("FAILED|9:0", "", "137", State(FAILED, "", 137, "n1")),
        ("FAILED|9:0", "", "9", State(FAILED, "", 9, "n1")),
        ("FAILED|9:0", "", "", State(FAILED, "", None, "n1")),
        ("FAILED|9:0", "", "1", State(FAILED, "", None, "n1")),
        ("FAILED|139:0", "", "", State(FAILED, "", 139, "n1")),
        ("FAILED|0:9", "", "", State(FAILED, "", 137, "n1")),
        ("FAILED|127:0", "FAILED|0|65280", "", State(FAILED, "", 255, "n1")),
        ("FAILED|0:0", "FAILED|0|32768", "", State(FAILED, "", 128, "n1")),
        ("FAILED|9:0", "COMPLETING|0|0", "", State(RUNNING, "Why", None, "n1")),
        ("FAILED|0:53", "FAILED|0|4021", "", State(FAILED, "0:53", None, "n1")),
        ("OUT_OF_MEMORY|0:125", "OUT_OF_MEMORY|0|125", "", State(FAILED, "OUT_OF_MEMORY", None, "n1")),
        ("CANCELLED by 7|0:15", "", "143", State("CANCELLED", "CANCELLED by 7", None, "n1")),
        ("CANCELLED by 7|0:0", "CANCELLED|0|36608", "", State("CANCELLED", "CANCELLED by 7", None, "n1")),
        ("TIMEOUT|15:0", "", "", State("TIMEOUT", "TIMEOUT", None, "n1")),
        ("PREEMPTED|0:15", "PENDING|1|0", "143", State(REQUEUED, "Why", expected_start=1795305000)),
        ("NODE_FAIL|1:0", "COMPLETING|0|0", "", State(RUNNING, "Why", None, "n1")),
        ("BOOT_FAIL|0:0", "RUNNING|1|0", "", State(RUNNING, "Why", None, "n1")),
        ("NODE_FAIL|0:0", "COMPLETED|1|0", "", State(COMPLETED, "", 0, "n1")),
        ("NODE_FAIL|0:0", "", "", State(FAILED, "NODE_FAIL", None, "n1")),
        ("RUNNING|0:0", "TIMEOUT|0|0", "", State("TIMEOUT", "TIMEOUT", None, "n1")),
        ("PENDING|0:0", "PENDING|0|0", "", State(PENDING, "Why", expected_start=1795305000)),
        ("BRAND_NEW|0:0", "", "", State(UNKNOWN, "BRAND_NEW", None, "n1")),
    ],
)
def test_what_slurm_says(work, monkeypatch, sacct, squeue, left, expected):
    """An end is one that no requeue may follow, an exit code one that the job had, whatever is printed besides."""
    on_path(work, monkeypatch, "sacct", f"echo Welcome; echo '12|{sacct}|n1'")
    row = f"12|{squeue}|1795305000|n1|Why|" if squeue else "13|RUNNING|0|0|N/A|n1|None|"
    on_path(work, monkeypatch, "squeue", f'[ "$SLURM_TIME_FORMAT" = %s ] && echo "Welcome | all" && echo "{row}"')
    assert slurm.states([make_run("12", "slurm", left)])["12"] == expected


def test_a_scheduler_out_of_reach_silences_no_other(monkeypatch):
    """With a home shared by clusters, jobs of the other one are UNKNOWN unless their folder records the end."""
    (here := make_run("local-1", "local")).path.joinpath("exit").write_text("0\n")
    for number, left in enumerate(["", "0", "5", "143"]):
        make_run(f"{number}.gadi-pbs", "pbs", left)
        make_run(str(number), "slurm", left)
    make_run("4", "slurm", "75", max_attempts=3)
    make_run("1.lsf", "lsf")
    monkeypatch.setenv("PATH", "/nowhere")
    process = start("jobs", "--json")
    stdout, stderr = process.communicate(timeout=30)
    words = {row["id"]: (row["word"], row["exit_code"]) for row in json.loads(stdout)}
    gone = (UNKNOWN, None)
    assert words.pop(here.id) == (COMPLETED, 0)
    assert [words[f"{number}.gadi-pbs"] for number in range(4)] == [gone, (COMPLETED, 0), (FAILED, 5), gone]
    assert [words[str(number)] for number in range(5)] == [gone, (COMPLETED, 0), (FAILED, 5), gone, gone]
    assert sorted(line.split(":")[2] for line in stderr.splitlines()) == [
        " no scheduler 'lsf' (known", " qstat", " squeue"
    ]  # fmt: skip
    assert process.returncode == 0
    assert "(no answer from pbs)" in call("status", "0.gadi-pbs", code=3)
    assert "no answer from slurm" in call("why", "0", code=3)
    call("wait", "0.gadi-pbs", code=3)
    call("wait", "2", "1.gadi-pbs", code=5)


def test_what_sacct_knows_is_told_without_squeue(work, monkeypatch):
    """While Slurm's controller is down, jobs that have ended have their state, and only the others have none."""
    on_path(work, monkeypatch, "sacct", "echo '1|COMPLETED|0:0|n1'; echo '2|PREEMPTED|0:0|n1'; echo '3|RUNNING|0:0|n1'")
    on_path(work, monkeypatch, "squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    found = slurm.states([make_run(number, "slurm") for number in "123"])
    assert [found[number].word for number in "123"] == [COMPLETED, UNKNOWN, UNKNOWN]
    on_path(work, monkeypatch, "sacct", "echo '2|PREEMPTED|0:0|n1'; echo '3|RUNNING|0:0|n1'")
    process = start("status", "2", "3")
    assert "Unable to contact slurm controller" in process.communicate(timeout=30)[1]
    assert process.returncode == 3


def test_jobs_of_an_array_that_never_ran_are_one_row(work, monkeypatch):
    """Those of an array that were cancelled while they waited are CANCELLED, though sacct has one row for them."""
    rows = (
        "12_0|COMPLETED|0:0|n1",
        "12_[2-3%1]|CANCELLED by 0|0:0|None assigned",
        "13_[0-1]|PENDING|0:0|None assigned",
    )
    on_path(work, monkeypatch, "sacct", "; ".join(f"echo '{row}'" for row in rows))
    on_path(work, monkeypatch, "squeue", "true")
    found = slurm.states([make_run(name, "slurm") for name in ("12_0", "12_2", "12_3", "13_1", "14")])
    assert {name: found[name].word for name in found if "[" not in name} == {
        "12_0": COMPLETED,
        "12_2": CANCELLED,
        "12_3": CANCELLED,
    }


def test_a_scheduler_out_of_reach_keeps_no_other_job_from_being_cancelled(work):
    """`cancel` of several jobs cancels those that it can, and names the others with the reason and exit code 3."""
    job = submit("--site", "local", "--", "sleep", "100")
    make_run("0.gadi-pbs", "pbs")
    process = start("cancel", "0.gadi-pbs", job, env={**os.environ, "PATH": "/nowhere"})
    assert process.communicate(timeout=30)[1].startswith("hpclaunch: 0.gadi-pbs: not cancelled: qdel: not found")
    assert process.returncode == 3
    call("wait", job, code=143)


def test_one_of_two_pbs_servers_is_down(work, monkeypatch):
    """Jobs of the PBS server that answers keep their states; one warning has the other's words."""
    for server in ("up-pbs", "down-pbs"):
        make_run(f"7.{server}", "pbs")
    on_path(
        work,
        monkeypatch,
        "qstat",
        'case "$*" in *down-pbs*) echo "qstat: cannot connect to server down-pbs (errno=111)" >&2; exit 255;; esac\n'
        'echo \'{"Jobs": {"7.up-pbs": {"job_state": "R"}}}\'',
    )
    process = start("jobs")
    stdout, stderr = process.communicate(timeout=30)
    assert [line.split()[:2] for line in stdout.splitlines()[1:]] == [["7.down-pbs", UNKNOWN], ["7.up-pbs", RUNNING]]
    assert (process.returncode, stderr) == (
        0,
        "hpclaunch: warning: qstat: cannot connect to server down-pbs (errno=111)\n",
    )


def test_nobody_waits_for_a_job_that_nobody_knows(work, qsub):
    """`wait` on a run that its scheduler does not know and whose folder is gone says so and ends with 3."""
    qsub()
    known = submit("--site", "local", "--", "sh", "-c", "exit 6")
    pbs = make_run("4711.gadi-pbs", "pbs")
    local = make_run("local-gone", "local")
    shutil.rmtree(pbs.path)
    shutil.rmtree(local.path)
    process = start("wait", pbs.id, local.id, known)
    stderr = process.communicate(timeout=60)[1]
    assert [line.split(": ")[1] for line in stderr.splitlines()] == [pbs.id, local.id]
    assert "pbs does not know this job" in stderr
    assert process.returncode == 3
    assert "does not know this job" in call("why", pbs.id)


def test_a_result_of_a_job_that_nobody_knows_is_not_waited_for():
    """Submitit's wait ends, with the state UNKNOWN, once the scheduler has said again that it knows no such job."""
    watcher = Watcher()
    watcher.add(Run(id="x", site="s", scheduler="local", job_name="j", folder="/none", submitted=0, poll=0))
    assert [watcher.is_done("x", mode="force") for _ in range(2)] == [False, True]
    assert watcher.get_state("x") == UNKNOWN


def test_a_run_from_the_future_does_not_stay_the_newest(work):
    """After a job that was submitted while the clock was wrong, the newest is again the one submitted last."""
    later = make_run("later", "local")
    (entry,) = (work.parent / "state" / "hpclaunch" / "runs").glob("*.json")
    entry.rename(entry.with_name(f"4102444800000000000-{entry.name.split('-', 1)[1]}"))
    second, third = make_run("second", "local"), make_run("third", "local")
    assert [run.id for run in registry.newest_first()] == [third.id, second.id, later.id]
    assert call("status").splitlines()[1].split()[0] == third.id
    (entry.parent / "8²-odd.json").write_text("{}")
    assert len(registry.newest_first()) == 3
