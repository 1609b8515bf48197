"""The life of a job on a machine without a scheduler, and the registry of runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import call, processes_with, program, start, state, submit, wait_until

from hpclaunch import paths
from hpclaunch.errors import HpclaunchError
from hpclaunch.runs import registry
from hpclaunch.schedulers import scheduler


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HPCLAUNCH_SITE", "local")


def word(job: str) -> str:
    return state(job)["word"]


def test_a_job_without_a_scheduler_has_the_same_life(work):
    """On a laptop a job runs in the background, has states, logs and an exit code, and outlives the command line."""
    job = submit(
        "--tasks-per-node", "2", "--", "sh", "-c", "echo from $RANK; until [ -e go ]; do sleep 0.1; done; exit 4"
    )
    assert word(job) == "RUNNING"
    (work / "go").touch()
    call("wait", job, code=4)
    assert word(job) == "FAILED"
    assert (work / "hpclaunch-runs" / job / "rank-1.log").read_text() == "from 1\n"
    assert "first failure: rank" in (work / "hpclaunch-runs" / job / "job.out").read_text()
    assert submit("--wait", "--", "true").startswith("local-")
    call("submit", "--quiet", "--wait", "--", "sh", "-c", "exit 6", code=6)


def test_dry_run_is_render(cli):
    """`submit --dry-run` prints the script and submits nothing."""
    words = ("--nodes", "2", "--quiet", "--", "true")
    assert call("submit", "--dry-run", *words) == cli("render", *words).stdout
    assert json.loads(call("jobs", "--json")) == []


def test_cancelled_is_cancelled(work):
    """`cancel` takes the newest job by default, ends every process of it, and the job says so."""
    job = submit("--tasks-per-node", "2", "--", "sleep", "100")
    wait_until(lambda: len(list((work / "hpclaunch-runs" / job).glob("rank-*.log"))) == 2)
    call("cancel")
    wait_until(lambda: word(job) == "CANCELLED", 15)
    assert processes_with(str(work / "hpclaunch-runs" / job)) == []
    call("wait", job, code=143)
    call("cancel", job)


def test_a_job_whose_folder_is_gone_is_not_called_cancelled(work):
    """Without its run folder nothing can be ended, and that is said; where the folder was moved to the job is found."""
    job = submit("--", "sleep", "100")
    folder, elsewhere = work / "hpclaunch-runs" / job, work / "elsewhere"
    wait_until((folder / "rank-0.log").exists)
    folder.rename(elsewhere)
    cancel = start("cancel", job)
    assert "is gone, and with it the number of its process" in cancel.communicate(timeout=20)[1]
    assert (cancel.returncode, word(job)) == (3, "UNKNOWN")
    assert state(str(elsewhere))["word"] == "RUNNING"
    elsewhere.rename(folder)
    call("cancel", job)
    wait_until(lambda: processes_with(str(folder)) == [])


@pytest.mark.slow
def test_jobs_wait_for_the_ends_of_others(work, monkeypatch):
    """A job starts after a success, an end of any kind, or a failure, as required, in any folder; else never."""
    good = submit("--", "sh", "-c", "until [ -e go ]; do sleep 0.1; done")
    bad = submit("--", "false")
    (work / "other").mkdir()
    monkeypatch.chdir(work / "other")
    runs = [
        submit("--after", good, "--after-failed", bad, "--after-any", good, "--after-any", bad, "--", "true"),
        submit("--after-failed", good, "--", "true"),
        submit("--after-any", good, "--after", bad, "--", "true"),
    ]
    assert word(runs[0]) == "PENDING"
    (work / "go").touch()
    for job, code in zip(runs, (0, 1, 1), strict=True):
        call("wait", job, code=code)
    assert [word(job) for job in runs] == ["COMPLETED", "CANCELLED", "CANCELLED"]
    assert "did not end as required, so it never started" in call("why", runs[1])


def test_a_killed_job_is_no_success_to_wait_for(work):
    """A job that leaves no exit code, as its keeper was killed, has failed for those that wait for it."""
    job = submit("--", "sleep", "100")
    waits = submit("--after-failed", job, "--", "true")
    os.killpg(int((work / "hpclaunch-runs" / job / "pid").read_text()), signal.SIGKILL)
    call("wait", waits)


def test_only_runs_are_waited_for_here():
    """On this machine no other job can be waited for: --after takes the id of a run."""
    process = start("submit", "--after-any", "4711", "--", "true")
    assert "--after-any: no run '4711': `hpclaunch jobs` lists them" in process.communicate(timeout=30)[1]
    assert process.returncode == 1


def test_a_killed_job_is_not_taken_for_a_running_one(work):
    """Where the machine went down or the job's keeper was killed, the job is FAILED, with the reason."""
    job = submit("--", "sleep", "100")
    keeper = int((work / "hpclaunch-runs" / job / "pid").read_text())
    wait_until(lambda: word(job) == "RUNNING")
    os.killpg(keeper, signal.SIGKILL)
    row = json.loads(call("status", "--json", job))[0]
    assert (row["word"], row["reason"]) == ("FAILED", "its process is gone")


