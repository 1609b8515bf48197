"""Jobs on a real Slurm cluster: submitted, followed, failing, cancelled, continued."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import IDRIS, call, processes_with, program, slow, start, state, submit, wait_until

import hpclaunch

pytestmark = pytest.mark.usefixtures("slurm")
NAMES = ("MASTER_ADDR", "WORLD_SIZE", "NODE_RANK", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
REPORT = (
    "import json, os, socket, sys; print(json.dumps(dict(os.environ, argv=sys.argv[1:], host=socket.gethostname())))"
)
TWO_BY_TWO = ("--nodes", "2", "--tasks-per-node", "2")
AS_ROOT = ("--env", "OMPI_ALLOW_RUN_AS_ROOT=1", "--env", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
MNIST = Path(hpclaunch.__file__).parent / "workloads" / "mnist.py"


def reports(job: str, pattern: str = "rank-*.log") -> list[dict]:
    return [json.loads(path.read_text().splitlines()[-1]) for path in sorted(Path("hpclaunch-runs", job).glob(pattern))]


@pytest.mark.parametrize("launcher", ["tasks", slow("torchrun"), slow("mpirun")])
def test_every_rank_has_its_place(work, monkeypatch, launcher):
    """Two nodes of two ranks, in a folder with blanks and quotes, on r7i3n0 and r6i4n0, are numbered right."""
    folder = work / 'it\'s a "b"'
    folder.mkdir()
    (folder / "site_profiles").symlink_to(work / "site_profiles")
    monkeypatch.chdir(folder)
    words = (
        *TWO_BY_TWO,
        "--cpus-per-task",
        "10",
        "--directive=--nodelist=r7i3n0,r6i4n0",
        "--launcher",
        launcher,
        *AS_ROOT,
    )
    job = submit(*words, "--wait", "--", sys.executable, "-c", REPORT, "a b", "$HOME")
    found = reports(job)
    assert [tuple(report[name] for name in NAMES) for report in found] == [
        ("r6i4n0", "4", str(rank // 2), str(rank), str(rank % 2), "2") for rank in range(4)
    ]
    assert [report["host"] for report in found] == ["r6i4n0", "r6i4n0", "r7i3n0", "r7i3n0"]
    assert len({report["MASTER_PORT"] for report in found}) == 1
    assert all(report["argv"] == ["a b", "$HOME"] for report in found)
    if launcher == "tasks":
        assert {report["SLURM_CPUS_PER_TASK"] for report in found} == {"10"}


def test_gpus_are_given_by_another_directive(work):
    """--gpus-per-node without --cpus-per-task gives each of two nodes its two GPUs."""
    (profile,) = (work / "site_profiles").iterdir()
    text = 'gpu_directive: "--gpus-per-node={gpus}"\nomit: [cpus, mem]\n'
    profile.write_text(profile.read_text() + text)
    words = ("--nodes", "2", "--gpus-per-node", "2", "--cpus-per-task", "1", "--launcher", "tasks", "--wait")
    found = reports(submit(*words, "--", sys.executable, "-c", REPORT))
    assert [(report["RANK"], report["CUDA_VISIBLE_DEVICES"]) for report in found] == [(str(i), "0,1") for i in range(4)]


@pytest.mark.parametrize("launcher", ["tasks", slow("torchrun"), slow("lightning"), slow("mpirun")])
def test_the_bundled_workload_trains(launcher):
    """`submit --wait` trains Lightning DDP on two nodes, whatever starts the ranks."""
    words = (*TWO_BY_TWO, "--launcher", launcher, "--env", "OMP_NUM_THREADS=1", *AS_ROOT)
    job = submit(*words, "--wait", "--", sys.executable, str(MNIST), "--epochs", "1")
    output = Path(f"mnist_{job}.out").read_text()
    assert "MEMBER: 1/4" in output
    assert "test accuracy" in output


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["tasks", "torchrun"])
def test_recipes_for_slurm_work(launcher):
    """What reads Slurm's own variables finds the rank's place, also where srun starts torchrun once a node."""
    pytest.importorskip("idr_torch", reason="idr_torch is not installed (pip install '.[dev]')")
    job = submit(
        *TWO_BY_TWO, "--gpus-per-node", "2", "--launcher", launcher, "--wait", "--", sys.executable, "-c", IDRIS
    )
    assert [path.read_text() for path in sorted(Path("hpclaunch-runs", job).glob("rank-*.log"))] == [
        f"{rank} {rank} {rank} {rank}\n4 4 4 4\n" for rank in range(4)
    ]


@pytest.mark.slow
def test_a_job_submitted_from_a_job_is_like_any_other(work):
    """What an allocation was given does not count for a job that is submitted from inside it."""
    words = ("--nodes=2", "--ntasks-per-node=2", "--mem=1G", "--account=abc@v100", "--time=5", "--quiet")
    command = ("submit", "--quiet", "--tasks-per-node", "1", "--wait", "--", sys.executable, "-c", REPORT)
    done = subprocess.run(
        ["salloc", *words, sys.executable, "-m", "hpclaunch", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + "".join(path.read_text() for path in work.glob("*.out"))
    (found,) = reports(done.stdout.strip())
    assert (found["SLURM_NTASKS"], found["SLURM_JOB_NUM_NODES"], found.get("SLURM_MEM_PER_NODE")) == ("1", "1", None)
    assert found["SLURM_CONF"] == os.environ.get("SLURM_CONF", found["SLURM_CONF"])


@pytest.mark.parametrize("name", ["100%_of_it", "a%%b", "a\\b"])
def test_a_folder_that_slurm_cannot_write_to_is_refused(work, monkeypatch, name):
    """Where Slurm would read the folder's name as a pattern, nothing is submitted, and the message says why."""
    (work / name).mkdir()
    monkeypatch.chdir(work / name)
    monkeypatch.setenv("HPCLAUNCH_PATH", str(work / "site_profiles"))
    process = start("submit", "--", "true")
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (1, "")
    assert "submit from a folder without % and \\" in stderr
    assert not (work / name / "hpclaunch-runs").exists()


