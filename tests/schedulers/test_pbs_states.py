"""What PBS's answers mean: qstat's JSON as OpenPBS 23.06 gives it, case by case."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from conftest import program

from hpclaunch.errors import SchedulerError
from hpclaunch.runs import registry
from hpclaunch.runs.registry import Run
from hpclaunch.runs.why import explain
from hpclaunch.schedulers import scheduler
from hpclaunch.schedulers.job import CANCELLED, COMPLETED, FAILED, PENDING, REQUEUED, RUNNING, TIMEOUT, UNKNOWN, State

pbs = scheduler("pbs")
BEGAN = "Job run at Fri Nov 20 at 10:02 on (gpu1:ncpus=48:ngpus=4)"
FAILED_OR_WELL = {92: "finished", 93: "failed"}


# Answers what a test says; if the test gives no exit code, the ids that are not in it are not known.
QSTAT = """#!/bin/sh
echo "$@" >>"{work}/asked"
cat "{work}/answer"
[ -s "{work}/rc" ] && exit "$(cat "{work}/rc")"
for id; do
    case $id in *.*) grep -qF "\\"$id\\"" "{work}/answer" || {{ rc=153; echo "qstat: Unknown Job Id $id" >&2; }} ;; esac
done
exit $rc
"""
# Knows no -E, and answers for the first id only.
QSTAT_OF_ONE = """#!/bin/sh
echo "$@" >>"{work}/asked"
for id; do
    case $id in -E) echo "qstat: invalid option -- 'E'" >&2; exit 2 ;; *.*) break ;; esac
done
[ -e "{work}/$id" ] || {{ echo "qstat: Unknown Job Id $id" >&2; exit 153; }}
echo "{{\\"Jobs\\": {{\\"$id\\": {{\\"job_state\\": \\"R\\"}}}}}}"
"""
# Its JSON is broken by one job.
QSTAT_BROKEN = """#!/bin/sh
echo "$@" >>"{work}/asked"
echo "{{\\"Jobs\\": {{"
for id; do
    case $id in *.*) echo "$comma\\"$id\\": {{\\"job_state\\": \\"R\\"}}"; comma=, ;; esac
    [ "$id" != 92.gadi-pbs ] || echo '"'
