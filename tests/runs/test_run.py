"""`hpclaunch run`: the rendered script, executed on this machine."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
from conftest import processes_with, program, slow, start, wait_until

CONTRACT = ("MASTER_ADDR", "WORLD_SIZE", "NODE_RANK", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
REPORT = (
    "import json, os, sys; print(json.dumps(dict(os.environ, argv=sys.argv[1:], cores=[*os.sched_getaffinity(0)])))"
)
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(*words: object, **options) -> subprocess.CompletedProcess[str]:
    process = start("run", *words, **options)
    stdout, stderr = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def run_folder(work):
    (folder,) = (work / "hpclaunch-runs").iterdir()
    return folder


@pytest.mark.parametrize("launcher", ["tasks", slow("torchrun"), "mpirun"])
def test_every_rank_has_its_place(work, launcher):
    """Two nodes of two ranks have the seven variables right, a log each, one low port, and all cores to run on."""
    if launcher == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("Open MPI is not installed: no mpirun on PATH")
    size = ["--nodes", 2, "--tasks-per-node", 2, "--launcher", launcher]
    result = run(*size, "--", sys.executable, "-c", REPORT, "a b", env=os.environ | AS_ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    reports = [json.loads((run_folder(work) / f"rank-{rank}.log").read_text()) for rank in range(4)]
    assert [tuple(report[name] for name in CONTRACT) for report in reports] == [
        ("127.0.0.1", "4", str(rank // 2), str(rank), str(rank % 2), "2") for rank in range(4)
    ]
    assert len({report["MASTER_PORT"] for report in reports}) == 1
    assert all(report["argv"] == ["a b"] for report in reports)
    assert all(report["cores"] == [*os.sched_getaffinity(0)] for report in reports)
    if launcher != "torchrun":
        assert 20000 <= int(reports[0]["MASTER_PORT"]) < 32768


@pytest.mark.parametrize("own", [None, "mine"])
def test_a_run_has_an_id(work, own):
    """HPCLAUNCH_RUN_ID is the run folder's name, and Weights & Biases' id too unless the user has chosen one."""
    option = ["--env", f"WANDB_RUN_ID={own}"] if own else []
    outer = {"HPCLAUNCH_RUN_ID": "outer", "WANDB_RUN_ID": "outer"}  # of a job in which this one is started
    assert run(*option, "--", sys.executable, "-c", REPORT, env=os.environ | outer).returncode == 0
    report = json.loads((run_folder(work) / "rank-0.log").read_text())
    assert report["HPCLAUNCH_RUN_ID"] == run_folder(work).name
    expected = (own, None) if own else (run_folder(work).name, "allow")
    assert (report["WANDB_RUN_ID"], report.get("WANDB_RESUME")) == expected


def test_lightning_launcher_leaves_the_local_ranks_to_lightning(work):
    """One process a node, with its NODE_RANK and without RANK and LOCAL_RANK, even where the shell had them."""
    size = ["--nodes", 2, "--tasks-per-node", 2, "--launcher", "lightning"]
    result = run(*size, "--", sys.executable, "-c", REPORT, env=os.environ | {"RANK": "9", "LOCAL_RANK": "9"})
    assert result.returncode == 0, result.stderr
    reports = [json.loads((run_folder(work) / f"node-{node}.log").read_text()) for node in range(2)]
    assert [(r["WORLD_SIZE"], r["NODE_RANK"], r.get("RANK"), r.get("LOCAL_RANK")) for r in reports] == [
        ("4", str(node), None, None) for node in range(2)
    ]


def test_output_is_live_and_carries_the_rank(work):
    """What a rank prints is shown at once behind its number, while the run goes on."""
    code = "import os, time; print('hello from', os.environ['RANK'], flush=True); time.sleep(30)"
    process = start("run", "--tasks-per-node", 2, "--", sys.executable, "-c", code)
    try:
        assert process.stdout
        lines = {process.stdout.readline() for _ in range(3)}
        assert {"[0] hello from 0\n", "[1] hello from 1\n"} < lines
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 143


def test_run_and_render_show_the_same_bytes(work, cli):
    """The script that was run is the one that render prints."""
    words = ["--nodes", "2", "--env", "A=b c", "--", "true"]
    assert run(*words).returncode == 0
    printed = cli("render", "--site", "local", "--quiet", *words).stdout
    assert (run_folder(work) / "job.sh").read_text() == printed


def test_script_runs_by_hand_from_any_folder(work, cli, monkeypatch):
    """`bash job.sh` does what `hpclaunch run` does, in a folder whose name has blanks and quotes."""
    folder = work / 'it\'s a "b"'
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "job.sh").write_text(cli("render", "--site", "local", "--", "echo", "hi there").stdout)
    result = subprocess.run(["bash", "job.sh"], capture_output=True, text=True, check=True)
    assert "[0] hi there\n" in result.stdout
    assert (run_folder(folder) / "rank-0.log").read_text() == "hi there\n"


@pytest.mark.parametrize("launcher", ["tasks", slow("torchrun"), slow("mpirun")])
def test_a_failing_rank_ends_all_with_its_code(work, launcher):
    """Rank 3 exits with 7: the run ends within seconds with 7, says so, and leaves no process behind."""
    if launcher == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("Open MPI is not installed: no mpirun on PATH")
    code = "import os, sys, time\nif os.environ['RANK'] == '3':\n    sys.exit(7)\ntime.sleep(60)"
    size = ["--nodes", 2, "--tasks-per-node", 2, "--launcher", launcher]
    began = time.monotonic()
    result = run(*size, "--", sys.executable, "-c", code, env=os.environ | AS_ROOT)
    assert result.returncode == 7
    assert time.monotonic() - began < 25
    assert "first failure: rank 3 on " in result.stdout
    assert processes_with(str(run_folder(work))) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_interrupting_ends_every_process(work, number):
    """Ctrl-C, TERM and a closed terminal end ranks that ignore signals, and what they started, within seconds."""
    code = (
        "import signal, subprocess, sys, time\n"
        "for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        "print('ready', flush=True); time.sleep(60)\n"
    )
    size = ["--nodes", 2, "--tasks-per-node", 2]
    process = start("run", *size, "--", sys.executable, "-c", code, start_new_session=True)
    wait_until(lambda: [log.read_text() for log in work.glob("hpclaunch-runs/*/rank-*.log")] == ["ready\n"] * 4)
    began = time.monotonic()
    os.killpg(process.pid, number)
    assert process.wait(timeout=20) == (130 if number == signal.SIGINT else 143)
    assert time.monotonic() - began < 12
    assert processes_with(str(run_folder(work))) == []


@pytest.mark.slow
def test_term_during_the_setup_ends_what_it_started(work):
    """TERM while a line of setup runs, before any rank, ends that program too, even one that ignores the signal."""
    sleeper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    process = start("run", "--setup", f"{shlex.quote(sys.executable)} -c '{sleeper}'", "--", "true")
    wait_until(lambda: any("time.sleep(60)" in line for line in running(work)), 20)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) in (143, -signal.SIGTERM)
    wait_until(lambda: running(work) == [], 15)


def running(work) -> list[str]:
    """List what runs for the one run of this folder, which may not have begun."""
    folders = [*work.glob("hpclaunch-runs/*/job.sh")]
    return processes_with(f"HPCLAUNCH_RUN_DIR={folders[0].parent}") if folders else []


def test_a_script_dies_of_a_closed_pipe_as_in_a_shell(work):
    """What Python ignores the script does not: `yes | head -n 1` in a line of setup ends at once and says nothing."""
    result = run("--setup", 'yes | head -n 1; echo "${PIPESTATUS[0]}"', "--", "true")
    assert result.returncode == 0
    assert "y\n141\n" in result.stdout


def test_too_many_ranks_are_refused_unless_forced(cli, work):
    """Ranks beyond 8 for each core of this machine are refused by `run`, in a rehearsal too; other sites are theirs."""
    ranks = 8 * len(os.sched_getaffinity(0)) + 1
    for words in (("--tasks-per-node", str(ranks)), ("--site", "jean-zay", "-A", "a@v100", "--nodes", str(ranks))):
        result = cli("run", *words, "--", "true")
        assert result.exit_code == 1
        assert "hpclaunch: ranks: " in result.stderr
        assert not (work / "hpclaunch-runs").exists()
    assert "ranks" in cli("submit", "--site", "local", "--tasks-per-node", str(ranks), "--", "true").stderr
    forced = cli("render", "--site", "local", "--force", "ranks", "--tasks-per-node", str(ranks), "--", "true")
    assert forced.exit_code == 0 and "warning: ranks: " in forced.stderr
    assert cli("render", "--site", "pbs", "--nodes", str(ranks), "--", "true").exit_code == 0


def test_ranks_have_time_to_save(work):
    """On Ctrl-C each rank gets SIGTERM once and may take some seconds to save before it leaves."""
    code = (
        "import os, signal, sys, time\n"
        "def save(*_):\n"
        "    time.sleep(2); print('saved', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('ready', flush=True); time.sleep(60)\n"
    )
    process = start("run", "--tasks-per-node", 2, "--", sys.executable, "-c", code, start_new_session=True)
    logs = lambda: [log.read_text() for log in work.glob("hpclaunch-runs/*/rank-*.log")]  # noqa: E731
    wait_until(lambda: logs() == ["ready\n"] * 2)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert logs() == ["ready\nsaved\n"] * 2


def test_no_output_is_lost_at_the_end(work):
    """The last of many lines is shown before the run ends."""
    result = run("--tasks-per-node", 2, "--", "seq", "20000")
    assert result.returncode == 0
    for rank in range(2):
        shown = [line for line in result.stdout.splitlines() if line.startswith(f"[{rank}] ")]
        assert shown == [f"[{rank}] {number}" for number in range(1, 20001)]


@pytest.mark.parametrize(
    ("command", "code"),
    [(("exit", "3"), 127), (("set", "-e"), 127), (("exec", "true"), 127), (("bash", "-c", "kill -9 $PPID"), 137)],
)
def test_no_failure_is_taken_for_success(work, command, code):
    """Builtins are no programs, and a rank whose shell is killed has failed."""
    result = run("--force", "program", "--tasks-per-node", 2, "--", *command)
    assert result.returncode == code, result.stdout


def test_a_killed_head_leaves_no_rank_behind(work):
    """When the run itself is killed without warning, its ranks end soon."""
    process = start("run", "--tasks-per-node", 2, "--", "sleep", "60")
    wait_until(lambda: len(list(work.glob("hpclaunch-runs/*/rank-*.log"))) == 2)
    process.kill()
    process.wait()
    wait_until(lambda: processes_with(str(run_folder(work))) == [], 15)


def test_missing_program_is_127_with_bashs_words(work):
    """A command that does not exist ends as in any shell, where nobody looks for it before."""
    result = run("--force", "program", "--", "no-such-program")
    assert result.returncode == 127
    assert "no-such-program: not found" in result.stdout


def test_busy_port_is_passed_over(work, cli):
    """Where something listens on the port of the job already, the next one is taken."""
    script = cli("render", "--site", "local", "--", sys.executable, "-c", REPORT).stdout
    script = script.replace("MASTER_PORT=$((20000 + $$ % 10000))", "MASTER_PORT=23456")
    (work / "job.sh").write_text(script)
    listen = (
        "import socket, time\n"
        "with socket.socket() as s:\n"
        "    s.bind(('', 23456)); s.listen(); print('listening', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", listen], stdout=subprocess.PIPE) as listener:
        assert listener.stdout
        listener.stdout.readline()
        try:
            subprocess.run(["bash", "job.sh"], check=True, capture_output=True)
        finally:
            listener.kill()
    assert json.loads((run_folder(work) / "rank-0.log").read_text())["MASTER_PORT"] == "23457"


def test_runs_at_once_never_share_a_port(work, cli):
    """Of several scripts that begin with one port at the same moment each gets one of its own."""
    script = cli("render", "--site", "local", "--", "bash", "-c", "echo $MASTER_PORT; sleep 1").stdout
    script = script.replace("MASTER_PORT=$((20000 + $$ % 10000))", "MASTER_PORT=23556")
    (work / "job.sh").write_text(script)
    for process in [subprocess.Popen(["bash", "job.sh"], stdout=subprocess.DEVNULL) for _ in range(5)]:
        assert process.wait(timeout=60) == 0
    assert len({path.read_text() for path in work.glob("hpclaunch-runs/*/rank-0.log")}) == 5


def test_gpus_are_shared_out_among_emulated_nodes(work):
    """With --gpus-per-node each emulated node sees GPUs of its own."""
    code = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    result = run("--nodes", 2, "--gpus-per-node", 2, "--", sys.executable, "-c", code)
    assert result.returncode == 0, result.stderr
    shown = sorted(line for line in result.stdout.splitlines() if line.startswith("["))
    assert shown == ["[0] 0,1", "[1] 0,1", "[2] 2,3", "[3] 2,3"]


def test_settings_for_a_cluster_do_not_disturb_a_run_here(work):
    """A project whose config names a site, a partition and an account still runs here."""
    (work / "hpclaunch.yaml").write_text("site: gadi\npartition: gpuvolta\naccount: ab12\ntasks_per_node: 2\n")
    result = run("--", "echo", "hello")
    assert result.returncode == 0, result.stderr
    assert "[1] hello\n" in result.stdout


def test_unwritable_folder_is_one_message(work):
    """Where no run folder can be made, that is said and nothing runs."""
    (work / "hpclaunch-runs").write_text("in the way")
    result = run("--", "true")
    assert result.returncode == 1
    assert "hpclaunch-runs/local-" in result.stderr
    assert "cannot be written" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("sleep 60", 143)])
def test_teardown_runs_once_at_every_end(work, command, code):
    """Lines of --teardown run once after the ranks, also after TERM, where --setup left off, and keep the exit code."""
    (work / "sub").mkdir()
    lines = ("--setup", "cd sub", "--teardown", "echo bye >>log", "--teardown", "false; exit 9")
    both = "touch up-$RANK; until [[ -e up-0 && -e up-1 ]]; do sleep 0.1; done"
    process = start("run", "--tasks-per-node", 2, *lines, "--", "bash", "-c", f"{both}; {command}")
    wait_until(lambda: len([*work.glob("sub/up-*")]) == 2)
    if code == 143:
        process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == code
    assert (work / "sub" / "log").read_text() == "bye\n"


@pytest.mark.parametrize("site", [(), ("--site", "gadi", "--gpus-per-node", 0)])
@pytest.mark.parametrize(("death", "shown"), [("TERM", "hpclaunch: first failure: rank 0 on "), ("KILL", "")])
def test_a_failure_counts_though_its_note_is_cut_off(work, site, death, shown):
    """A signal to the shell that has just opened the note of the first failure: the job never ends with 0."""
    setup = f'echo() {{ [[ $1 != "3 rank-0.log"* ]] || kill -{death} "$BASHPID"; builtin echo "$@"; }}'
    result = run(*site, "--nodes", 1, "--launcher", "tasks", "--setup", setup, "--", "bash", "-c", "exit 3")
    assert result.returncode == 3
    assert shown in result.stdout


def test_logs_of_many_ranks_lie_in_a_folder_for_each_node(work, cli, monkeypatch):
    """Above 512 ranks a log is node-K/rank-N.log; empty ones are gone at the end, and `logs` finds the others."""
    monkeypatch.setattr("hpclaunch.job.plan.MOST_LOGS", 3)
    words = ("--nodes", "2", "--tasks-per-node", "2", "--", "bash", "-c", "[ $RANK = 2 ] || echo hi $RANK")
    (work / "job.sh").write_text(cli("render", "--site", "local", *words).stdout)
    shown = subprocess.run(["bash", "job.sh"], capture_output=True, text=True, check=True).stdout
    assert {f"[{rank}] hi {rank}" for rank in (0, 1, 3)} < set(shown.splitlines())
    found = {str(path.relative_to(run_folder(work))) for path in run_folder(work).glob("*/*")}
    assert found == {"node-0/rank-0.log", "node-0/rank-1.log", "node-1/rank-3.log"}


@pytest.mark.slow
def test_a_rank_that_ended_long_ago_has_ended_well(work):
    """Bash remembers the exit codes of a limited number of processes; many end while one rank outlives the other."""
    program(
        work / "bin" / "sleep", 'exec /usr/bin/sleep "$(echo "$1" | sed s/^1$/0.02/)"'
    )  # many rounds in little time
    command = "[ $RANK = 0 ] || /usr/bin/sleep 20"
    quick = {"PATH": f"{work}/bin:{os.environ['PATH']}"}
    few = ["bash", "-c", 'ulimit -Su 300 && exec "$@"', "bash"]  # of them bash remembers no more than this
    result = run("--tasks-per-node", 2, "--", "sh", "-c", command, env=os.environ | quick, under=few)
    assert result.returncode == 0, result.stdout + result.stderr