# Slurm's own business, its configuration's, or what no program reads to find its place.
PLUMBING = re.compile(
    r"SLURM_(CPU_BIND.*|.*COMM_.*|LAUNCH_NODE_IPADDR|STEP_LAUNCHER_PORT|TASK_PID|TOPOLOGY_.*|UMASK|NODE_ALIASES|CONF"
    r"|PRIO_PROCESS|.*CLUSTER.*|.*_PACK_GROUP_0|THREADS_PER_CORE|MEM_PER_CPU|JOB_(START|END)_TIME|DISTRIBUTION|GTIDS"
    r"|HINT|JOB_CPUS_PER_NODE|JOB_[GU]ID|JOB_USER|STEP_GPUS|SUBMIT_HOST)"
)


@pytest.mark.slow
def test_a_rehearsed_step_has_the_variables_of_a_real_one():
    """A rank's variables of the job, of the step and of its place in them are as on the cluster."""
    asked = "--directive=--partition=gpu_p13 --directive=--qos=qos_gpu-t3 --gpus-per-node 2 --cpus-per-task 10"
    words = (*asked.split(), *TWO_BY_TWO)
    command = ("--launcher", "tasks", "--", sys.executable, "-c", REPORT)
    real = reports(submit(*words, "--wait", *command))[3]
    call("run", "--site", "jz", "--quiet", *words, *command)
    (log,) = {*Path("hpclaunch-runs").glob("*/rank-3.log")} - {
        Path("hpclaunch-runs", real["SLURM_JOB_ID"], "rank-3.log")
    }
    rehearsed = json.loads(log.read_text())
    ours, theirs = (
        {
            name: value
            for name, value in each.items()
            if (name.startswith("SLURM") or name == "CUDA_VISIBLE_DEVICES") and not PLUMBING.fullmatch(name)
        }
        for each in (rehearsed, real)
    )
    assert theirs.keys() == ours.keys()
    same = [name for name in ours if not re.search("CLUSTER|NODELIST|NODENAME|HOST|JOB_?ID|USER", name)]
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}