done
echo "}}}}"
"""


@pytest.fixture
def answers(work, monkeypatch):
    """Let qstat answer what a test says, and note what it was asked."""
    program(work / "bin" / "qstat", QSTAT.format(work=work))
    monkeypatch.setenv("PATH", f"{work / 'bin'}:{os.environ['PATH']}")

    def answer(jobs: dict[str, dict] | str, rc: int | str = "") -> None:
        head = {"timestamp": 1763632931, "pbs_version": "23.06.06", "pbs_server": "gadi-pbs"}
        text = jobs if isinstance(jobs, str) else json.dumps(head | ({"Jobs": jobs} if jobs else {}), indent=4)
        (work / "answer").write_text(text)
        (work / "rc").write_text(str(rc))

    return answer


@pytest.fixture
def run(work):
    return make_run("92.gadi-pbs")


def make_run(job_id: str) -> Run:
    folder = Path("hpclaunch-runs", job_id).absolute()
    folder.mkdir(parents=True)
    return Run(id=job_id, site="gadi", scheduler="pbs", job_name="train", folder=str(folder), submitted=0)


def state_of(run: Run) -> State:
    return pbs.states([run])[run.id]


def ended(status: int | None, substate: int = 93, comment: str = "", **more: object) -> dict:
    """Return a finished job as qstat shows it."""
    job = {"job_state": "F", "substate": substate, "queue": "gpuvolta-exec", **more}
    if status is not None:
        job |= {"Exit_status": status, "exec_host": "gpu1/0*48+gpu2/0*48", "run_count": 1}
    return job | ({"comment": comment} if comment else {})


@pytest.mark.parametrize(
    ("job", "word", "reason", "code", "shell", "said"),
    [
        (ended(0, 92, f"{BEGAN} and finished"), COMPLETED, "", 0, 0, "It ended with exit code 0"),
        (ended(7, 93, f"{BEGAN} and failed"), FAILED, "", 7, 7, "your program's own code"),
        (ended(137), FAILED, "", 137, 137, "SIGKILL: most often out of memory"),
        (ended(143), FAILED, "", 143, 143, "SIGTERM"),
        (ended(127), FAILED, "", 127, 127, "command not found"),
        (
            ended(271, 91, f"{BEGAN} and terminated by alice"),
            CANCELLED,
            "CANCELLED by alice",
            271,
            143,
            "cancelled by user alice",
        ),
        (ended(143, 91, f"{BEGAN} and terminated by alice"), CANCELLED, "CANCELLED by alice", 143, 143, "cancelled by"),
        (ended(265, 91, f"{BEGAN} and terminated"), CANCELLED, "", 265, 137, "it was cancelled"),
        (ended(None, 91, "Not Running: and terminated"), CANCELLED, "deleted before it ran", None, 1, "never started"),
        (ended(-29, 93, f"{BEGAN} and exceeded resource walltime"), TIMEOUT, "", -29, 1, "--max-attempts"),
        (ended(-27), FAILED, "OUT_OF_MEMORY", -27, 1, "memory (RAM)"),
        (ended(-25), FAILED, "", -25, 1, "more cores than it asked for"),
        (ended(266, 93, f"{BEGAN} and failed"), FAILED, "", 266, 138, "SIGUSR1"),
        (ended(-20), FAILED, "NODE_FAIL", -20, 1, "a node died"),
        (ended(None, 92), CANCELLED, "DependencyNeverSatisfied", None, 1, "did not end as required"),
    ],
)
def test_how_a_job_ended(answers, run, job, word, reason, code, shell, said):
    """Each way to end has its state, its exit code for the shell, and its explanation."""
    answers({run.id: job})
    state = state_of(run)
    assert (state.word, state.reason, state.exit_code) == (word, reason, code)
    assert state.shell_code == shell
    assert said in "\n".join(explain(run, state))


@pytest.mark.parametrize(
    ("job", "word", "reason", "said"),
    [
        ({"job_state": "Q"}, PENDING, "", "no reason (yet)"),
        (
            {"job_state": "Q", "comment": "Not Running: Insufficient amount of resource: ngpus (R: 8 A: 4 T: 8)"},
            PENDING,
            "Not Running: Insufficient amount of resource: ngpus (R: 8 A: 4 T: 8)",
            "Nothing to fix",
        ),
        (
            {"job_state": "Q", "comment": "Can Never Run: Not enough total nodes available"},
            PENDING,
            "Can Never Run: Not enough total nodes available",
            "it can never run",
        ),
        (
            {
                "job_state": "Q",
                "comment": "Not Running: Insufficient amount of resource: mem (R: 800gb A: 382gb T: 382gb)",
            },
            PENDING,
            "Can Never Run: Not Running: Insufficient amount of resource: mem (R: 800gb A: 382gb T: 382gb)",
            "it can never run",
        ),
        (
            {
                "job_state": "Q",
                "comment": "Not Running: Insufficient amount of resource: job_tags (gpuvolta != normal)",
            },
            PENDING,
            "Not Running: Insufficient amount of resource: job_tags (gpuvolta != normal)",
            "or there are too few at all, and then it never starts",
        ),
        ({"job_state": "Q", "run_count": 1}, REQUEUED, "", "waits to start again"),
        ({"job_state": "H", "Hold_Types": "u"}, PENDING, "held by qhold", "`qrls 92.gadi-pbs`"),
        ({"job_state": "H", "Hold_Types": "so"}, PENDING, "held by the site", "Write to support"),
        ({"job_state": "H", "Hold_Types": "s", "substate": 22}, PENDING, "Dependency", "after another job"),
        (
            {
                "job_state": "H",
                "Hold_Types": "s",
                "run_count": 21,
                "comment": "job held, too many failed attempts to run",
            },
            PENDING,
            "too many failed attempts to run",
            "PBS tried some 20 times to start it",
        ),
        ({"job_state": "W"}, PENDING, "BeginTime", "before a set time"),
        ({"job_state": "T"}, PENDING, "", "no reason (yet)"),
        ({"job_state": "R", "exec_host": "gpu1/0*48+gpu2/0*48"}, RUNNING, "", "It is running"),
        ({"job_state": "E"}, RUNNING, "", "It is running"),
        ({"job_state": "B"}, RUNNING, "", "It is running"),
        ({"job_state": "S"}, RUNNING, "suspended", "It is suspended: nothing of it runs"),
        ({"job_state": "U"}, RUNNING, "suspended", "It is suspended: nothing of it runs"),
        ({"job_state": "M"}, UNKNOWN, "moved to another server", "moved to another server"),
        ({"job_state": "?"}, UNKNOWN, "job_state ?", "job_state ?"),
    ],
)
def test_what_a_job_does(answers, run, job, word, reason, said):
    """Each letter of PBS's has its state, with PBS's comment as the reason while the job waits."""
    answers({run.id: job})
    state = state_of(run)
    assert (state.word, state.reason) == (word, reason)
    assert said in explain(run, state)[1]


@pytest.mark.parametrize(
    ("first", "goes_on", "word", "reason"),
    [
        (ended(271, 91, f"{BEGAN} and terminated by alice"), False, CANCELLED, "CANCELLED by alice"),
        (ended(0, 92), False, COMPLETED, ""),
        (ended(7), False, FAILED, ""),
        (ended(75), True, CANCELLED, ""),
    ],
)
def test_a_run_whose_waiting_attempts_were_deleted_ends_as_it_ran(answers, run, first, goes_on, word, reason):
    """Of attempts submitted together the one that ran counts, unless it was to go on in one that was deleted."""
    (run.path / "attempts").write_text("93.gadi-pbs\n94.gadi-pbs\n")
    if goes_on:
        (run.path / "attempt-2").touch()
    deleted = ended(None, 91, "Not Running: and terminated")
    answers({run.id: first, "93.gadi-pbs": deleted, "94.gadi-pbs": deleted})
    assert (state_of(run).word, state_of(run).reason) == (word, reason)


def test_hosts_are_told_once_each(answers, run):
    """A running job names its nodes, however many chunks are on each."""
    answers({run.id: {"job_state": "R", "exec_host": "gpu1/0*24+gpu1/1*24+gpu2/0*48"}})
    assert state_of(run).hosts == "gpu1,gpu2"


def test_one_question_for_all(answers, run, work):
    """Runs and their attempts are asked for at once, finished ones included."""
    other = make_run("93.gadi-pbs")
    (other.path / "attempts").write_text("95.gadi-pbs\n96.gadi-pbs\n")
    answers({run.id: {"job_state": "R"}, "96.gadi-pbs": {"job_state": "R"}})
    assert {i: s.word for i, s in pbs.states([run, other]).items()} == {run.id: RUNNING, other.id: RUNNING}
    assert (work / "asked").read_text() == "-x -f -F json -E 92.gadi-pbs 93.gadi-pbs 95.gadi-pbs 96.gadi-pbs\n"


def test_an_unknown_id_hides_no_other(answers, run, work):
    """Of several ids those that PBS knows have their state, and one question tells which it does not know."""
    answers({run.id: ended(3)})
    other = make_run("93.gadi-pbs")
    found = pbs.states([run, other])
    assert (found[run.id].exit_code, found[other.id].reason) == (3, "vanished")
    assert len((work / "asked").read_text().splitlines()) == 1


@pytest.mark.parametrize(("rc", "text"), [(0, {}), (35, {}), (153, {}), (0, "")])
def test_a_job_that_an_answer_leaves_out_has_not_ended(answers, run, rc, text):
    """Only PBS's word that it does not know this very id ends a job."""
    answers(text, rc)
    assert state_of(run) == State(UNKNOWN, "qstat's answer cannot be read")


