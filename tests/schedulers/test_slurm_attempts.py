"""Jobs on a real Slurm cluster that outlive their walltime, their nodes, and jobs of a higher priority."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import COUNT, WORKER, call, state, submit, wait_until

import hpclaunch

pytestmark = [pytest.mark.usefixtures("slurm"), pytest.mark.slow, pytest.mark.timeout(900)]
TWO_BY_TWO = ("--nodes", "2", "--tasks-per-node", "2")
MNIST = Path(hpclaunch.__file__).parent / "workloads" / "mnist.py"


# The bundled workload, which does a third of its epochs in each of the first two attempts and then waits for the end: a
# fast machine needs as many walltimes as a slow one.
PACED = f"""
import os, runpy, sys, time
import pytorch_lightning as pl
attempt, warned = int(os.environ["HPCLAUNCH_ATTEMPT"]), os.environ["HPCLAUNCH_RUN_DIR"] + "/warned"
def wait(module):
    while attempt < 3 and module.current_epoch >= 10 * attempt and not os.path.exists(warned):
        time.sleep(0.2)
pl.LightningModule.on_train_epoch_start = wait
sys.path.insert(0, {str(MNIST.parent)!r})
runpy.run_path({str(MNIST)!r}, run_name="__main__")
"""


def train(epochs: int, program: Path = MNIST) -> tuple[str, ...]:
    return "--env", "OMP_NUM_THREADS=1", "--", sys.executable, str(program), "--epochs", str(epochs)


def log(job: str, rank: int = 0) -> str:
    path = Path("hpclaunch-runs", job, f"rank-{rank}.log")
    return path.read_text() if path.exists() else ""


def attempts(job: str) -> int:
    return log(job).count("--- attempt ")


def check_epochs(job: str, epochs: int) -> None:
    """Every epoch was trained, in order, none twice but for what came after the last save."""
    trained = [int(number) for number in re.findall(r"^epoch (\d+): loss", log(job), re.MULTILINE)]
    assert sorted(set(trained)) == list(range(1, epochs + 1))
    assert "test accuracy" in log(job)


def test_a_training_of_three_walltimes_completes(work):
    """More than two walltimes of training end COMPLETED, each epoch and step trained once, by srun and by torchrun."""
    (paced := work / "mnist.py").write_text(PACED)
    words = (*TWO_BY_TWO, "-t", "00:02:00", "--warn-before", "60s", "--max-attempts", "9")
    jobs = [submit(*words, "--launcher", launcher, *train(30, paced)) for launcher in ("tasks", "torchrun")]
    call("wait", *jobs, seconds=800)
    for job in jobs:
        assert state(job)["word"] == "COMPLETED"
        assert attempts(job) >= 3
        trained = re.findall(r"^epoch (\d+): loss", log(job), re.MULTILINE)
        assert trained == [str(epoch) for epoch in range(1, 31)]
        saved = re.findall(r"^saved at (epoch \d+, step \d+):", log(job), re.MULTILINE)
        resumed = re.findall(r"^resumed at (epoch \d+, step \d+)$", log(job), re.MULTILINE)
        assert saved == resumed
        assert len(saved) == attempts(job) - 1
        assert "going on in attempt 2 of 9" in Path(f"mnist_{job}.out").read_text()


def test_attempts_end_clearly_when_they_are_used_up(work):
    """After the last attempt the job ends with 75 and says so; one that fails by itself is never started again."""
    (work / "count.py").write_text(COUNT.replace("LIMIT", "1000"))
    words = ("-t", "00:01:00", "--warn-before", "30s", "--max-attempts", "2", "--tasks-per-node", "1")
    job = submit(*words, "--wait", "--", sys.executable, "count.py", code=75, seconds=300)
    assert "not done, and 2 attempts are used up" in Path(f"count_{job}.out").read_text()
    assert attempts(job) == 2
    failing = submit(*words, "--wait", "--", "bash", "-c", "exit 9", code=9)
    assert attempts(failing) == 1


def test_a_dead_node_costs_the_job_its_attempt_only(slurm):
    """When a node dies in mid-training, the job is started again on other nodes and completes from its checkpoint."""
    job = submit(*TWO_BY_TWO, "--max-attempts", "3", "--directive=--exclude=r7i3n1", *train(15))
    wait_until(lambda: "epoch 3: loss" in log(job), 90)
    try:
        subprocess.run([slurm, "kill-node", "r6i4n1"], check=True)
        call("wait", job, seconds=240)
        assert state(job)["word"] == "COMPLETED"
    finally:
        subprocess.run([slurm, "start-node", "r6i4n1"], check=True)
    assert attempts(job) == 2
    assert "resumed at" in log(job)
    check_epochs(job, 15)


@pytest.mark.parametrize("launcher", ["tasks", "torchrun"])
def test_a_preempted_job_saves_and_goes_on(launcher):
    """A job that must make room tells every rank, saves, waits, and goes on with the step after."""
    words = ("--max-attempts", "3", "--qos", "qos_spare", "--force", "qos", "--directive=--nodelist=r6i4n[0-1]")
    job = submit(*TWO_BY_TWO, *words, "--launcher", launcher, *train(12))
    wait_until(lambda: "epoch 2: loss" in log(job), 90)
    other = submit("--tasks-per-node", "1", "--directive=--nodelist=r6i4n0", "--wait", "--", "sleep", "1")
    assert state(other)["word"] == "COMPLETED"
    call("wait", job, seconds=180)
    assert state(job)["word"] == "COMPLETED"
    assert re.findall(r"^epoch (\d+): loss", log(job), re.MULTILINE) == [str(epoch) for epoch in range(1, 13)]
    assert attempts(job) == 2


def test_all_ranks_are_warned_at_once(work):
    """Ranks that look for the warning at different moments get it at the same one, or their saves would not match."""
    pause = "pause() { kill -s $1 $(pgrep -P $PPID | grep -vx $$); } 2>/dev/null; "
    late = "((RANK)) && sleep 0.3 && pause STOP; sleep 1.2; pause CONT; "
    ready = "trap 'date +warned:%s%N; exit' USR1; echo ready; while :; do sleep 0.01; done"
    command = pause + late + ready
    job = submit("--nodes", "2", "--tasks-per-node", "1", "--max-attempts", "2", "--", "bash", "-c", command)
    wait_until(lambda: all("ready" in log(job, rank) for rank in (0, 1)), 60)
    subprocess.run(["scancel", "--batch", "--signal=USR1", job], check=True)
    call("wait", job, seconds=60)
    first, second = (int(log(job, rank).rpartition("warned:")[2]) / 1e9 for rank in (0, 1))
    assert abs(second - first) < 0.4


LIGHTNING = """
import os, sys, time, torch, pytorch_lightning as pl
from torch.utils.data import DataLoader, TensorDataset
class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        time.sleep(5.5 - time.time() % 5)  # ends between full seconds: warned in different steps, ranks wait for ever
        print("step", self.global_step, flush=True)
        return self.layer(batch[0]).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)