def test_a_job_and_its_life():
    """The id alone is on stdout; the run folder has script, plan and logs; jobs, status and logs tell of it."""
    job = submit(*TWO_BY_TWO, "--", "bash", "-c", 'echo "hello from rank $RANK"; echo same; sleep 5')
    assert job.isdigit()
    assert call("logs", "-f", job).splitlines()[-5:] != []
    wait_until(lambda: state(job)["word"] == "COMPLETED")
    folder = Path("hpclaunch-runs", job)
    assert {"job.sh", "plan.json", "run.json", "rank-0.log", "rank-3.log"} <= {path.name for path in folder.iterdir()}
    lines = call("logs", job).splitlines()
    assert "[\u00d74] same" in lines
    assert "[3] hello from rank 3" in lines
    assert call("logs", "--rank", "2", job) == "hello from rank 2\nsame\n"
    assert call("jobs").splitlines()[1].split()[:2] == [job, "COMPLETED"]
    printed = call(
        "render", "--quiet", *TWO_BY_TWO, "--", "bash", "-c", 'echo "hello from rank $RANK"; echo same; sleep 5'
    )
    assert (folder / "job.sh").read_text() == printed


@pytest.mark.slow
def test_stderr_is_in_the_log_and_alone():
    """`logs` shows what ranks write to stdout and stderr, a last traceback too; `logs --err` the latter alone."""
    code = "import sys; print('out'); print('err', file=sys.stderr); raise SystemExit('the last word')"
    job = submit("--tasks-per-node", "2", "--wait", "--", sys.executable, "-c", code, code=1)
    assert call("logs", job).splitlines() == ["[\u00d72] out", "[\u00d72] err", "[\u00d72] the last word"]
    assert call("logs", "--err", "--rank", "1", job) == "err\nthe last word\n"
    assert call("logs", "--err", "-f", job).splitlines() == ["[\u00d72] err", "[\u00d72] the last word"]


@pytest.mark.slow
def test_a_rank_that_has_ended_says_no_more():
    """A TERM that comes after the command, as another rank failed too, is in no log."""
    late = "for n in {1..20}; do pkill -TERM -x sleep -P $PPID; sleep 0.05; done"
    code = f"echo out; echo err >&2; ({late}) &>/dev/null & exit 3"
    job = submit("--tasks-per-node", "2", "--wait", "--", "bash", "-c", code, code=3)
    assert call("logs", job).splitlines() == ["[\u00d72] out", "[\u00d72] err"]


@pytest.mark.parametrize("more", [(), ("--max-attempts", "2")])
def test_ranks_that_a_signal_ends_have_an_exit_code(more):
    """A TERM that ends the command as its shell hears of it: each rank is noted with 143 before Slurm's KILL."""
    job = submit("--nodes", "2", "--tasks-per-node", "4", *more, "--", "sleep", "100")

    def notes() -> str:
        return "".join(path.read_text() for path in Path("hpclaunch-runs", job).glob("node-*.usage"))

    wait_until(lambda: notes().count("start rank") == 8)
    call("cancel", job)
    wait_until(lambda: notes().count("end rank") == 8, 20)
    assert sorted(re.findall(r"end rank (\d) (\d+)", notes())) == [(str(rank), "143") for rank in range(8)]


def shells_of(job: str) -> list[int]:
    """Find the processes that slurmstepd itself started for the ranks of a job that was submitted here."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables, parent = (
                (folder / "environ").read_bytes(),
                (folder / "stat").read_text().split(") ")[1].split()[1],
            )
            above = Path("/proc", parent, "comm").read_text()
        except OSError:
            continue
        if (
            above == "slurmstepd\n"
            and f"\0SLURM_JOB_ID={job}\0".encode() in variables
            and f"\0SLURM_SUBMIT_DIR={Path.cwd()}\0".encode() in variables
            and b"\0SLURM_STEP_ID=0\0" in variables
        ):
            found.append(int(folder.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["tasks", "torchrun"])
@pytest.mark.parametrize("more", [(), ("--max-attempts", "2")])
def test_a_signal_reaches_the_command_once_whomever_slurm_signals(launcher, more):
    """With proctrack/cgroup Slurm signals only the process that it started, with other plugins every one."""
    code = """
import signal, time
for number in signal.SIGUSR2, signal.SIGTERM:
    signal.signal(number, lambda number, _: print(signal.Signals(number).name, flush=True))
print("here", flush=True)
while True:
    time.sleep(1)
