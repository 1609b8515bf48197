"""Why a job waits or died, as a person reads it."""

from __future__ import annotations

import os
import time

import msgspec
import pytest

from hpclaunch import paths
from hpclaunch.profile import search
from hpclaunch.profile.model import Messages
from hpclaunch.profile.rules import messages_mistakes
from hpclaunch.profile.yamlfile import Document, convert
from hpclaunch.runs import registry
from hpclaunch.runs.registry import Run
from hpclaunch.runs.why import explain
from hpclaunch.schedulers.job import CANCELLED, COMPLETED, FAILED, PENDING, REQUEUED, RUNNING, TIMEOUT, UNKNOWN, State


@pytest.fixture
def run(work):
    folder = work / "hpclaunch-runs" / "1234"
    folder.mkdir(parents=True)
    return Run(id="1234", site="jean-zay", scheduler="slurm", job_name="train", folder=str(folder), submitted=0)


def fail(run: Run, code: int, log: str, *lines: str, who: str = "rank 3 on r7i3n0") -> None:
    """Leave what a failed job leaves."""
    (run.path / "failed").write_text(f"{code} {log} {who}\n")
    if log != "-":
        (run.path / log).write_text("".join(f"{line}\n" for line in lines))


def output(run: Run, *lines: str) -> None:
    """Write the scheduler's own output of the job."""
    (run.path.parent.parent / f"train_{run.id}.out").write_text("".join(f"{line}\n" for line in lines))


def test_a_failing_rank_is_named_with_its_last_words(run):
    """First come rank, host and exit code, then the code in words and the last 20 lines of that rank's log."""
    fail(run, 7, "rank-3.log", *(f"line {n}" for n in range(100)), "no data here")
    assert explain(run, State(FAILED, "", 7, "r7i3n0")) == [
        "1234 (jean-zay, train) FAILED: rank 3 on r7i3n0 exited with 7",
        "Exit code 7: your program's own code.",
        f"The end of {run.path}/rank-3.log:",
        *(f"    line {n}" for n in range(81, 100)),
        "    no data here",
    ]


def test_what_was_told_to_end_is_not_why_a_killed_script_died(run):
    """After a kill of the job script, the ranks that were told to end then are not blamed."""
    fail(run, 143, "rank-3.log", "step 7")
    assert explain(run, State(FAILED, "", 137))[:2] == [
        "1234 (jean-zay, train) FAILED: the job script exited with 137",
        "Exit code 137: SIGKILL: most often out of memory (RAM), else killed by the scheduler or a user.",
    ]


@pytest.mark.parametrize(
    ("last", "advice"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "smaller batch"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=12.0.", "--mem-gb"),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible ...", "Fewer workers"),
        ("ModuleNotFoundError: No module named 'lightning'", "which python"),
        ("[rank3]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:94", "NCCL_DEBUG=INFO"),
        ("[E ProcessGroupNCCL.cpp:475] Watchdog caught collective operation timeout: WorkNCCL(", "another rank"),
        ("RuntimeError: The server socket has failed to listen: EADDRINUSE", "MASTER_PORT"),
        ("OSError: [Errno 28] No space left on device", "quota is full"),
        ("OSError: [Errno 122] Disk quota exceeded: '/home/me/.cache'", "quota is full"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/g/data/wb00/MNIST'", "--storage gdata/PROJECT"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'", "folder the job was submitted"),
        ("PermissionError: [Errno 13] Permission denied: '/data/x'", "namei -l"),
        ("urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>", "no internet"),
        ("bash: line 1: module: command not found", "/etc/profile"),
        ("bash: line 1: pyhton: command not found", "not on PATH"),
        ("RuntimeError: CUDA error: invalid device ordinal", "LOCAL_RANK"),
        ("/bin/bash: line 9:  4711 Killed                  python train.py", "RAM"),
        ("ImportError: libcudart.so.12: cannot open shared object file: No such file or directory", "modules"),
        ("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 164096", ""),
        ("ValueError: something of its own", ""),
    ],
)
@pytest.mark.shipped
def test_known_last_lines_come_with_advice(run, last, advice):
    """What people meet most is recognised in the last lines, the rest is left without a guess."""
    fail(run, 1, "rank-0.log", "Traceback (most recent call last):", last, who="rank 0 on n1")
    lines = explain(run, State(FAILED, "", 1), search.load("gadi").site.messages)
    assert lines[1] == "Exit code 1: an error; a Python exception ends so."
    if advice:
        assert lines[-2] == f"    {last}"
        assert advice in lines[-1]
    else:
        assert lines[-1] == f"    {last}"


