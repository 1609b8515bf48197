"""--hang-after: ranks that wait for each other for ever end, and `why` names the one that is elsewhere."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from conftest import call, processes_with, slow, state, submit, wait_until

from hpclaunch.runs import hangs

# Rank 3 leaves out the last all_reduce, in which the others wait; in a second attempt or start it does not.
DEADLOCK = """
import os, time
import torch
import torch.distributed as dist

def look_for_data():
    time.sleep(1000)

def train():
    x = torch.ones(1)
    for step in range(3):
        dist.all_reduce(x)
    again = "2" == os.environ.get("HPCLAUNCH_ATTEMPT") or "1" == os.environ.get("TORCHELASTIC_RESTART_COUNT")
    if dist.get_rank() == 3 and not again:
        look_for_data()
    dist.all_reduce(x)
    print("done")

dist.init_process_group("gloo")
train()
dist.destroy_process_group()
"""
LIGHTNING = """
import time
import torch
try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl
try:  # as when process numbers begin anew: the ranks that Lightning starts have lower ones than the first
    open("/proc/sys/kernel/ns_last_pid", "w").write("400")
except OSError:
    pass

def look_for_data():
    time.sleep(1000)

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, number):
        if number == 3 and self.global_rank == 3:
            look_for_data()
        return self.layer(batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(64, 4)))
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
pl.Trainer(accelerator="cpu", devices=2, num_nodes=2, strategy="ddp", max_epochs=1, **quiet).fit(Model(), data)
"""
FOUND = "Ranks 0-2 wait in all_reduce at train.py:16, rank 3 is in look_for_data at train.py:7."
HANGS = "all ranks hang: none has written or used a core for 00:00:06"
TWO_BY_TWO = ("--nodes", "2", "--tasks-per-node", "2")
AFTER = ("--hang-after", "6s", "--env", "OMP_NUM_THREADS=1")
# Runs a program in a PID namespace of its own, from number 20,000 on, and ends when it has left no process behind.
PID_1 = 'echo 20000 >/proc/sys/kernel/ns_last_pid; "$@"; code=$?; while kill -0 -1 2>/dev/null; do sleep 0.1; done'
OWN_NUMBERS = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", f"{PID_1}; exit $code", "sh")
GADI = ("--site", "gadi-here", "-q", "normal", "--cpus-per-task", "1", "-t", "00:10:00")


@pytest.fixture(autouse=True)
def deadlocks(work, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (work / "train.py").write_text(DEADLOCK)
    (work / "trainer.py").write_text(LIGHTNING)


@pytest.mark.train
@pytest.mark.parametrize(
    ("launcher", "program", "found"),
    [
        slow("tasks", "train.py", FOUND),
        slow("torchrun", "train.py", FOUND),
        slow("lightning", "trainer.py", "trainer.py:31, rank 3 is in look_for_data at trainer.py:14."),
    ],
)
def test_a_deadlock_ends_and_why_names_the_rank_that_is_elsewhere(work, launcher, program, found):
    """The run ends with 124, every rank's stack is in its log, `why` says where the ranks are, nothing is left."""
    words = ("--site", "local", *TWO_BY_TWO, "--launcher", launcher, *AFTER, "--wait", "--", sys.executable, program)
    # Only root may lower the next number; it shall not be the machine's, where other tests run.
    under = OWN_NUMBERS if launcher == "lightning" and os.geteuid() == 0 else ()
    job = submit(*words, code=124, seconds=180, under=under)
    said = call("why", job)
    assert HANGS in said.splitlines()[0]
    assert found in said.splitlines()[1]
    assert "SIGABRT" not in said
    stacks = "".join(path.read_text() for path in Path("hpclaunch-runs", job).glob("*.err"))
    assert stacks.count("Current thread 0x") == 4  # by its main thread, which cannot move on meanwhile
    wait_until(lambda: processes_with(str(work)) == [])


