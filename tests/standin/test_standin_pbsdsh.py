"""The stand-in's pbsdsh, with the habits of OpenPBS 23.06."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from conftest import FIRST_ID, processes_with, wait_until

TWO = ["-q", "normal", "-j", "oe", "-N", "t", "-l", "ncpus=96"]
ENV = """-- /bin/sh -c 'exec python3 -c "import json, os; print(json.dumps(dict(os.environ, cwd=os.getcwd())))"'"""


@pytest.fixture
def run(standin):
    """Run a script on two nodes; return its output."""

    def call(script: str, *options: object, **settings: object) -> str:
        pbs = standin(hosts=["127.0.0.1", "127.0.0.2"], **settings)
        job = pbs.ended(pbs.submit(f"export EXPORTED=1\n{script}", *TWO, *options))
        return Path(job["Output_Path"].partition(":")[2]).read_text()

    return call


def test_it_returns_0_whatever_the_tasks_do(run):
    """A task's exit code, signal or absence is only printed; pbsdsh itself returns 0."""
    tasks = ["/bin/sh -c 'exit 7'", "/bin/sh -c 'kill -9 $$'", "nosuchprogram", "/bin/true"]
    text = run("\n".join(f"pbsdsh -n 0 -- {task}; echo rc $?" for task in tasks))
    assert text.count("rc 0\n") == 4
    statuses = [line.split()[-1] for line in text.splitlines() if "exit status" in line]
    assert statuses == ["7", "265", "254"]
    assert "nosuchprogram: No such file or directory" in text


def test_an_argument_ends_at_its_first_newline(run):
    """What follows a newline in an argument is lost."""
    assert run("pbsdsh -n 0 -- /bin/echo 'a\nb' c; sleep 0.3") == "a c\n"


@pytest.mark.slow
def test_n_counts_lines_and_wraps(run):
    """-n counts the lines of the nodefile from 0 and wraps: with one line a node, 1 and 49 are the same node."""
    script = 'for i in 0 1 48 49; do pbsdsh -n $i -- /bin/sh -c "echo $i on \\$PBS_NODENUM"; done; sleep 0.3'
    assert sorted(run(script).splitlines()) == ["0 on 0", "1 on 0", "48 on 1", "49 on 1"]
    assert sorted(run(script, lines="node").splitlines()) == ["0 on 0", "1 on 1", "48 on 0", "49 on 1"]


def test_without_n_it_starts_one_task_a_line(run):
    """Without -n there is one task for each line of the nodefile."""
    assert sorted(run("pbsdsh -- /bin/sh -c 'echo $PBS_NODENUM'; sleep 0.3", lines="gpu").split()) == ["0", "1"]
    assert len(run("pbsdsh -c 3 -- /bin/echo x; sleep 0.3", lines="node").split()) == 3


def test_nothing_that_is_exported_arrives(run, tmp_path):
    """A task has PBS's bare PATH, $HOME as its folder, the variables of qsub -v, and on the first node no nodefile."""
    text = run(f"pbsdsh -n 0 {ENV}\nsleep 1\npbsdsh -n 48 {ENV}\nsleep 1", "-v", "LISTED=yes", "-l", "wd")
    first, second = (json.loads(line) for line in text.splitlines())
    for found in (first, second):
        assert not {"EXPORTED", "USER", "LOGNAME", "SHELL"} & set(found)
        assert (found["PATH"], found["cwd"], found["LISTED"]) == ("/bin:/usr/bin", str(tmp_path / "home"), "yes")
    assert "PBS_NODEFILE" not in first
    assert (second["PBS_NODENUM"], "PBS_NODEFILE" in second) == ("1", True)
    assert first["TMPDIR"] != second["TMPDIR"]


def test_output_goes_to_the_job(run):
    """What tasks print cannot be caught in the script: it goes to the job's output."""
    text = run("caught=$(pbsdsh -n 0 -- /bin/echo words); sleep 0.3; echo caught [$caught]")
    assert text == "words\ncaught []\n"


@pytest.mark.slow
def test_a_busy_pair_mixes_its_lines(run):
    """Two tasks that print much at once break each other's lines."""
    task = "/bin/sh -c 'yes $PBS_NODENUM$PBS_NODENUM$PBS_NODENUM$PBS_NODENUM | head -n 100000'"
    lines = run(f"pbsdsh -n 0 -- {task} & pbsdsh -n 48 -- {task} & wait; sleep 1").splitlines()
    assert set(lines) - {"0000", "1111"}