"""
    words = (*TWO_BY_TWO, "--launcher", launcher, *more)
    job = submit(*words, "--", sys.executable, "-c", code)
    logs = [Path("hpclaunch-runs", job, f"rank-{rank}.log") for rank in range(4)]
    wait_until(lambda: all(each.exists() and "here" in each.read_text() for each in logs))
    log = logs[3]
    number = signal.SIGTERM if launcher == "torchrun" else signal.SIGUSR2
    said = f"{number.name}\n"
    shells = shells_of(job)
    assert len(shells) == (2 if launcher == "torchrun" else 4)
    for shell in shells:
        os.kill(shell, number)
    wait_until(lambda: said in log.read_text())
    time.sleep(1)
    assert log.read_text().count(said) == 1
    if launcher == "tasks":
        subprocess.run(["scancel", f"--signal={number.name[3:]}", f"{job}.0"], check=True)
        wait_until(lambda: log.read_text().count(said) > 1)
        time.sleep(1)
        assert log.read_text().count(said) == 2
    subprocess.run(["scancel", "--signal=KILL", job], check=True)
    wait_until(lambda: shells_of(job) == [])


def test_a_failing_rank_ends_the_job_with_its_code():
    """One rank exits with 7: within 15 s the job is FAILED with 7, and `why` names rank, host and last line."""
    code = (
        "import os, sys, time\nif os.environ['RANK'] == '3':\n    print('no data here'); sys.exit(7)\ntime.sleep(100)"
    )
    began = time.monotonic()
    job = submit(*TWO_BY_TWO, "--directive=--nodelist=r6i4n[0-1]", "--", sys.executable, "-c", code)
    call("wait", job, code=7)
    assert time.monotonic() - began < 15
    assert (state(job)["word"], state(job)["exit_code"]) == ("FAILED", 7)
    why = call("why", job)
    assert "rank 3" in why
    assert "r6i4n1" in why
    assert "no data here" in why


# A program that writes twelve lines and lives a moment longer.
TWELVE = 'for i in 1 2 3 4 5 6; do echo "out $i"; echo "err $i" >&2; done; sleep "$0"; exit 7'
UNRULY = ("set -euo pipefail -C; IFS=:", "trap 'echo bye >bye' EXIT", "fail() { exit 8; }; code=x ended=x")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "seconds"),
    [(TWO_BY_TWO, 0.05), (("--nodes", "2", "--max-attempts", "2"), 0.5), (("--launcher", "lightning"), 1.5)],
)
def test_whole_output_of_rank_0_and_exit_code(words, seconds):
    """However short a program lives, whatever its setup does to the shell, its lines and its exit code are there."""
    setup = [word for line in UNRULY for word in ("--setup", line)]
    job = submit(*words, *setup, "--job-name", "x", "--wait", "--", "bash", "-c", TWELVE, seconds, code=7)
    shown = Path(f"x_{job}.out").read_text().partition("hpclaunch: first failure")[0].splitlines()
    twelve = [f"{kind} {number}" for kind in ("err", "out") for number in range(1, 7)]
    assert sorted(line for line in shown if line[:4] in ("out ", "err ")) == twelve
    assert state(job)["exit_code"] == 7
    assert Path("hpclaunch-runs", job, "exit").read_text() == "7\n"
    assert Path("bye").read_text() == "bye\n"


def test_a_job_submitted_by_hand_can_be_asked_about():
    """After a plain sbatch of the rendered script, status, logs and why work by the run folder's path."""
    words = ("--tasks-per-node", "1", "--", "sh", "-c", "echo no data; exit 7")
    script = call("render", "--quiet", *words)
    job = subprocess.run(
        ["sbatch", "--parsable"], input=script, check=True, capture_output=True, text=True
    ).stdout.strip()
    folder = Path("hpclaunch-runs", job)
    wait_until((folder / "about.json").exists)
    call("wait", folder, code=7)
    assert state(str(folder))["id"] == job
    assert call("logs", folder) == "[0] no data\n"
    assert "no data" in call("why", folder)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["tasks", "torchrun"])
def test_cancel_leaves_no_process(work, launcher):
    """Cancelled jobs are gone from every node within 15 s."""
    job = submit(*TWO_BY_TWO, "--launcher", launcher, "--", sys.executable, "-c", "import time; time.sleep(300)")
    wait_until(lambda: len(list(Path("hpclaunch-runs", job).glob("rank-*.log"))) == 4)
    call("cancel", job)
    wait_until(lambda: processes_with(str(work / "hpclaunch-runs" / job)) == [], 15)
    wait_until(lambda: state(job)["word"] == "CANCELLED")
    call("wait", job, code=state(job)["exit_code"] or 1)