def test_where_qstat_answers_for_one_each_is_asked_for(answers, run, work):
    """A qstat without -E that answers for the first id only leaves no running job out, and the one that is gone is."""
    (work / "bin" / "qstat").write_text(QSTAT_OF_ONE.format(work=work))
    others = [make_run(f"{number}.gadi-pbs") for number in range(93, 97)]
    for other in others:
        (work / other.id).touch()
    assert [state.word for state in pbs.states([run, *others]).values()] == [FAILED, *[RUNNING] * 4]


def test_old_runs_cost_no_question_of_their_own(answers, run, work):
    """Of runs that an answer leaves out, those whose folders record their end are not asked for one by one."""
    old = [make_run(f"{number}.gadi-pbs") for number in range(100, 120)]
    for other in old:
        (other.path / "exit").write_text("0\n")
    answers({run.id: {"job_state": "R"}}, 0)
    assert [state.word for state in pbs.states([run, *old]).values()] == [RUNNING, *[COMPLETED] * 20]
    assert len((work / "asked").read_text().splitlines()) == 1


def test_one_unreadable_job_hides_no_other(answers, run, work):
    """A job that breaks qstat's JSON is UNKNOWN by itself; of 64 others each has its state, with few questions."""
    (work / "bin" / "qstat").write_text(QSTAT_BROKEN.format(work=work))
    others = [make_run(f"{number}.gadi-pbs") for number in range(100, 164)]
    found = pbs.states([*others[:20], run, *others[20:]])
    assert found.pop(run.id).word == UNKNOWN
    assert {state.word for state in found.values()} == {RUNNING}
    assert len((work / "asked").read_text().splitlines()) < 20


