"""The life of a job on the stand-in: as OpenPBS 23.06 let them live and end."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path

import pytest
from conftest import FIRST_ID, processes_with, wait_until
from standin import pbs as rehearsal_pbs

REPORT = """\
python3 -c 'import json, os, stat, sys
print(json.dumps(dict(os.environ, cwd=os.getcwd(), umask=oct(os.umask(0)),
    pipe=stat.S_ISFIFO(os.fstat(0).st_mode), session=os.getsid(0) == os.getppid())))'
echo "$0"
"""
SLEEP = "echo $$ >pid\nsleep 100\n"


def output(job: dict) -> str:
    return Path(job["Output_Path"].partition(":")[2]).read_text()


def running(pbs, job_id):
    wait_until(lambda: pbs.job(job_id)["job_state"] == "R")
    time.sleep(0.3)


def test_a_job_starts_with_nothing_of_the_submission(standin, monkeypatch, tmp_path):
    """The script runs in $HOME with PBS's own variables, umask 077, a pipe on stdin, from the server's own copy."""
    monkeypatch.setenv("MINE", "not there")
    pbs = standin()
    job = pbs.ended(pbs.submit(f"#PBS -q gpuvolta\n#PBS -l ncpus=96,ngpus=8\n{REPORT}", "-N", "train"))
    report, name = output(job).splitlines()
    found = json.loads(report)
    assert found["cwd"] == str(tmp_path / "home")
    assert found["PBS_O_WORKDIR"] == str(Path.cwd())
    assert "MINE" not in found
    assert (found["umask"], found["pipe"]) == ("0o77", True)
    assert (found["PBS_JOBID"], found["PBS_JOBNAME"], found["PBS_QUEUE"]) == (
        f"{FIRST_ID}.gadi-pbs",
        "train",
        "gpuvolta-exec",
    )
    assert (found["NCPUS"], found["OMP_NUM_THREADS"], found["PBS_NCPUS"]) == ("48", "48", "96")
    assert name == str(pbs.folder / "mom_priv" / "jobs" / f"{FIRST_ID}.gadi-pbs.SC")
    assert stat.S_IMODE(Path(name).stat().st_mode) == 0o700


def test_wd_starts_in_the_folder_of_submission(standin, work):
    """With -l wd the script starts where it was submitted."""
    pbs = standin()
    job = pbs.ended(pbs.submit("pwd", "-l", "wd"))
    assert output(job) == f"{work}\n"
    assert (job["Resource_List"]["wd"], job["Variable_List"]["PBS_NCI_WD"]) == (1, 1)


@pytest.mark.parametrize(("lines", "count"), [("cpu", 96), ("gpu", 8), ("node", 2)])
def test_the_nodefile_repeats_hosts(standin, lines, count):
    """The nodefile has a line for each CPU, GPU or node, host after host."""
    pbs = standin(hosts=["127.0.0.1", "127.0.0.2"], lines=lines)
    job = pbs.ended(pbs.submit('cat "$PBS_NODEFILE"', "-q", "gpuvolta", "-l", "ncpus=96,ngpus=8"))
    assert output(job).split() == ["127.0.0.1"] * (count // 2) + ["127.0.0.2"] * (count // 2)


def test_chunks_share_a_host_unless_scattered(standin):
    """Two small chunks are packed on one host, whose name stands in the nodefile twice; place=scatter parts them."""
    pbs = standin()
    packed = pbs.ended(pbs.submit('cat "$PBS_NODEFILE"', "-l", "select=2:ncpus=12"))
    assert output(packed).split() == ["127.0.0.1", "127.0.0.1"]
    parted = pbs.ended(pbs.submit('cat "$PBS_NODEFILE"', "-l", "select=2:ncpus=12:mpiprocs=2", "-l", "place=scatter"))
    assert output(parted).split() == ["127.0.0.1"] * 2 + ["127.0.0.2"] * 2


@pytest.mark.parametrize(
    ("script", "status", "substate", "words"),
    [
        ("exit 0", 0, 92, "and finished"),
        ("exit 7", 7, 93, "and failed"),
        ("kill -KILL $$", 137, 93, "and failed"),
        ("kill -TERM $$", 143, 93, "and failed"),
        ("nosuchcommand", 127, 93, "and failed"),
        ("#!/nosuch/interpreter\ntrue", 127, 93, "and failed"),
        ("", 127, 93, "and failed"),
        ("#!/usr/bin/env python3\nraise SystemExit(5)", 5, 93, "and failed"),
    ],
)
def test_exit_status(standin, script, status, substate, words):
    """Exit_status is the script's, or that of the shell around it; the shebang counts."""
    pbs = standin()
    job = pbs.ended(pbs.submit(script))
    assert (job["Exit_status"], job["substate"], job["job_state"]) == (status, substate, "F")
    assert job["comment"].endswith(words)