@pytest.mark.parametrize(
    ("words", "said", "key"),
    [
        (("-A", "nope@v100"), "Invalid account", "look at --account"),
        (("--directive=--qos=nope", "--force", "repeated"), "Invalid qos", "partitions.v100.qos"),
        (
            ("--directive=--gres=gpu:5", "--force", "repeated"),
            "node configuration is not available",
            "partitions.v100.gpus_per_node",
        ),
        (
            ("--directive=--mem=999G", "--force", "repeated"),
            "Memory specification can not be satisfied",
            "look at --mem-gb",
        ),
        (("--directive=--frobnicate",), "unrecognized option", ""),
    ],
)
def test_refusals_come_back_in_slurms_words(work, words, said, key):
    """What sbatch refuses ends with its own words, the key to look at, exit code 3, and no run folder."""
    process = start("submit", *words, "--", "true")
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (3, "")
    assert said in stderr
    assert key in stderr
    assert not (work / "hpclaunch-runs").exists()
    assert json.loads(call("jobs", "--json")) == []


def test_pending_has_its_reason():
    """A job that Slurm lets wait for ever is explained."""
    job = submit("--directive=--qos=qos_gpu-dev", "--directive=--time=05:00:00", "--force", "repeated", "--", "true")
    wait_until(lambda: state(job)["reason"] == "QOSMaxWallDurationPerJobLimit")
    assert state(job)["word"] == "PENDING"
    assert "walltime" in call("why", job)


def counting(work: Path, monkeypatch, *names: str) -> Path:
    """Put programs on PATH that note each call before they call the real ones."""
    for name in names:
        program(work / "bin" / name, f'echo {name} >>{work}/calls\nexec /usr/bin/{name} "$@"')
    monkeypatch.setenv("PATH", f"{work / 'bin'}:{os.environ['PATH']}")
    return work / "calls"


@pytest.mark.slow
def test_two_hundred_submissions_lose_nothing_and_are_one_question(work, monkeypatch):
    """Of 200 jobs, 20 submitted at a time, each is in the registry, and the state of all is one question."""
    ids: set[str] = set()
    for _ in range(10):
        words = ("submit", "--quiet", "--tasks-per-node", "1", "--directive=--hold", "--", "true")
        processes = [start(*words) for _ in range(20)]
        ids |= {process.communicate(timeout=120)[0].strip() for process in processes}
    assert len(ids) == 200
    assert {row["id"] for row in json.loads(call("jobs", "--json", "-n", "300"))} == ids
    calls = counting(work, monkeypatch, "sacct", "squeue", "scontrol")
    assert {row["word"] for row in json.loads(call("status", "--json", *ids))} == {"PENDING"}
    assert calls.read_text() == "sacct\nsqueue\n"  # why a job waits, only squeue knows
    call("cancel", *ids)
    wait_until(lambda: {row["word"] for row in json.loads(call("status", "--json", *ids))} == {"CANCELLED"})
    calls.unlink()
    call("status", *ids)
    assert calls.read_text() == "sacct\n"


@pytest.mark.slow
def test_without_accounting_the_controller_is_asked(work, monkeypatch):
    """On a cluster without sacct the state comes from scontrol, exit code included."""
    job = submit("--tasks-per-node", "1", "--", "bash", "-c", "exit 5")
    program(work / "bin" / "sacct", "echo 'Slurm accounting storage is disabled' >&2\nexit 1")
    monkeypatch.setenv("PATH", f"{work / 'bin'}:{os.environ['PATH']}")
    call("wait", job, code=5)
    assert state(job)["word"] == "FAILED"