@pytest.mark.parametrize("left", ["", "75"])
def test_an_attempt_of_which_nothing_is_known_is_no_end(answers, run, left):
    """A run whose second attempt is missing from the answers has not ended with the exit code of its first."""
    (run.path / "attempts").write_text("95.gadi-pbs\n")
    (run.path / "exit").write_text(left)
    answers({run.id: ended(75)}, 0)
    assert state_of(run).word == UNKNOWN


def test_a_vanished_job_ends_with_an_explanation(answers, run):
    """A job that qsub took and PBS dropped is FAILED, so that nobody waits for ever, and `why` lists what may be."""
    answers({})
    state = state_of(run)
    assert (state.word, state.reason, state.shell_code) == (FAILED, "vanished", 1)
    told = "\n".join(explain(run, state))
    assert "a resource that the site does not have" in told
    assert "had failed, or was not known" in told
    assert "memory of it is over" in told


@pytest.mark.parametrize("start", ["Sat Nov 21 23:50:00 2026", 1795305000, "1795305000"])
def test_the_expected_start_is_a_time(answers, run, start, monkeypatch):
    """Where PBS estimates when a waiting job starts, its state has the time; else it has none."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    answers({run.id: {"job_state": "Q", "estimated": {"exec_vnode": "(gpu1:ncpus=48)", "start_time": start}}})
    assert state_of(run).expected_start == 1795305000
    answers({run.id: {"job_state": "Q", "estimated": {"start_time": "UNKNOWN"}}})
    assert state_of(run) == State(PENDING)


@pytest.mark.parametrize(("left", "word"), [("0", COMPLETED), ("7", FAILED)])
def test_without_history_the_run_folder_tells(answers, run, left, word):
    """Where PBS keeps no history, or it is over, the exit code that the job left counts."""
    answers({})
    (run.path / "exit").write_text(f"{left}\n")
    assert state_of(run) == State(word, "", int(left))


def test_without_history_a_noted_failure_is_told(answers, run):
    """A job that was killed after it noted a failure is FAILED, and `why` names the rank."""
    answers({})
    (run.path / "failed").write_text("7 - rank 3 on gpu2\n")
    assert "rank 3 on gpu2" in explain(run, state_of(run))[0]


def test_a_job_of_another_machine_is_unknown(answers, run):
    """A job whose run folder is not here is not called vanished: it may run elsewhere."""
    answers({})
    run.path.rmdir()
    assert state_of(run).word == UNKNOWN


def test_odd_characters_in_qstats_answer(answers, run):
    """Control characters in a variable's value hide nothing; an answer that is no JSON is UNKNOWN, never an end."""
    answers('{"Jobs":{"92.gadi-pbs":{"job_state":"R","Variable_List":{"X":"a\tb\x1b[0m\nc"}}}}')
    assert state_of(run).word == RUNNING
    answers('{"Jobs":{"92.gadi-pbs":{"job_state":"R","Variable_List":{"X":"a"b"}}}}')
    state = state_of(run)
    assert (state.word, state.reason) == (UNKNOWN, "qstat's answer cannot be read")
    assert "cannot be read" in explain(run, state)[1]
    (run.path / "exit").write_text("0\n")
    assert state_of(run).word == COMPLETED


def test_no_answer_is_an_error_with_pbss_words(answers, run):
    """A server that is out of reach is told, not taken for an end."""
    answers("qstat: cannot connect to server gadi-pbs (errno=111)\n", 255)
    with pytest.raises(SchedulerError, match="cannot connect to server gadi-pbs"):
        state_of(run)