@pytest.mark.slow
def test_with_restarts_left_the_ranks_start_again(work):
    """Ranks that hung start again in the same allocation; a program that always hangs ends with 124."""
    words = ("--site", "local", *TWO_BY_TWO, "--launcher", "torchrun", "--max-restarts", "1", *AFTER, "--wait", "--")
    job = submit(*words, sys.executable, "train.py", seconds=180)
    assert "done" in Path("hpclaunch-runs", job, "rank-3.log").read_text()
    assert "1 restart" in call("status", job)
    (work / "train.py").write_text(DEADLOCK.replace("and not again", ""))
    job = submit(*words, sys.executable, "train.py", code=124, seconds=240)
    assert HANGS in call("why", job).splitlines()[0]
    wait_until(lambda: processes_with(str(work)) == [])


@pytest.mark.slow
def test_ranks_that_write_or_compute_do_not_hang(work):
    """Of four ranks that wait far longer than --hang-after one computes, then one writes: nothing is ended."""
    code = (
        "import os, time\nrank, end = int(os.environ['RANK']), time.time() + 6\n"
        "while time.time() < end and rank == 1: pass\n"
        "time.sleep(max(end - time.time(), 0))\n"
        "for _ in range(6):\n    time.sleep(1)\n    if rank == 2: print('here', flush=True)\n"
    )
    words = ("--site", "local", *TWO_BY_TWO, "--hang-after", "3s", "--wait", "--", sys.executable, "-c", code)
    submit(*words, seconds=60)


@pytest.mark.slow
@pytest.mark.train
@pytest.mark.parametrize("launcher", ["tasks", "torchrun"])
def test_on_pbs_the_job_goes_on_in_its_next_attempt(qsub, launcher):
    """A job of two PBS nodes that hangs in its first attempt is done in its second; in the only one it ends."""
    qsub()
    words = (*GADI, *TWO_BY_TWO, "--launcher", launcher, *AFTER, "--wait")
    job = submit(*words, "--max-attempts", "2", "--", sys.executable, "train.py", seconds=240)
    text = Path("hpclaunch-runs", job, "rank-3.log").read_text()
    assert text.count("--- attempt ") == 2 and "done" in text
    assert hangs.describe(Path("hpclaunch-runs", job)) == [FOUND]  # the stacks of the first stay
    assert "all ranks hang, going on in attempt 2 of 2" in Path(f"train.o{job.partition('.')[0]}").read_text()
    job = submit(*words, "--", sys.executable, "train.py", code=124, seconds=240)
    said = call("why", job).splitlines()
    assert HANGS in said[0] and said[1] == FOUND
    assert state(job)["exit_code"] == 124


PY_SPY = """--- rank RANK hangs ---
Process 24301: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 24309 (idle): "Thread-1"
    wait (/usr/lib/python3.11/threading.py:331)
Thread 24301 (idle): "MainThread"
    all_reduce (/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:3252)
    _exception_logger.<locals>.wrapper (/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py:83)
    train (/home/me/train.py:15)
    <module> (/home/me/train.py:18)
"""


def test_stacks_of_py_spy_are_read_too(tmp_path):
    """What py-spy writes leads to the same sentence; ranks at one line differ by what the line calls."""
    for rank in range(8):
        text = PY_SPY.replace("RANK", str(rank))
        if rank == 7:
            text = text.replace("distributed/distributed_c10d", "utils/data/dataloader").replace(
                "all_reduce", "_next_data"
            )
        (tmp_path / f"rank-{rank}.err").write_text(f"a warning\n{text}")
    assert hangs.describe(tmp_path) == [
        "Ranks 0-6 wait in all_reduce at train.py:15, rank 7 is in _next_data at train.py:15."
    ]


def test_a_time_that_the_walltime_ends_first_is_refused(cli):
    """--hang-after must be shorter than the walltime."""
    result = cli("render", "--site", "gadi", "-A", "ab12", "-t", "1h", "--hang-after", "2h", "--", "true")
    assert result.exit_code == 1
    assert "--hang-after 02:00:00 is not shorter than the walltime of 01:00:00" in result.stderr
    assert "--hang-after 00:30:00" in result.stderr