@pytest.mark.slow
def test_a_script_of_ones_own_is_checked_and_submitted(work):
    """`submit --script` takes any script, refuses broken ones, and directives that Slurm would ignore."""
    (work / "own.sh").write_text("#!/bin/bash\n#SBATCH --account=abc@v100\n#SBATCH --output=/dev/null\nexit 3\n")
    job = submit("--script", "own.sh", "--wait", code=3)
    assert state(job)["word"] == "FAILED"
    (work / "late.sh").write_text("#!/bin/bash\ncd /tmp\n#SBATCH --time=1\n")
    process = start("submit", "--script", "late.sh")
    assert "late.sh:3: a directive is ignored after the first command" in process.communicate(timeout=60)[1]
    assert process.returncode == 1
    (work / "broken.sh").write_text("#!/bin/bash\nif\n")
    process = start("submit", "--script", "broken.sh")
    assert "syntax error" in process.communicate(timeout=60)[1]


@pytest.mark.slow
def test_a_script_of_ones_own_is_recorded_as_what_it_asks_for(work):
    """Name, size and partition are the script's own, in `jobs` as in Slurm; without a name it is its file's."""
    head = "#!/bin/bash\n#SBATCH --account=abc@v100\n#SBATCH --output=/dev/null\n"
    (work / "own job.sh").write_text(f"{head}#SBATCH -p gpu_p13 -N 2\n#SBATCH --ntasks-per-node=3\ntrue\n")
    (work / "named.sh").write_text(f"{head}#SBATCH -J mine --hold\ntrue\n")
    job, named = submit("--script", "own job.sh"), submit("--script", "named.sh")
    row, other = state(job), state(named)
    assert [row[key] for key in ("job_name", "partition", "nodes", "tasks_per_node")] == ["own_job.sh", "gpu_p13", 2, 3]
    assert [other[key] for key in ("job_name", "partition", "nodes", "tasks_per_node")] == ["mine", "v100", 1, 1]
    names = [subprocess.check_output(["squeue", "-ho%j", "-tall", f"-j{i}"], text=True) for i in (job, named)]
    assert names == ["own_job.sh\n", "mine\n"]


@pytest.mark.slow
def test_a_command_and_a_folder_that_are_not_utf8(work, monkeypatch):
    """Any byte may stand in a command's word and in the folder's name; nothing fails once Slurm has the job."""
    folder = work / os.fsdecode(b"a\xff")
    folder.mkdir()
    (folder / "site_profiles").symlink_to(work / "site_profiles")
    monkeypatch.chdir(folder)
    job = submit("--tasks-per-node", "1", "--wait", "--", "printf", os.fsdecode(b"\xff\n"))
    assert (folder / "hpclaunch-runs" / job / "rank-0.log").read_bytes() == b"\xff\n"
    assert (state(job)["word"], state(job)["folder"]) == ("COMPLETED", str(folder / "hpclaunch-runs" / job))