@pytest.mark.parametrize(
    ("jobs", "left", "word", "code"),
    [
        ({"92": {"job_state": "R"}, "95": {"job_state": "H", "substate": 22}}, "", RUNNING, None),
        ({"92": {"job_state": "Q"}, "95": {"job_state": "H", "substate": 22}}, "", PENDING, None),
        ({"92": ended(0, 92), "95": {"job_state": "Q"}}, "", REQUEUED, None),
        ({"92": ended(-29), "95": {"job_state": "R"}}, "", RUNNING, None),
        ({"92": ended(0, 92), "95": ended(4)}, "4", FAILED, 4),
        ({"95": ended(0, 92)}, "0", COMPLETED, 0),
        ({"92": ended(5), "95": {"job_state": "Q"}}, "5", FAILED, 5),
        ({"95": {"job_state": "Q"}}, "5", FAILED, 5),
        ({"92": ended(75), "95": {"job_state": "Q"}}, "75 attempt-2", REQUEUED, None),
        ({"92": ended(255), "95": {"job_state": "H"}}, "255 attempt-2", REQUEUED, None),
        ({"92": ended(0, 92)}, "", FAILED, None),
    ],
    ids=[
        "first",
        "waits",
        "between",
        "second",
        "over",
        "history",
        "chain-over",
        "forgotten",
        "saved",
        "submitit",
        "lost",
    ],
)
def test_attempts_are_one_run(answers, run, jobs, left, word, code):
    """A run of several PBS jobs has one state: that of the attempt that runs, waits, or came last."""
    (run.path / "attempts").write_text("95.gadi-pbs\n")
    for text in left.split()[:1]:
        (run.path / "exit").write_text(text)
    for name in left.split()[1:]:
        (run.path / name).touch()
    answers({f"{number}.gadi-pbs": job for number, job in jobs.items()})
    state = state_of(run)
    assert (state.word, state.exit_code) == (word, code)


def test_jobs_of_an_array_have_their_own_ends(answers, work):
    """A job of an array keeps PBS's name for it, and its own exit code; its array is asked for once."""
    both = [make_run(f"107[{index}].gadi-pbs") for index in range(2)]
    answers(
        {
            "107[].gadi-pbs": {"job_state": "B", "array": "True"},
            "107[0].gadi-pbs": {"job_state": "X", "substate": 92, "Exit_status": 0},
            "107[1].gadi-pbs": ended(3),
        }
    )
    assert [(s.word, s.exit_code) for s in pbs.states(both).values()] == [(COMPLETED, 0), (FAILED, 3)]
    assert (work / "asked").read_text() == "-x -t -f -F json 107[].gadi-pbs\n"
    assert pbs.array_ids("107[].gadi-pbs", range(2)) == [run.id for run in both]


def test_an_array_fails_with_its_jobs(answers):
    """PBS's own exit status of an array is 0 whatever its jobs did; ours is not."""
    array = make_run("107[].gadi-pbs")
    answers({array.id: ended(0, 93, array="True")})
    state = state_of(array)
    assert (state.word, state.reason, state.shell_code) == (FAILED, "a subjob failed", 1)
    assert "a job of the array failed" in explain(array, state)[0]


def test_why_shows_pbss_output_of_the_last_attempt(answers, run, work):
    """A run that died before its ranks began shows what PBS kept of its last attempt, array or not."""
    (run.path / "attempts").write_text("95.gadi-pbs\n")
    (work / "train.o92").write_text("all is well\n")
    (work / "train.o95").write_text("bash: module: command not found\n")
    assert "    bash: module: command not found" in explain(run, State(FAILED, "", 127))
    (work / "train.o107.3").write_text("third\n")
    assert "    third" in explain(make_run("107[3].gadi-pbs"), State(FAILED, "", 1))


def test_an_old_registry_still_counts():
    """Runs that were registered before sites had a `poll` are read as ever."""
    old = '{"id":"1","site":"s","scheduler":"slurm","job_name":"j","folder":"/none","submitted":1.5}'
    Path("run.json").write_text(old)
    found = registry.read(Path("run.json"))
    assert found and found.poll == 2