def test_the_last_known_line_counts(run):
    """Of two known lines the later one is what ended the program."""
    fail(run, 1, "rank-0.log", "warning: Permission denied: /root/x", "CUDA out of memory", "  at frame 7")
    assert "smaller batch" in explain(run, State(FAILED, "", 1))[-1]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "Python exception"),
        (2, "wrong options"),
        (3, "own code"),
        (126, "cannot be executed"),
        (127, "command not found"),
        (134, "SIGABRT: it aborted, as NCCL"),
        (135, "SIGBUS: often /dev/shm"),
        (137, "SIGKILL: most often out of memory"),
        (139, "SIGSEGV: a crash in compiled code"),
        (143, "SIGTERM: it was asked to end"),
        (250, "own code"),
        (271, "SIGTERM"),
        (-29, "walltime"),
        (-3, "not your program's"),
    ],
)
def test_exit_codes_in_words(run, code, words):
    """Codes of shells, signals and PBS mean something."""
    lines = explain(msgspec.structs.replace(run, scheduler="pbs"), State(FAILED, "", code))
    assert lines[1].startswith(f"Exit code {code}: ") and words in lines[1]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Priority", "Nothing to fix"),
        ("Resources", "next in line"),
        ("QOSMaxWallDurationPerJobLimit", "Its walltime is above what its QoS allows, so it will never start"),
        ("QOSMaxGRESPerUser", "one user may in this QoS"),
        ("QOSMaxNodePerJobLimit", "more than one job may in its QoS"),
        ("QOSMaxSubmitJobPerUserLimit", "as many jobs, waiting and running"),
        ("QOSMaxJobsPerUserLimit", "As many of your jobs run"),
        ("AssocMaxJobsLimit", "As many of your jobs run"),
        ("QOSGrpGRES", "All jobs in this QoS together"),
        ("AssocGrpGRES", "All jobs of your account together"),
        ("AssocGrpGRESMinutes", "hours of your account"),
        ("AssocGrpCPURunMinutesLimit", "have reserved as many hours"),
        ("Dependency", "starts after another job"),
        ("DependencyNeverSatisfied", "never start. Cancel it"),
        ("BeginTime", "before a set time"),
        ("ReqNodeNotAvail, UnavailableNodes:r7i3n0", "down, or reserved"),
        ("ReqNodeNotAvail,_Reserved_for_maintenance", "before a maintenance begins"),
        ("PartitionTimeLimit", "shorter --walltime"),
        ("BadConstraints", "No nodes fit"),
        ("PartitionConfig", "fits no node of its partition, so it will never start"),
        ("JobHeldUser", "`scontrol release 1234`"),
        ("JobHeldAdmin", "Write to support"),
        ("(launch_failed_requeued_held)", "A node failed while it was to start"),
        ("InvalidAccount", "another --account"),
        ("SomethingNew", "The scheduler's reason: SomethingNew."),
        ("", "no reason (yet)"),
    ],
)
def test_why_a_job_waits(run, reason, words):
    """The scheduler's reason comes as a sentence with what to do; an unknown one as it is."""
    lines = explain(run, State(PENDING, reason))
    assert lines[0] == f"1234 (jean-zay, train) PENDING{f': {reason}' if reason else ''}"
    assert words in lines[1]
    assert len(lines) == 2


def test_when_a_job_is_expected_to_start(run):
    """The scheduler's own forecast stands below the reason, in the user's time."""
    when = time.mktime((2026, 11, 21, 14, 3, 0, 0, 0, -1))
    assert explain(run, State(PENDING, "Resources", expected_start=when))[2:] == [
        "The scheduler expects it to start at 2026-11-21 14:03."
    ]