def test_a_job_of_another_machine_is_not_taken_for_a_dead_one(work):
    """Where machines share a home, a job of another one is UNKNOWN until its end is on record, and cancelled there."""
    job = submit("--", "sleep", "100")
    host = work / "hpclaunch-runs" / job / "host"
    here = host.read_text()
    host.write_text("laptop")
    row = json.loads(call("status", "--json", job))[0]
    assert (row["word"], row["reason"]) == ("UNKNOWN", "it runs on laptop")
    process = start("cancel", job)
    assert "it runs on laptop; cancel it there" in process.communicate(timeout=30)[1]
    host.write_text(here)
    assert word(job) == "RUNNING"
    call("cancel", job)
    call("wait", job, code=143)
    host.write_text("laptop")
    assert word(job) == "CANCELLED"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the jobs outlive their objects
def test_a_job_that_has_just_started_is_not_taken_for_a_dead_one(work):
    """Asked for in the moment of its start, a job waits or runs."""
    for _ in range(30):
        job = scheduler("local").submit("true")
        folder = str(work / "hpclaunch-runs" / job)
        run = registry.Run(id=job, site="local", scheduler="local", job_name="true", folder=folder, submitted=0)
        assert scheduler("local").states([run])[job].word != "FAILED"


def test_a_moved_folder_is_found_again(work, tmp_path, monkeypatch):
    """A run whose folder was moved is known by its path, and by its id where it lies in ./hpclaunch-runs."""
    job = submit("--wait", "--", "echo", "hello")
    elsewhere = tmp_path / "elsewhere" / "hpclaunch-runs"
    elsewhere.parent.mkdir()
    (work / "hpclaunch-runs").rename(elsewhere)
    assert call("logs", str(elsewhere / job)) == "[0] hello\n"
    monkeypatch.chdir(elsewhere.parent)
    assert call("logs", job) == "[0] hello\n"
    assert word(job) == "COMPLETED"


def test_registry_survives_what_is_no_entry():
    """Half-written, foreign and empty files in the registry hide nothing."""
    job = submit("--wait", "--", "true")
    folder = paths.user_state() / "runs"
    (folder / "1-local-x.json").write_text('{"id": "x", ')
    (folder / "2-local-y.json").write_text("")
    (folder / ".3.new").write_text("{")
    entry = {"id": "\ud800", "site": "s", "scheduler": "local", "job_name": "j", "folder": "/none", "submitted": 0}
    (folder / "4-local-z.json").write_text(json.dumps(entry))
    assert [row["id"] for row in json.loads(call("jobs", "--json"))] == [job]


def test_a_registry_that_cannot_be_written_is_a_warning(work, monkeypatch):
    """The id is printed all the same, `--wait` goes on, and the job is known by its id in the folder of submission."""
    (work / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(work / "file"))
    process = start("submit", "--quiet", "--wait", "--", "sh", "-c", "exit 7")
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 7
    assert (
        stderr == f"hpclaunch: warning: job {stdout.strip()} is submitted, but {work}/file/hpclaunch/runs cannot be "
        "written: Not a directory\n"
    )
    assert word(stdout.strip()) == "FAILED"


def test_an_id_that_cannot_be_printed_is_told_on_stderr():
    """With a full disk behind stdout the job is registered, and the warning has its id."""
    with Path("/dev/full").open("w") as full:
        process = start("submit", "--quiet", "--", "true", stdout=full)
        _, stderr = process.communicate(timeout=30)
    (row,) = json.loads(call("jobs", "--json"))
    assert stderr == f"hpclaunch: warning: job {row['id']} is submitted, but stdout: No space left on device\n"