def test_output_appears_after_the_end(standin, work):
    """While a job runs its output is in the spool; with -koed it is written straight to its file."""
    pbs = standin()
    pbs.submit("echo early; sleep 1.5", "-N", "spooled")
    pbs.submit("echo early; sleep 1.5", "-N", "direct", "-koed")
    wait_until((work / f"direct.o{FIRST_ID + 1}").exists)
    wait_until(lambda: (work / f"direct.o{FIRST_ID + 1}").read_text() == "early\n")
    assert not (work / f"spooled.o{FIRST_ID}").exists()
    pbs.ended(f"{FIRST_ID}.gadi-pbs")
    assert (work / f"spooled.o{FIRST_ID}").read_text() == "early\n"


@pytest.mark.slow
def test_walltime(standin):
    """A job past its walltime gets SIGTERM, then SIGKILL; it reads -29 whatever its trap does, and says why."""
    pbs = standin()
    script = "trap 'echo trapped; exit 42' TERM\nwhile :; do sleep 0.1; done"
    job = pbs.ended(pbs.submit(script, "-j", "oe", "-l", "walltime=1"))
    assert (job["Exit_status"], job["substate"]) == (-29, 93)
    assert job["comment"].endswith("and exceeded resource walltime")
    assert "=>> PBS: job killed: walltime 2 exceeded limit 1\n" in output(job)
    assert "trapped" in output(job)


@pytest.mark.slow
def test_qdel(standin):
    """A deleted job reads 271 whatever its trap says, and what ignores SIGTERM is killed after kill_delay."""
    pbs = standin()
    polite = pbs.submit("trap 'exit 42' TERM\nwhile :; do sleep 0.1; done")
    stubborn = pbs.submit("trap '' TERM\nsleep 5003.271828")
    queued = pbs.submit("true", "-h")
    for job_id in (polite, stubborn):
        running(pbs, job_id)
    pbs.call("qdel", polite, stubborn, queued)
    for job_id in (polite, stubborn):
        job = pbs.ended(job_id)
        assert (job["Exit_status"], job["substate"]) == (271, 91)
        assert "and terminated by " in job["comment"]
    assert processes_with("5003.271828") == []
    assert "Exit_status" not in pbs.ended(queued)


def test_qdel_by_force(standin):
    """With -W force there is no warning and the status is 265."""
    pbs = standin()
    job_id = pbs.submit("sleep 100")
    running(pbs, job_id)
    pbs.call("qdel", "-W", "force", job_id)
    assert pbs.ended(job_id)["Exit_status"] == 265


def test_qdel_does_what_it_can(standin):
    """Finished, unknown and malformed ids have exit codes of their own, a bare number is unknown, the rest is done."""
    pbs = standin()
    done = pbs.submit("true")
    pbs.ended(done)
    held = pbs.submit("true", "-h")
    assert "Job has finished" in pbs.call("qdel", done, code=35).stderr
    assert "Unknown Job Id" in pbs.call("qdel", "999.gadi-pbs", code=153).stderr
    assert "illegally formed" in pbs.call("qdel", "what", code=1).stderr
    pbs.call("qdel", FIRST_ID + 1, code=153)
    pbs.call("qdel", "999.gadi-pbs", held, code=153)
    assert pbs.job(held)["job_state"] == "F"