def test_a_dead_node_is_no_exception_of_the_program(run):
    """A node that the job script lost is named with what it means, and no exit code is explained."""
    fail(run, 1, "-", who="node gpu2, which is silent")
    output(run, "hpclaunch: first failure: node gpu2, which is silent, exit code 1")
    lines = explain(run, State(FAILED, "", 1))
    assert lines[:2] == [
        "1234 (jean-zay, train) FAILED: node gpu2 is silent",
        "Likely a node died. That is not your program's fault: submit it again, or use --max-attempts.",
    ]
    assert "xception" not in "".join(lines)
    slurm = explain(run, State(FAILED, "NODE_FAIL", 1))
    assert "xception" not in "".join(slurm)
    assert slurm[0].endswith("FAILED: a node died")


def test_a_frozen_node_is_no_contradiction(run):
    """While the scheduler still lists a job as running whose script has ended, that is what is said."""
    fail(run, 1, "-", who="node gpu2, which is silent")
    lines = explain(run, State(RUNNING, hosts="gpu1,gpu2"))
    assert lines[0].endswith("RUNNING: node gpu2 is silent")
    assert lines[1].startswith("Its job script is about to end.")
    (run.path / "exit").write_text("1\n")
    assert explain(run, State(RUNNING))[1].startswith("Its job script has ended.")


@pytest.mark.parametrize("code", [75, 143, 271])
def test_a_cancelled_job_has_no_other_cause(run, code):
    """What a rank left with after somebody cancelled the job is not explained as a failure."""
    fail(run, code if code < 256 else 143, "rank-0.log", "saved")
    assert explain(run, State(CANCELLED, f"CANCELLED by {os.getuid()}", code)) == [
        "1234 (jean-zay, train) CANCELLED: it was cancelled by you",
        f"The scheduler's reason is CANCELLED by {os.getuid()}: it was cancelled by you.",
    ]
    fail(run, 7, "rank-3.log", "no data here")
    assert "The first to fail: rank 3 on r7i3n0 exited with 7." in explain(run, State(CANCELLED, "", code))


def test_why_a_job_did_not_go_on(run):
    """Whether attempts were left is said by the job itself: all used up, or the next one could not be submitted."""
    alone = explain(run, State(FAILED, "", 75))
    assert alone[1] == "Exit code 75: it is not done and asks for another attempt (--max-attempts)."
    output(run, "hpclaunch: not done, and 2 attempts are used up")
    assert explain(run, State(FAILED, "", 75))[-1].startswith("Likely: The job was not done after its last attempt")
    output(run, "qsub: Resource temporarily unavailable")
    fail(run, 75, "-", who="the next attempt, which could not be submitted")
    lines = explain(run, State(FAILED, "", 75))
    assert lines[0].endswith("FAILED: the next attempt could not be submitted")
    assert "Exit code" not in "".join(lines)
    assert lines[-1] == "    qsub: Resource temporarily unavailable"


def test_a_step_that_could_not_be_launched_is_no_full_memory(run):
    """Srun's own "Killed" about tasks that it never started is not taken for a lack of memory."""
    output(
        run,
        "srun: error: Task launch for StepId=12.0 failed on node r7i3n0: Communication connection failure",
        "srun: error: Application launch failed: Communication connection failure",
        "srun: Job step aborted: Waiting up to 12 seconds for job step to finish.",
        "srun: error: r6i4n0: task 0: Killed",
    )
    assert explain(run, State(FAILED, "", 137))[-1].startswith("Likely: Slurm could not start the program on a node")


@pytest.mark.parametrize("log", ["../secret", "/etc/passwd", "link.log", "pipe.log"])
def test_only_files_of_the_run_folder_are_shown(run, log):
    """A note of the first failure that leads out of the run folder, or to no file at all, shows nothing of it."""
    (run.path.parent / "secret").write_text("root:x:0\n")
    (run.path / "link.log").symlink_to("/etc/passwd")
    os.mkfifo(run.path / "pipe.log")
    (run.path / "failed").write_text(f"7 {log} rank 0 on n1\n")
    assert "root:" not in "\n".join(explain(run, State(FAILED, "", 7)))


def test_walltime_used_up(run):
    """A job that ran out of time says so first, shows how far it came, and blames no rank."""
    fail(run, 143, "rank-0.log", "step 88", "Connection reset by peer", who="rank 0 on n1")
    lines = explain(run, State(TIMEOUT, "TIMEOUT", 143))
    assert lines[0] == "1234 (jean-zay, train) TIMEOUT: the walltime was used up"
    assert "--max-attempts" in lines[1]
    assert lines[-2:] == ["    step 88", "    Connection reset by peer"]