def test_a_script_that_is_not_utf8_is_printed_or_refused_in_bashs_words(work, monkeypatch):
    """Its bytes are printed as they are, in a locale that knows only UTF-8 too, and an error in it is one message."""
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8:strict")
    (work / "own.sh").write_bytes(b"echo \xff\n")
    command = [sys.executable, "-m", "hpclaunch", "submit", "--dry-run", "--script", "own.sh"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"echo \xff\n"
    (work / "own.sh").write_bytes(b"echo \xff )\n")
    process = start("submit", "--script", "own.sh")
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (1, "")
    assert "syntax error" in stderr
    assert "Traceback" not in stderr


def test_a_command_and_a_folder_that_are_not_utf8(work, monkeypatch):
    """Any byte may stand in a command's word and in the folder's name; the job is found again by both."""
    folder = work / os.fsdecode(b"a\xff")
    folder.mkdir()
    monkeypatch.chdir(folder)
    job = submit("--wait", "--", "printf", os.fsdecode(b"\xff\n"))
    assert (folder / "hpclaunch-runs" / job / "rank-0.log").read_bytes() == b"\xff\n"
    row = state(job)
    assert (row["word"], row["folder"]) == ("COMPLETED", str(folder / "hpclaunch-runs" / job))
    assert registry.find([job])[0].path.is_dir()


POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    ("reason", "option"),
    [
        ("QOSMaxSubmitJobPerUserLimit", "--qos and the number of your jobs (hpclaunch jobs)"),
        ("AssocMaxSubmitJobLimit", "--qos and the number of your jobs (hpclaunch jobs)"),
        ("QOSMaxWallDurationPerJobLimit", "--walltime and --qos"),
        ("QOSMaxNodePerJobLimit", "--qos and the sizes"),
    ],
)
def test_a_limit_of_a_qos_is_not_blamed_on_the_account(work, monkeypatch, reason, option):
    """What sbatch refuses for a limit (its words of 22.05) names the option that the limit is about."""
    words = f"sbatch: error: {reason}\nsbatch: error: Batch job submission failed: {POLICY}"
    program(work / "sbatch", f"cat >&2 <<'END'\n{words}\nEND\ncat >/dev/null\nexit 1")
    monkeypatch.setenv("PATH", f"{work}:{os.environ['PATH']}")
    process = start("submit", "--quiet", "--site", "jean-zay", "-A", "abc@v100", "--", "true")
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (3, "")
    assert f"hpclaunch: look at {option}, or at partitions." in stderr


def test_no_file_is_left_half_written(tmp_path, monkeypatch):
    """A write that fails half-way leaves the old content and no other file."""
    path = tmp_path / "run.json"
    paths.write_whole(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        paths.write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.glob(".*")) == []


def test_unknown_job_is_one_message():
    """A job that nobody knows, and no job at all, are said so."""
    with pytest.raises(HpclaunchError, match="no runs yet"):
        registry.find([])
    process = start("status", "4711")
    assert "no run '4711'" in process.communicate(timeout=30)[1]
    assert process.returncode == 1


def test_python_functions_run_here_too():
    """hpclaunch.executor("local") gives submitit jobs with results, on a machine without a scheduler."""
    script = (
        "import hpclaunch, os, submitit\n"
        "def hosts():\n"
        "    place = submitit.helpers.TorchDistributedEnvironment().export()\n"
        "    return [place.rank, *submitit.JobEnvironment().hostnames]\n"
        "executor = hpclaunch.executor('local', nodes=2)\n"
        "job = executor.submit(hosts)\n"
        "print(job.results())\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    hosts = ["127.0.0.1", "127.0.0.1"]
    assert run.stdout == f"{[[0, *hosts], [1, *hosts]]}\n", run.stderr


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("hpclaunch render --site ga", "gadi"),
        ("hpclaunch render --site gadi -p gpuv", "gpuvolta"),
        ("hpclaunch render --site jean-zay -p gpu_p5", "gpu_p5"),
        ("hpclaunch can", "cancel"),
        ("hpclaunch logs local-", "local-"),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete(monkeypatch, shell, words, offered):
    """Commands, sites, partitions and jobs complete in bash, zsh and fish."""
    if offered == "local-":
        offered = submit("--", "true")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1) if shell != "fish" else words.split()[-1])
    monkeypatch.setenv("_HPCLAUNCH_COMPLETE", f"{shell}_complete")
    process = start()
    assert offered in process.communicate(timeout=30)[0]


def test_completion_prints_a_script():
    """`hpclaunch completion SHELL` prints what the shell evaluates."""
    for shell in ("bash", "zsh", "fish"):
        assert "_HPCLAUNCH_COMPLETE" in call("completion", shell)


def test_list_is_quick_with_many_runs():
    """The newest of a thousand runs come first."""
    began = time.time()
    for number in range(1000):
        run = registry.Run(id=str(number), site="s", scheduler="local", job_name="j", folder="/none", submitted=began)
        registry.register(run)
    assert [run.id for run in registry.newest_first()[:3]] == ["999", "998", "997"]