def test_qsig(standin):
    """A signal kills the login shell too, so USR1 ends the job with 266; bad names and states are refused."""
    pbs = standin()
    job_id = pbs.submit("trap 'echo heard' USR1\nsleep 100")
    running(pbs, job_id)
    pbs.call("qsig", "-s", "NOSUCH", job_id, code=165)
    pbs.call("qsig", "-s", "USR1", job_id)
    assert pbs.ended(job_id)["Exit_status"] == 266
    pbs.call("qsig", job_id, code=168)


def test_qstat_of_the_finished_and_the_unknown(standin):
    """Without -x a finished job is 35, an unknown one 153; the JSON has no Jobs then, and the known ones else."""
    pbs = standin(answers_one=False)
    assert "Jobs" not in json.loads(pbs.call("qstat", "-f", "-F", "json").stdout)
    done = pbs.submit("true")
    pbs.ended(done)
    answer = pbs.call("qstat", "-f", "-F", "json", done, code=35)
    assert "Job has finished, use -x or -H" in answer.stderr
    assert "Jobs" not in json.loads(answer.stdout)
    answer = pbs.call("qstat", "-x", "-f", "-F", "json", done, "999.gadi-pbs", code=153)
    assert list(json.loads(answer.stdout)["Jobs"]) == [done]
    assert pbs.call("qstat").stdout == ""
    assert pbs.call("qstat", "-x").stdout.splitlines()[-1].split()[-2:] == ["F", "normal-exec"]


def test_qstat_of_several(standin):
    """As JSON, and without -E, newer versions show the first of several jobs only and say nothing of the others."""
    pbs = standin()
    ids = [pbs.submit("true"), pbs.submit("true")]
    for words, shown in ((("json",), ids[:1]), (("json", "-E"), ids)):
        answer = pbs.call("qstat", "-x", "-f", "-F", *words, *ids)
        assert (list(json.loads(answer.stdout)["Jobs"]), answer.stderr) == (shown, "")
    assert pbs.call("qstat", "-x", "-f", *ids).stdout.count("Job Id:") == 2


def test_qstat_of_the_waiting(standin):
    """A job that waits has no host yet; one that can never run says so in its comment."""
    pbs = standin(hosts=["127.0.0.1"])
    first = pbs.submit("sleep 100")
    waits = pbs.submit("true")
    never = pbs.submit("true", "-l", "ncpus=96")
    assert pbs.job(first)["exec_host"] == "127.0.0.1/0*1"
    job = pbs.job(waits)
    assert job["job_state"] == "Q"
    assert not {"exec_host", "run_count", "Exit_status"} & set(job)
    assert pbs.job(never)["comment"] == "Can Never Run: Not enough total nodes available"
    pbs.call("qdel", first)
    assert pbs.ended(waits)["Exit_status"] == 0


def test_without_history_a_finished_job_is_unknown(standin):
    """If the server has no history, qstat -x shows not even a job that lives, and none is known after its end."""
    pbs = standin(history=False)
    job_id = pbs.submit("until [ -e $PBS_O_WORKDIR/end ]; do sleep 0.1; done")
    refused = pbs.call("qstat", "-x", "-f", "-F", "json", job_id)
    assert refused.stderr == f"qstat: PBS is not configured to maintain job history {job_id}\n"
    assert "Jobs" not in json.loads(refused.stdout)
    pbs.call("qstat", job_id)
    Path("end").touch()
    wait_until((pbs.folder / "history" / f"{job_id}.json").exists)
    pbs.call("qstat", job_id, code=153)