def test_what_the_scheduler_ended(run):
    """A dead node, too much memory, a missing folder and a cancellation are told in words."""
    assert explain(run, State(FAILED, "NODE_FAIL", 0))[0].endswith("FAILED: a node died")
    assert "RAM" in explain(run, State(FAILED, "OUT_OF_MEMORY", 253))[0]
    missing = explain(run, State(FAILED, "0:53"))
    assert missing[0].endswith("FAILED: the scheduler could not write its output, so it never began")
    assert "--output" in missing[1]
    me = explain(run, State(CANCELLED, f"CANCELLED by {os.getuid()}", 0))
    assert me[0] == "1234 (jean-zay, train) CANCELLED: it was cancelled by you"
    assert explain(run, State(CANCELLED, "CANCELLED by 987654"))[0].endswith("cancelled by user 987654")
    assert "did not end as required" in explain(run, State(CANCELLED, "DependencyNeverSatisfied"))[0]
    here = msgspec.structs.replace(run, scheduler="local")
    assert explain(here, State(FAILED, "its process is gone"))[0].endswith("killed, or the machine went down")


def test_too_much_memory_still_names_the_rank(run):
    """Where Slurm says OUT_OF_MEMORY and a rank failed, both are told."""
    fail(run, 137, "rank-3.log", "step 1")
    lines = explain(run, State(FAILED, "OUT_OF_MEMORY", 253))
    assert lines[0].endswith("FAILED: rank 3 on r7i3n0 exited with 137")
    assert "DataLoader workers" in lines[1]
    assert "SIGKILL" in lines[2]


def test_without_a_failed_rank_the_jobs_own_output_speaks(run):
    """A job that died before its ranks began shows the end of its own output, and says so where there is none."""
    assert explain(run, State(FAILED, "", 1))[-1].startswith("There is no log: the job ended before")
    output(run, "Lmod has detected the following error:", 'The following module(s) are unknown: "pytroch"')
    lines = explain(run, State(FAILED, "", 1))
    assert lines[0].endswith("FAILED: the job script exited with 1")
    assert f"The end of {run.path.parent.parent}/train_1234.out:" in lines
    assert "module avail" in lines[-1]


def test_without_any_note_rank_0_speaks(run):
    """Where the job's own output is not there (yet), the end of rank 0's log shows how far it came."""
    (run.path / "rank-0.log").write_text("step 88\n")
    lines = explain(run, State(FAILED, "NODE_FAIL", 0))
    assert lines[-2:] == [f"The end of {run.path}/rank-0.log:", "    step 88"]


def test_a_job_that_pbs_ended_shows_its_own_output(run):
    """A note without a log leads to the job's own output."""
    run = msgspec.structs.replace(run, scheduler="pbs")
    fail(run, 143, "-", who="the job, ended by PBS (qdel or walltime)")
    (run.path.parent.parent / "train.o1234").write_text("=>> PBS: job killed: walltime 26 exceeded limit 10\n")
    lines = explain(run, State(FAILED, "", 143))
    assert lines[0].endswith("FAILED: the job, ended by PBS (qdel or walltime), exit code 143")
    assert lines[-1].startswith("Likely: The walltime was used up")


@pytest.mark.parametrize("text", ["", "nonsense", "7 rank-3.log", "\udcff"])
def test_a_damaged_note_is_no_traceback(run, text):
    """A note of the first failure that was cut short is passed over."""
    (run.path / "failed").write_bytes(text.encode(errors="surrogateescape"))
    assert explain(run, State(FAILED, "", 7))[0].endswith("the job script exited with 7")


def test_an_empty_log_is_called_empty(run):
    """A rank that failed without a word is told as such."""
    fail(run, 1, "rank-3.log")
    assert explain(run, State(FAILED, "", 1))[-1] == f"{run.path}/rank-3.log is empty."