@pytest.mark.slow
def test_jobs_wait_for_the_ends_of_others(work):
    """Any job of Slurm, of an array too, is waited for in any way; one whose end rules a job out leaves it waiting."""
    until = f"until [ -e {work}/end ]; do sleep 0.2; done"
    good, bad, array = (
        subprocess.run(
            ["sbatch", "--parsable", "--ntasks=1", "--account=abc@v100", "--time=5", *words, f"--wrap={until}{end}"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        for end, words in (("", []), ("; exit 3", []), ("; exit $SLURM_ARRAY_TASK_ID", ["--array=0-1"]))
    )  # fmt: skip
    one = ("--tasks-per-node", "1")
    run = submit(*one, "--", "sh", "-c", until)
    ended = submit(
        *one, "--after-any", array, "--after-failed", bad, "--after", f"{array}_0", "--after", run, "--", "true"
    )
    never = [submit(*one, *words, "--", "true") for words in (("--after", f"{array}_1"), ("--after-failed", good))]
    assert {state(job)["reason"] for job in (ended, *never)} == {"Dependency"}
    (work / "end").touch()
    call("wait", ended)
    for job in never:
        wait_until(lambda job=job: "did not end as required, so it will never start" in call("why", job), 60)
    call("cancel", *never)
    process = start("submit", "--after-any", "n1", "--", "true")
    assert "have ids like 123 or 123_4" in process.communicate(timeout=30)[1]


@pytest.mark.slow
def test_python_functions_run_on_every_rank():
    """In submitit's way, results and exceptions of each rank come back, with the launch contract in the environment."""
    script = """
import hpclaunch, os, submitit, time
def place(factor):
    if factor == 0 and os.environ["RANK"] == "2":
        raise ValueError("zero")  # and the others are killed for it
    if factor == 0:
        time.sleep(60)
    environment = submitit.JobEnvironment()
    assert environment.hostnames == ["r6i4n0", "r6i4n1"]
    assert environment.hostname == environment.hostnames[environment.node]
    submitit.helpers.TorchDistributedEnvironment().export()
    return factor * int(os.environ["RANK"]), os.environ["MASTER_ADDR"], os.environ["NODE_RANK"]
executor = hpclaunch.executor("jz", nodes=1, tasks_per_node=2, walltime="00:05:00", account="abc@v100")
executor.update_parameters(nodes=2)
assert isinstance(executor, submitit.core.core.Executor)
job = executor.submit(place, 10)
expected = [(0, "r6i4n0", "0"), (10, "r6i4n0", "0"), (20, "r6i4n0", "1"), (30, "r6i4n0", "1")]
assert job.results() == expected, job.results()
assert job.done() and "Job completed successfully" in job.stdout()
failing = executor.submit(place, 0)
try:
    failing.results()
    raise SystemExit("no exception came back")
except submitit.core.utils.FailedJobError as error:
    assert "ValueError: zero" in str(error) and str(failing.exception()) == str(error)
waiting = executor.submit(place, 1)
waiting.cancel()
print("fine")
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout == "fine\n", run.stderr


@pytest.mark.slow
def test_map_array_is_one_submission(work, monkeypatch):
    """Fifty functions are one array: one sbatch, fifty results."""
    calls = counting(work, monkeypatch, "sbatch")
    script = """
import hpclaunch
executor = hpclaunch.executor("jz", tasks_per_node=1, walltime="00:05:00", account="abc@v100")
executor.update_parameters(array_parallelism=40)
jobs = executor.map_array(lambda n: n * n, range(50))
print([job.result() for job in jobs] == [n * n for n in range(50)])
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=False)
    assert run.stdout == "True\n", run.stderr
    assert calls.read_text() == "sbatch\n"


@pytest.mark.slow
def test_a_bash_env_that_ends_at_errors_hides_no_failure(work):
    """Where each bash of the job reads `set -eu` first, the failing rank is still named."""
    (work / "strict.sh").write_text("set -eu\n")
    words = ("--tasks-per-node", "1", "--setup", f"export BASH_ENV={work}/strict.sh")
    job = submit(*words, "--wait", "--", "sh", "-c", "exit 7", code=7)
    assert "rank 0 on " in call("why", job)


@pytest.mark.slow
def test_a_job_that_cannot_note_its_end_has_not_failed():
    """Where the disk is full in the job's last line, its exit code is still that of its ranks."""
    full = 'ln -s /dev/full "$HPCLAUNCH_RUN_DIR/exit"'
    job = submit("--tasks-per-node", "1", "--", "sh", "-c", full)
    call("wait", job)
    assert state(job)["word"] == "COMPLETED"


@pytest.mark.slow
def test_variables_of_sbatch_do_not_change_what_was_asked_for(monkeypatch):
    """What was shown and priced holds, though for sbatch SBATCH_* in the user's shell win over the script."""
    monkeypatch.setenv("SBATCH_TIMELIMIT", "3")
    monkeypatch.setenv("SBATCH_JOB_NAME", "another")
    job = submit("--tasks-per-node", "1", "--walltime", "5m", "--job-name", "mine", "--", "sleep", "60")
    squeue = ["squeue", "--noheader", f"--jobs={job}", "--format=%l %j"]
    assert subprocess.check_output(squeue, text=True).split() == ["5:00", "mine"]
    call("cancel", job)


@pytest.mark.slow
def test_an_array_ends_with_its_last_job(work):
    """`submit --wait` of an array stays until the last of its jobs has ended, and the code of one that failed."""
    words = ("--directive=--array=0-2%2", "--tasks-per-node", "1", "--cpus-per-task", "1")
    code = "sleep $SLURM_ARRAY_TASK_ID; touch $SLURM_ARRAY_TASK_ID; [ $SLURM_ARRAY_TASK_ID != 1 ] || exit 137"
    job = submit(*words, "--wait", "--", "sh", "-c", code, code=137)
    assert (work / "2").exists()
    assert (state(job)["word"], state(job)["exit_code"]) == ("FAILED", 137)