@pytest.mark.slow
def test_the_tail_of_much_output_is_lost(run):
    """A script that ends at once after busy tasks loses the end of what they printed; 4000 lines arrive."""
    task = "/bin/sh -c 'yes 1234567 | head -n {}'"
    script = f"pbsdsh -n 0 -- {task} & pbsdsh -n 48 -- {task} & wait"
    assert len(run(script.replace("{}", "4000"))) == 64_000
    assert 100_000 < len(run(script.replace("{}", "1000000"))) < 16_000_000


def test_without_pbs_variables_it_fails(run):
    """`env -i` breaks pbsdsh, and so does one missing variable."""
    text = run(
        'env -i PATH="$PATH" pbsdsh -- /bin/true; echo rc $?; unset PBS_MOMPORT; pbsdsh -- /bin/true; echo rc $?'
    )
    assert text == "pbsdsh: tm_init failed, rc = bad environment (17005)\nrc 1\n" * 2


def test_a_program_with_options_needs_two_dashes(run):
    """`pbsdsh hostname -f` is read as an option of pbsdsh."""
    assert "invalid option -- 'f'" in run("pbsdsh hostname -f")


def test_what_a_task_leaves_behind_ends_with_it(run):
    """A background process of a task ends with the task, one with a session of its own does not."""
    run("pbsdsh -n 0 -- /bin/sh -c 'nohup sleep 5011.271828 & setsid sleep 2 &'; sleep 0.5")
    assert processes_with("5011.271828") == []


def test_the_end_of_the_script_kills_tasks_without_a_signal_before(run):
    """When the script ends, its tasks on all nodes are killed, with no SIGTERM."""
    task = "trap 'touch $PBS_O_WORKDIR/warned' TERM; sleep 5012.271828 & wait"
    run(f'pbsdsh -n 0 -- /bin/sh -c "{task}" &\npbsdsh -n 48 -- /bin/sh -c "{task}" &\nsleep 0.7')
    assert processes_with("5012.271828") == []
    assert not Path("warned").exists()


@pytest.mark.slow
@pytest.mark.parametrize("pbsdsh", ["pbsdsh", "pbsdsh -o"])
def test_qdel_reaches_other_nodes_only_through_a_living_pbsdsh(standin, pbsdsh):
    """SIGTERM goes to the first node; the second has it if a pbsdsh is there to pass it on, which then ends with 1."""
    pbs = standin(hosts=["127.0.0.1", "127.0.0.2"], kill_delay=3)
    Path("task.sh").write_text(
        "cd $PBS_O_WORKDIR; trap 'touch warned-$PBS_NODENUM; exit' TERM; touch up-$PBS_NODENUM\n"
        "while :; do sleep 0.1; done\n"
    )
    task = "/bin/sh $PBS_O_WORKDIR/task.sh"
    script = f"trap : TERM\n{pbsdsh} -n 0 -- {task} &\n{pbsdsh} -n 48 -- {task} & shell=$!\n"
    job_id = pbs.submit(f"{script}sleep 100 & wait %3; wait $shell; echo ended $?; sleep 1\n", *TWO)
    wait_until(lambda: Path("up-0").exists() and Path("up-1").exists())
    time.sleep(0.2)
    pbs.call("qdel", job_id)
    assert pbs.ended(job_id)["Exit_status"] == 271
    assert Path("warned-0").exists()
    assert Path("warned-1").exists() == (pbsdsh == "pbsdsh")
    text = Path(f"t.o{FIRST_ID}").read_text()
    assert ("ended 1" in text) == (pbsdsh == "pbsdsh")
    assert ("killing task 0x02000001 signal 15" in text) == (pbsdsh == "pbsdsh")


@pytest.mark.slow
def test_a_dead_node_is_not_noticed(standin):
    """A node that swallows its task keeps pbsdsh waiting, until the job is deleted."""
    pbs = standin(hosts=["127.0.0.1", "127.0.0.2"], dead="127.0.0.2")
    job_id = pbs.submit("pbsdsh -n 48 -- /bin/true; echo back", *TWO)
    time.sleep(2)
    assert pbs.job(job_id)["job_state"] == "R"
    pbs.call("qdel", job_id)
    assert pbs.ended(job_id)["Exit_status"] == 271
    assert "back" not in Path(f"t.o{FIRST_ID}").read_text()