@pytest.mark.parametrize(
    ("state", "first", "words"),
    [
        (State(RUNNING, hosts="r7i3n0"), "RUNNING: on r7i3n0", "logs --follow 1234"),
        (State(REQUEUED, "BeginTime"), "REQUEUED: BeginTime", "waits to start again"),
        (State(COMPLETED, "", 0), "COMPLETED", "ended with exit code 0"),
        (State(UNKNOWN), "UNKNOWN", "does not know this job"),
    ],
)
def test_other_states_get_one_sentence(run, state, first, words):
    """Running, requeued, completed and unknown jobs get one honest sentence."""
    lines = explain(run, state)
    assert lines[0] == f"1234 (jean-zay, train) {first}"
    assert words in lines[1]
    assert len(lines) == 2


def test_a_job_whose_rank_has_failed_tells_before_it_ends(run):
    """While the job still runs, or nobody knows it any more, the failure in its folder is shown already."""
    fail(run, 7, "rank-3.log", "no data here")
    for word in (RUNNING, UNKNOWN):
        lines = explain(run, State(word))
        assert lines[0].endswith(f"{word}: rank 3 on r7i3n0 exited with 7")
        assert lines[-1] == "    no data here"


OWN = """\
extends: slurm
messages:
  waits: {Priority: "Mondays are busy, JOB.", AssocOurs*: Ask Ann.}
  hints: {hello world: Say it again}
  exit_codes: {7: the licence server is away}
"""


def test_a_site_adds_sentences_of_its_own(run, work):
    """What a profile has under `messages` comes before what is shipped, which still holds for all else."""
    (work / "site_profiles").mkdir()
    (work / "site_profiles" / "mine.yaml").write_text(OWN)
    site = search.load("mine").site.messages
    assert explain(run, State(PENDING, "Priority"), site)[1] == "Mondays are busy, 1234."
    assert explain(run, State(PENDING, "AssocOursJobs"), site)[1] == "Ask Ann."
    assert "next in line" in explain(run, State(PENDING, "Resources"), site)[1]
    fail(run, 7, "rank-3.log", "Permission denied", "hello world")
    lines = explain(run, State(FAILED, "", 7), site)
    assert lines[1] == "Exit code 7: the licence server is away."
    assert lines[-1] == "Likely: Say it again."


def test_the_command_reads_the_profile_of_the_run(run, work, cli, monkeypatch):
    """`why` has the sentences of the run's site, and goes on without them once the profile is gone."""
    monkeypatch.setenv("PATH", "/nowhere")
    (work / "site_profiles").mkdir()
    profile = work / "site_profiles" / "mine.yaml"
    profile.write_text(OWN)
    registry.register(msgspec.structs.replace(run, scheduler="local", site="mine"))
    fail(run, 1, "rank-3.log", "hello world")
    (run.path / "exit").write_text("1\n")
    result = cli("why", "1234")
    assert result.stdout.endswith("Likely: Say it again.\n")
    assert result.stderr == "hpclaunch: not shipped with hpclaunch: site_profiles/mine.yaml\n"
    profile.unlink()
    assert cli("why", "1234").stdout.endswith("    hello world\n")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("  hints: {'a(': b}", "mine.yaml:3: messages.hints.a(: no regular expression"),
        (
            "  refusals: {'(a*)*': {option: --qos, key: qos}}",
            "mine.yaml:3: messages.refusals.(a*)*: a repeat of a group",
        ),
        ("  hint: {a: b}", "mine.yaml:3: messages.hint: unknown key (did you mean hints?)"),
        ("  exit_codes: {seven: b}", "mine.yaml:3: messages.exit_codes.seven: expected `int`"),
        ("  waits:\n    a:\n      - b", "mine.yaml:4: messages.waits.a: expected `str`, got `array`"),
    ],
)
def test_mistakes_in_messages_are_named(cli, work, text, mistake):
    """A bad pattern or key in a profile's messages is refused by file, line and key."""
    (work / "mine.yaml").write_text(f"extends: slurm\nmessages:\n{text}\n")
    result = cli("site", "check", "mine.yaml")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"hpclaunch: {mistake}")


def test_shipped_messages_are_right_and_no_profiles():
    """Each shipped file of messages is checked as profiles are, and is not offered as a site."""
    files = [*(paths.shipped("site_profiles") / "messages").glob("*.yaml")]
    assert {path.stem for path in files} == {"common", "slurm", "pbs", "local"}
    for path in files:
        convert([Document.read(path)], Messages, messages_mistakes)
    assert "common" not in search.available()