def test_dependencies(standin):
    """A job held for another runs when that ended as required; else it is deleted without a message."""
    pbs = standin()
    bad = pbs.submit("until [ -e $PBS_O_WORKDIR/end ]; do sleep 0.1; done; exit 1")
    waits = {kind: pbs.submit("true", "-W", f"depend={kind}:{bad}") for kind in ("afterok", "afterany", "afternotok")}
    assert (pbs.job(waits["afterok"])["job_state"], pbs.job(waits["afterok"])["substate"]) == ("H", 22)
    Path("end").touch()
    assert pbs.ended(waits["afterany"])["Exit_status"] == 0
    assert pbs.ended(waits["afternotok"])["Exit_status"] == 0
    dropped = pbs.ended(waits["afterok"])
    assert (dropped["substate"], "Exit_status" in dropped, "comment" in dropped) == (92, False, False)
    unknown = pbs.ended(pbs.submit("true", "-W", "depend=afterok:999"))
    assert "Exit_status" not in unknown
    assert pbs.ended(pbs.submit("true", "-W", f"depend=afterok:{waits['afterany']}"))["Exit_status"] == 0


def test_arrays(standin):
    """Subjobs have an index and a status of their own; the array's is 0 though one failed, and afterok believes it."""
    pbs = standin()
    array = pbs.submit("echo $PBS_ARRAY_INDEX $PBS_JOBID $PBS_ARRAY_ID; exit $PBS_ARRAY_INDEX", "-J", "0-1", "-N", "a")
    assert array == f"{FIRST_ID}[].gadi-pbs"
    after = pbs.submit("true", "-W", f"depend=afterok:{array}")
    parent = pbs.ended(array)
    assert (parent["Exit_status"], parent["substate"]) == (0, 93)
    answer = pbs.call("qstat", "-x", "-t", "-f", "-F", "json", array)
    jobs = json.loads(answer.stdout)["Jobs"]
    assert [jobs[f"{FIRST_ID}[{index}].gadi-pbs"]["Exit_status"] for index in (0, 1)] == [0, 1]
    assert Path(f"a.o{FIRST_ID}.1").read_text() == f"1 {FIRST_ID}[1].gadi-pbs {FIRST_ID}[].gadi-pbs\n"
    assert pbs.ended(after)["Exit_status"] == 0


def test_an_array_runs_a_few_at_a_time(standin):
    """With %1 the second subjob waits; the first reads X while the array is not done."""
    pbs = standin()
    array = pbs.submit("sleep $((PBS_ARRAY_INDEX * 100))", "-J", "0-2%1")
    states = ["X", "R", "Q"]
    wait_until(lambda: [pbs.job(f"{FIRST_ID}[{index}].gadi-pbs")["job_state"] for index in range(3)] == states)
    assert pbs.job(array)["job_state"] == "B"
    pbs.call("qdel", array)
    assert pbs.ended(array)["job_state"] == "F"


@pytest.mark.parametrize(("rerunable", "status"), [("y", 0), ("n", -20)])
def test_the_first_node_dies(standin, rerunable, status):
    """A job that may be run again starts anew elsewhere under its id; another is lost with -20 and no output."""
    pbs = standin()
    script = "[[ -e $PBS_O_WORKDIR/again ]] || { touch $PBS_O_WORKDIR/again; sleep 100; }"
    job_id = pbs.submit(script, "-r", rerunable, "-N", "lost")
    wait_until(Path("again").exists)
    rehearsal_pbs.lose(pbs.folder, "127.0.0.1")
    pbs.call("qstat")
    job = pbs.ended(job_id)
    assert job["Exit_status"] == status
    assert Path(f"lost.o{FIRST_ID}").exists() == (status == 0)
    assert (job["run_count"], job["exec_host"]) == ((2, "127.0.0.2/0*1") if status == 0 else (1, "127.0.0.1/0*1"))