trainer = pl.Trainer(accelerator="cpu", num_nodes=2, max_steps=12, logger=False, enable_progress_bar=False,
                     default_root_dir=os.environ["HPCLAUNCH_RUN_DIR"], use_distributed_sampler=False)
trainer.fit(Model(), DataLoader(TensorDataset(torch.ones(1000, 4))))
print("done at", trainer.global_step, flush=True)
os._exit(0)
"""


def test_lightnings_own_requeue_keeps_working(work):
    """A plain Lightning script requeues its job by itself, asked by --signal or by --max-attempts, once each time."""
    (work / "own.py").write_text(LIGHTNING)
    words = ("--nodes", "2", "--tasks-per-node", "1", "-t", "00:02:00")
    ways = (("--directive=--signal=SIGUSR1@60",), ("--max-attempts", "4", "--warn-before", "60s"))
    jobs = [submit(*words, *way, "--", sys.executable, "own.py") for way in ways]
    call("wait", *jobs, seconds=400)
    for job in jobs:
        assert state(job)["word"] == "COMPLETED"
        assert log(job).endswith("done at 12\n")
        steps = re.findall(r"^step (\d+)$", log(job), re.MULTILINE)
        restarts = Path("hpclaunch-runs", job, "rank-0.err").read_text().count("Restored all states")
        assert restarts >= 1
        assert {int(step) for step in steps} == set(range(12))
        assert len(steps) <= 12 + 2 * restarts  # the step after which Lightning saved, and one before it is ended
    script = Path("hpclaunch-runs", jobs[0], "job.sh").read_text()
    assert "owns the requeue" in script
    assert "scontrol requeue" not in script


def test_a_requeued_job_has_no_exit_code_yet(work):
    """The file `exit` is the last attempt's: there is none while the job waits to start again."""
    code = "if [ $HPCLAUNCH_ATTEMPT = 2 ]; then sleep 2; exit 6; fi; exit 75"
    job = submit("--tasks-per-node", "1", "--max-attempts", "2", "--", "bash", "-c", code)
    wait_until(lambda: state(job)["word"] == "REQUEUED", 60)
    assert not Path("hpclaunch-runs", job, "exit").exists()
    call("wait", job, code=6, seconds=120)
    assert Path("hpclaunch-runs", job, "exit").read_text() == "6\n"


@pytest.mark.parametrize("launcher", ["tasks", "torchrun"])
def test_a_node_that_is_not_fit_is_excluded_from_the_next_attempt(slurm, launcher):
    """A slow node, and one of two that do not reach each other, are named; the next attempt trains on others."""
    pytest.importorskip("torch")
    words = ("--nodes", "3", "--tasks-per-node", "2", "--max-attempts", "2", "--launcher", launcher, "--preflight")
    own = f"PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; export OMP_NUM_THREADS=1"
    slow = f"tc qdisc {{}} dev hpc{WORKER}-r6i4n1 root tbf rate 200mbit burst 64kb latency 400ms"
    cut = f"ip -n hpc{WORKER}-r6i4n1 route {{}} blackhole 10.77.{WORKER}.12/32"
    for change, why in ((slow, "is slow in an all-reduce with any other"), (cut, "has no all-reduce with node 1")):
        subprocess.run(change.format("add").split(), check=True)
        try:
            job = submit(*words, "--job-name", "fit", "--setup", own, "--", "bash", "-c", "echo trains on $(hostname)")
            output = Path(f"fit_{job}.out")
            wait_until(
                lambda output=output: output.exists() and "going on in attempt 2 of 2" in output.read_text(), 120
            )
            call("wait", job, seconds=120)
            assert state(job)["word"] == "COMPLETED", output.read_text()
        finally:
            subprocess.run(change.format("del").split(), check=True)
        bad, host = (1, "r6i4n1") if change == slow else (2, "r7i3n0")
        assert re.search(rf"^hpclaunch: node {bad} \({host}\), which {why}: ", output.read_text(), re.MULTILINE)
        hosts = {line.split()[-1] for rank in range(6) for line in log(job, rank).splitlines() if "trains" in line}
        assert hosts == {"r6i4n0", "r6i4n1", "r7i3n0", "r7i3n1"} - {host}
