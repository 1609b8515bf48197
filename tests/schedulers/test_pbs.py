"""The life of a PBS job on the command line: submitted, refused, cancelled, explained, in several attempts."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from conftest import FIRST_ID, call, processes_with, program, start, state, submit, wait_until
from msgspec import structs

from hpclaunch.errors import SchedulerError
from hpclaunch.executors.script import ScriptExecutor
from hpclaunch.job.consider import make_plan
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import make_request
from hpclaunch.profile import search
from hpclaunch.runs import registry
from hpclaunch.runs.registry import Run
from hpclaunch.runs.watch import Watch
from hpclaunch.schedulers import pbs
from hpclaunch.schedulers.job import State

GADI = ("--site", "gadi-here", "-q", "normal", "--cpus-per-task", "1", "--launcher", "tasks")


def test_a_pbs_job_has_the_usual_life(qsub, work):
    """The id alone is printed; status, jobs, logs, wait and why tell of the job, by its id or its number."""
    qsub()
    command = ("sh", "-c", "echo from $RANK on $NODE_RANK; sleep 1; [ $RANK != 3 ] || { echo no data here; exit 7; }")
    job = submit("--site", "pbs-here", "-q", "normal", "--nodes", "2", "--tasks-per-node", "2", "--", *command)
    assert job.endswith(".gadi-pbs")
    call("wait", job.split(".")[0], code=7)
    assert (state(job)["word"], state(job)["exit_code"]) == ("FAILED", 7)
    assert call("logs", "--rank", "3", job) == "from 3 on 1\nno data here\n"
    assert call("jobs").splitlines()[1].split()[:3] == [job, "FAILED", "pbs-here"]
    why = call("why", job)
    assert "rank 3" in why and "no data here" in why
    folder = work / "hpclaunch-runs" / job
    assert {"job.sh", "plan.json", "run.json", "rank-0.log"} <= {path.name for path in folder.iterdir()}


def test_several_jobs_at_once(qsub, work):
    """If qstat answers for the first of several ids only, each of three jobs has its own state and its own end."""
    qsub()
    codes = (0, 0, 4)
    ids = [submit(*GADI, "--", "sh", "-c", f"until [ -e {work}/end ]; do sleep 0.2; done; exit {n}") for n in codes]
    for words in (("status", "--json", *ids), ("jobs", "--json")):
        wait_until(lambda words=words: [row["word"] for row in json.loads(call(*words))] == ["RUNNING"] * 3)
    waiting = start("wait", *ids)
    (work / "end").touch()
    waiting.communicate(timeout=30)
    assert waiting.returncode == 4
    assert [row["exit_code"] for row in json.loads(call("status", "--json", *ids))] == [0, 0, 4]


@pytest.mark.slow
def test_wait_gives_the_jobs_exit_code(qsub):
    """`submit --wait` ends with the job, with its exit code; `--follow` shows what the ranks write meanwhile."""
    qsub()
    assert submit(*GADI, "--wait", "--", "true").endswith(".gadi-pbs")
    process = start("submit", "--quiet", *GADI, "--follow", "--", "sh", "-c", "echo hello; exit 6")
    named = "hpclaunch: not shipped with hpclaunch: site_profiles/gadi-here.yaml\n"
    assert process.communicate(timeout=60)[1] == f"{named}[0] hello\n"
    assert process.returncode == 6


@pytest.mark.slow
def test_the_end_of_a_script_of_ones_own_is_seen_at_once(qsub, work):
    """At a site that is asked every ten minutes `--wait` sees the output come, which is when the job has ended."""
    qsub()
    script = "#!/bin/bash\n#PBS -P ab12\n#PBS -q gpuvolta\n#PBS -l ncpus=96\n#PBS -l ngpus=8\nsleep 2\nexit 4\n"
    (work / "own:1.sh").write_text(script)
    job = submit("--site", "gadi-slow", "--script", "own:1.sh", "--wait", code=4, seconds=40)
    row = state(job)
    assert [row[key] for key in ("job_name", "partition", "nodes", "tasks_per_node")] == ["own_1.sh", "gpuvolta", 2, 1]
    assert list(work.glob("own_1.sh.o*"))
    (work / "named.sh").write_text("#!/bin/bash\n#PBS -N mine -q normal -P ab12 -l ncpus=1\ntrue\n")
    assert state(submit("--site", "gadi-slow", "--script", "named.sh"))["job_name"] == "mine"


def test_a_command_and_a_folder_that_are_not_utf8(qsub, work, monkeypatch):
    """Any byte may stand in a command's word and in the folder's name; nothing fails once PBS has the job."""
    qsub()
    folder = work / os.fsdecode(b"a\xff")
    folder.mkdir()
    (folder / "site_profiles").symlink_to(work / "site_profiles")
    monkeypatch.chdir(folder)
    job = submit(*GADI, "--wait", "--", "printf", os.fsdecode(b"\xff\n"))
    assert (folder / "hpclaunch-runs" / job / "rank-0.log").read_bytes() == b"\xff\n"
    assert (state(job)["word"], state(job)["folder"]) == ("COMPLETED", str(folder / "hpclaunch-runs" / job))


def test_cancel(qsub):
    """A cancelled job ends at once, says who did it, and cancelling it again is no mistake."""
    qsub()
    job = submit(*GADI, "--", "sleep", "100")
    wait_until(lambda: state(job)["word"] == "RUNNING")
    call("cancel", job)
    wait_until(lambda: state(job)["word"] == "CANCELLED")
    call("cancel", job)
    assert "it was cancelled" in call("why", job)
    call("wait", job, code=143)


@pytest.mark.slow
def test_after_waits_for_success(qsub, work):
    """A job --after another starts once that has succeeded; after a failed one it is CANCELLED, and `why` says so."""
    qsub()
    until = f"until [ -e {work}/end ]; do sleep 0.2; done"
    good = submit(*GADI, "--", "sh", "-c", until)
    second = submit(*GADI, "--after", good, "--", "true")
    assert (state(second)["word"], state(second)["reason"]) == ("PENDING", "Dependency")
    (work / "end").touch()
    call("wait", second)
    (work / "end").unlink()
    bad = submit(*GADI, "--", "sh", "-c", f"{until}; exit 1")
    third = submit(*GADI, "--after", bad, "--", "true")
    (work / "end").touch()
    call("wait", third, code=1)
    assert state(third)["word"] == "CANCELLED"
    assert "did not end as required" in call("why", third)


@pytest.mark.parametrize("words", [("--after", "1[]"), ("--after-failed", "1[].gadi-pbs"), ("--after-any", "1[4]")])
def test_what_pbs_does_not_know_of_an_array_is_not_waited_for(qsub, words):
    """PBS says of each array that it succeeded, and lets no job wait for one job of it: nothing is submitted."""
    qsub()
    process = start("submit", *GADI, *words, "--", "true")
    assert "use --after-any ARRAY, or: hpclaunch wait JOB && hpclaunch submit" in process.communicate(timeout=30)[1]
    assert process.returncode == 3


@pytest.mark.slow
def test_after_takes_any_job_of_pbs(qsub, work):
    """Jobs that qsub alone has submitted are waited for by their ids, whole or short, in one dependency with a run."""
    qsub()
    until = f"until [ -e {work}/end ]; do sleep 0.2; done"
    plain = [
        subprocess.run(["qsub", *words], input=until + end, capture_output=True, text=True, check=True).stdout.strip()
        for end, words in (("", []), ("; exit 3", []), ("", ["-J", "0-1"]))
    ]
    good, bad, array = plain
    runs = [
        submit(*GADI, "--after-any", array, "--after-failed", bad.split(".")[0], "--after-any", bad, "--", "true"),
        submit(*GADI, "--after-failed", good, "--", "true"),
    ]
    assert {state(job)["reason"] for job in runs} == {"Dependency"}
    (work / "end").touch()
    call("wait", runs[0])
    call("wait", runs[1], code=1)
    assert "did not end as required" in call("why", runs[1])
    process = start("submit", *GADI, "--after-any", "gadi-pbs", "--", "true")
    assert "have ids like 123, 123.server or 123[]" in process.communicate(timeout=30)[1]
    assert process.returncode == 1


@pytest.mark.job
@pytest.mark.parametrize(
    ("rc", "words", "key"),
    [
        (
            32,
            "qsub: Error: in queue gpuvolta ncpus must be 12 times ngpus: ngpus=1 needs ncpus=12, you asked for 10",
            "partitions.gpuvolta.cpus_per_gpu in",
        ),
        (32, "qsub: Error: You are not a member of project zz99.", "--account"),
        (32, "qsub: Error: gdata/zz99 is not a valid storage", "--storage"),
        (170, "qsub: Unknown queue", "--partition"),
        (166, "qsub: Illegal attribute or resource value Resource_List.walltime", "--walltime"),
        (166, "qsub: Illegal attribute or resource value Resource_List.mem", "--mem-gb"),
        (174, "qsub: Access to queue is denied", "--partition"),
        (188, "qsub: Job exceeds queue and/or server resource limits", "partitions.gpuvolta.walltime, max_cores"),
        (5, 'qsub: "-lresource=" cannot be used with "select" or "place", resource is: ncpus', "cores_per_node"),
        (1, "qsub: script contains cr, lf", ""),
        (2, "qsub: illegal -N value\nusage: qsub [-a date_time] [-A account_string]\n  [-I]", ""),
    ],
)
def test_refusals_come_back_in_pbss_words(work, monkeypatch, tmp_path, rc, words, key):
    """What qsub refuses ends with exit code 3, its own words, the key to look at, and nothing is left behind."""
    program(work / "bin" / "qsub", f"cat >/dev/null\ncat >&2 <<'END'\n{words}\nEND\nexit {rc}")
    monkeypatch.setenv("PATH", f"{work / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    process = start("submit", "--quiet", "--site", "gadi", "-A", "ab12", "--", "true")
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (3, "")
    assert stderr.startswith(f"hpclaunch: {words.splitlines()[0]}\n")
    assert "usage" not in stderr
    assert key in stderr
    assert bool(key) == ("look at" in stderr)
    assert not (work / "hpclaunch-runs").exists()
    assert json.loads(call("jobs", "--json")) == []


def test_without_qsub_the_message_says_where_one_is(work, monkeypatch):
    """Away from a login node, submitting ends with one line."""
    monkeypatch.setenv("PATH", "/nowhere")
    process = start("submit", "--quiet", "--site", "gadi", "-A", "ab12", "--", "true")
    assert "qsub: not found; is this a login node" in process.communicate(timeout=60)[1]
    assert process.returncode == 3


def test_a_job_that_pbs_dropped_keeps_nobody_waiting(qsub):
    """Where qsub printed an id and PBS then rejected the job, `wait` ends and `why` says what may be the cause."""
    qsub()
    job = submit(*GADI, "--directive=-l foo=1", "--", "true")
    call("wait", job, code=1)
    assert (state(job)["word"], state(job)["reason"]) == ("FAILED", "vanished")
    assert "a resource that the site does not have" in call("why", job)


@pytest.mark.slow
def test_without_history_the_end_is_known_all_the_same(qsub):
    """At a site that forgets jobs as they end, the exit code comes from the run folder."""
    qsub(history=False)
    call("wait", submit(*GADI, "--", "true"))
    job = submit(*GADI, "--", "sh", "-c", "exit 5")
    call("wait", job, code=5)
    assert state(job)["word"] == "FAILED"


@pytest.mark.slow
def test_without_history_live_jobs_are_followed_and_cancelled(qsub):
    """Such a server refuses every `qstat -x`: what waits and runs is seen all the same, and what was cancelled."""
    qsub(history=False)
    runs = submit(*GADI, "--", "sleep", "100")
    waits = submit(*GADI, "--after-any", runs, "--", "true")
    wait_until(lambda: state(runs)["word"] == "RUNNING")
    assert (state(waits)["word"], state(waits)["reason"]) == ("PENDING", "Dependency")
    call("cancel", waits)
    assert state(waits)["word"] == "CANCELLED"
    call("cancel", runs)
    call("wait", runs, code=143)
    assert state(runs)["word"] == "CANCELLED"


def planned(name: str, **options: object) -> Plan:
    request = make_request({"site": name, "partition": "normal", "cpus_per_task": 1, "command": ["true"], **options})
    return make_plan(search.load(name), request)


# What a job script does where attempts are submitted up front: the second one ends the run.
IN_TWO = """#!/bin/bash
#PBS -N two
#PBS -q normal
#PBS -l ncpus=1
#PBS -l mem=1GB
#PBS -l walltime=00:05:00
folder=$PBS_O_WORKDIR/hpclaunch-runs/${HPCLAUNCH_JOB:-$PBS_JOBID}
mkdir -p "$folder" && cd "$folder" || exit 1
[[ -e exit ]] && exit "$(cat exit)"
sleep 1
echo "attempt ${HPCLAUNCH_ATTEMPT:-1}" >>rank-0.log
[[ ${HPCLAUNCH_ATTEMPT:-1} == 2 ]] && echo 0 >exit
exit 0
"""


@pytest.mark.slow
def test_where_jobs_may_not_submit_all_attempts_are_submitted_at_once(qsub, work):
    """Three attempts are three jobs in a row and one run, which ends with its second; one `cancel` ends them all."""
    qsub()
    plan = structs.replace(planned("gadi-no-qsub"), max_attempts=3)
    run = ScriptExecutor(plan).submit_script(IN_TWO).run
    assert len(run.further_ids) == 2
    assert [found.id for found in registry.newest_first()] == [run.id]
    call("wait", run.id)
    assert (run.path / "rank-0.log").read_text() == "attempt 1\nattempt 2\n"
    other = ScriptExecutor(plan).submit_script(IN_TWO.replace("sleep 1", "sleep 100")).run
    wait_until(lambda: state(other.id)["word"] == "RUNNING")
    call("cancel", other.id)
    wait_until(lambda: state(other.id)["word"] == "CANCELLED")
    assert state(other.id)["reason"].startswith("CANCELLED by ")
    time.sleep(2)
    assert not (other.path / "rank-0.log").exists()


def test_a_refused_attempt_takes_the_others_back(qsub, work, monkeypatch):
    """Where a further qsub is refused, the jobs before it are deleted, or named if that fails too."""
    qsub()
    real = next(Path(folder, "qsub") for folder in os.environ["PATH"].split(":") if Path(folder, "qsub").exists())
    refuse = "echo qsub: would exceed queue normal\\'s per-user limit >&2; exit 67"
    program(work / "bin" / "qsub", f'case "$*" in *ATTEMPT=3*) {refuse};; esac\nexec "{real}" "$@"')
    monkeypatch.setenv("PATH", f"{work / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(SchedulerError, match="per-user limit"):
        ScriptExecutor(structs.replace(planned("gadi-no-qsub"), max_attempts=4)).submit_script(
            IN_TWO.replace("sleep 1", "sleep 100")
        )
    wait_until(lambda: processes_with(f"PBS_O_WORKDIR={work}") == [])
    assert registry.newest_first() == []
    program(work / "bin" / "qdel", "echo qdel: cannot connect to server >&2\nexit 111")
    with pytest.raises(
        SchedulerError,
        match=rf"per-user limit\n{FIRST_ID + 2}\S+ {FIRST_ID + 3}\S+: submitted, and not deleted: qdel: cannot",
    ):
        ScriptExecutor(structs.replace(planned("gadi-no-qsub"), max_attempts=4)).submit_script(
            "#PBS -l ncpus=1 -q normal\ntrue\n"
        )


@pytest.mark.slow
def test_a_slow_site_is_asked_seldom_and_the_end_is_seen_at_once(work, monkeypatch):
    """With a `poll` of ten minutes, waiting asks at the beginning and once when the run folder has the exit code."""
    folder = work / "hpclaunch-runs" / "1.gadi-pbs"
    folder.mkdir(parents=True)
    answer = work / "answer"
    answer.write_text('{"Jobs": {"1.gadi-pbs": {"job_state": "R"}}}')
    program(work / "bin" / "qstat", f"echo asked >>{work}/asked\ncat {answer}")
    monkeypatch.setenv("PATH", f"{work / 'bin'}:{os.environ['PATH']}")
    run = Run(id="1.gadi-pbs", site="g", scheduler="pbs", job_name="j", folder=str(folder), submitted=0, poll=600)
    watch = Watch([run])
    for _ in range(20):
        assert not watch.look()
        time.sleep(0.1)
    (folder / "exit").write_text("7\n")
    answer.write_text('{"Jobs": {"1.gadi-pbs": {"job_state": "F", "Exit_status": 7}}}')
    wait_until(watch.look, 5)
    assert watch.states["g", "1.gadi-pbs"].exit_code == 7
    assert (work / "asked").read_text() == "asked\n" * 2


@pytest.mark.slow
def test_a_job_that_is_cancelled_elsewhere_ends_the_wait(qsub, work):
    """`wait` at a site that is asked seldom ends soon after somebody cancelled the job before it began."""
    qsub()
    first = submit(*GADI, "--", "sleep", "100")
    job = submit("--site", "gadi-slow", *GADI[2:], "--after", first, "--", "true")
    waiting = start("wait", job)
    time.sleep(2)
    call("cancel", job)
    waiting.communicate(timeout=30)
    assert waiting.returncode == 1
    call("cancel", first)


def test_a_server_that_restarts_ends_no_wait(work, monkeypatch):
    """A question without an answer is repeated; only the very first, or many in a row, end the waiting."""
    answers = iter(
        [
            {"1": State("RUNNING")},
            SchedulerError("down"),
            SchedulerError("down"),
            {"1": State("COMPLETED")},
        ]
    )

    def states(asked):
        answer = next(answers)
        if isinstance(answer, SchedulerError):
            raise answer
        return answer

    monkeypatch.setattr(pbs.Pbs, "states", staticmethod(states))
    watch = Watch([Run(id="1", site="g", scheduler="pbs", job_name="j", folder="/none", submitted=0)])
    assert [watch.look(force=True) for _ in range(4)] == [False, False, False, True]
    monkeypatch.setattr(pbs.Pbs, "states", staticmethod(lambda asked: (_ for _ in ()).throw(SchedulerError("down"))))
    with pytest.raises(SchedulerError):
        Watch([Run(id="2", site="g", scheduler="pbs", job_name="j", folder="/none", submitted=0)]).look()
