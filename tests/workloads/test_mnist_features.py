"""What hpclaunch/workloads/mnist.py offers, one test a feature: docs/workload.md names them."""

import csv
import importlib.util
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from test_mnist import (
    ARRAYS,
    LAUNCH_VARIABLES,
    SCRIPT,
    TORCHRUN,
    Training,
    assert_equal,
    clean_env,
    digits,  # noqa: F401
    files,
    free_port,
    last_save,
    mnist,  # noqa: F401
    run,
    tiny,  # noqa: F401
    write_idx,
    write_npz,
)

torch = pytest.importorskip("torch")
pl = pytest.importorskip("pytorch_lightning")


@pytest.fixture
def train(mnist: ModuleType, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:  # noqa: F811
    """Train one process on 33 images in here, with these options; returns what metrics.json says."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if LAUNCH_VARIABLES.match(name):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    before = signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGTERM)

    def train(*options: str) -> dict[str, Any]:
        argv = ["mnist.py", "--epochs", "2", "--batch-size", "8", "--data-dir", tiny, "--output-dir", "out", *options]
        monkeypatch.setattr(sys, "argv", argv)
        mnist.main()
        result: dict[str, Any] = json.loads(Path("out/metrics.json").read_text())
        return result

    yield train
    signal.signal(signal.SIGUSR1, before[0])
    signal.signal(signal.SIGTERM, before[1])


def weights(folder: str | Path = "out") -> Any:
    return torch.load(last_save(Path(folder)), weights_only=True)["state_dict"]


def logs(folder: str | Path) -> list[Path]:
    """Return the metrics.csv of each attempt, the oldest first."""
    return sorted(Path(folder).glob("lightning_logs/*/metrics.csv"))


def table(file: Path) -> list[dict[str, float]]:
    """Read metrics.csv, the lines of one epoch made one."""
    epochs: dict[int, dict[str, float]] = {}
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            epochs.setdefault(int(row["epoch"]), {}).update({k: float(v) for k, v in row.items() if v})
    return [epochs[epoch] for epoch in sorted(epochs)]


@pytest.mark.slow
def test_each_strategy_trains_alike(tmp_path: Path, digits: Path) -> None:  # noqa: F811
    """ddp, ddp_spawn and ddp_fork start two ranks from one command, and all of them reach the same weights."""
    found = {}
    for strategy in ("ddp", "ddp_spawn", "ddp_fork"):
        out = tmp_path / strategy
        options = ["--devices", "2", "--strategy", strategy, "--epochs", "2", "--data-dir", str(digits)]
        result = run([sys.executable, str(SCRIPT), *options, "--output-dir", str(out)], tmp_path)
        assert result.returncode == 0, result.stderr
        assert result.stdout.splitlines()[-1].startswith("test accuracy: ")
        assert "world size 2" in result.stdout
        metrics = json.loads((out / "metrics.json").read_text())
        assert metrics["world_size"] == 2 and metrics["samples_per_second"] > 0
        assert len(table(logs(out)[0])) == 2
        found[strategy] = weights(out), metrics["accuracy"]
    assert_equal(found["ddp_spawn"], found["ddp"])
    assert_equal(found["ddp_fork"], found["ddp"])


@pytest.mark.slow
def test_spawned_ranks_save_when_their_parent_is_told(tmp_path: Path, digits: Path) -> None:  # noqa: F811
    """With ddp_spawn the scheduler's signal reaches the process that is no rank: the ranks save, it leaves with 75."""
    out = tmp_path / "out"
    options = ["--devices", "2", "--strategy", "ddp_spawn", "--epochs", "5000", "--data-dir", str(digits)]
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *options, "--output-dir", str(out)],
        env=clean_env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline().startswith("epoch 1:")
    process.send_signal(signal.SIGUSR1)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 75
    assert "saved at epoch" in output


REFUSED: dict[str, tuple[list[str], dict[str, str], str]] = {
    "fsdp on CPU": (["--strategy", "fsdp"], {}, "--strategy fsdp: no GPU for each rank here"),
    "deepspeed on CPU": (["--strategy", "deepspeed"], {}, "--strategy deepspeed: no GPU for each rank here"),
    "spawn twice": (
        ["--strategy", "ddp_spawn"],
        {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "0", "RANK": "0"},
        "--strategy ddp_spawn: starts ranks itself, but a launcher has started these; use ddp",
    ),
    "nccl on CPU": (["--backend", "nccl"], {}, "--backend nccl: needs a GPU for each rank of the node; use gloo"),
    "batch norm on CPU": (["--sync-batchnorm", "--devices", "2"], {}, "torch synchronizes batch norm on GPUs only"),
    "no folder": (["--output-dir", "file/out"], {}, "[Errno 20] Not a directory: 'file/out"),
    "devices twice": (
        ["--devices", "3"],
        {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
        "--devices 3, but a launcher has set 2 ranks for this node",
    ),
    "nodes unequal": (
        [],
        {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "2"},
        "3 ranks on 1 nodes: Lightning needs the same number",
    ),
    "tasks unequal": (
        [],
        {"SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_NUM_NODES": "2"},
        "3 ranks on 2 nodes: Lightning needs the same number",
    ),
    "half a place": (["--rank", "1"], {}, "--world_size and --rank belong together"),
    "no address": (["--dist_url", "file:///tmp/x"], {}, "--dist_url file:///tmp/x: must be tcp://HOST:PORT or env://"),
    "size twice": (
        ["--world_size", "3", "--rank", "0"],
        {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
        "--world_size 3, but a launcher has set WORLD_SIZE=2; leave it out",
    ),
    "half a contract": ([], {"WORLD_SIZE": "2"}, "WORLD_SIZE=2, but nothing says which ranks share a node"),
    "mpirun alone": ([], {"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE=2, but nothing says which ranks"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_at_once(case: str, train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot work here ends before any rank waits, with one line: what, why, and what would be right."""
    options, variables, message = REFUSED[case]
    Path("file").touch()
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as exit_info:
        train(*options)
    text = str(exit_info.value.code)
    assert text.startswith("mnist.py: ") and message in text and "\n" not in text


@pytest.mark.parametrize("name", ["dp", "ddp2", "horovod", "bagua", "fairscale", "ddp_sharded"])
def test_strategy_of_old_says_what_became_of_it(
    name: str,
    train: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Who asks for a strategy that Lightning 2 has not gets a line with its fate and its successor."""
    with pytest.raises(SystemExit, match="2"):
        train("--strategy", name)
    assert re.search(
        rf"argument --strategy: {name}: .* left Lightning with [12]\.\d; use (ddp|fsdp)$", capsys.readouterr().err
    )
    with pytest.raises(ValueError, match="You selected an invalid strategy name"):
        pl.Trainer(strategy=name, accelerator="cpu", logger=False)


def test_bf16_is_refused_on_older_gpus(mnist: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """bf16-mixed on a V100 is refused with the reason and the alternative; on an A100 it goes."""
    layout = sys.modules["layout"]
    here = layout.Layout(1, 1, layout.LightningEnvironment(), True)
    arguments = [mnist.make_parser("").parse_args(["--precision", name]) for name in ("32", "16-mixed", "bf16-mixed")]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    for args in arguments:
        layout.check_choices(args, here)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 0))
    for args in arguments[:2]:
        layout.check_choices(args, here)
    with pytest.raises(layout.StartError, match=r"--precision bf16-mixed: .*; use 16-mixed"):
        layout.check_choices(arguments[2], here)


@pytest.mark.slow
def test_precisions_train(train: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """bf16-mixed trains on the CPU; 16-mixed becomes bf16-mixed there, and the user is warned."""
    train("--precision", "bf16-mixed")
    bf16 = weights()
    assert "precision bf16-mixed" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="fp16 is not supported on CPU"):
        train("--precision", "16-mixed", "--resume", "never")
    assert_equal(weights(), bf16)
    train("--resume", "never")
    with pytest.raises(AssertionError):
        assert_equal(weights(), bf16)


def test_accumulated_batches_make_one_larger_step(train: Any, tmp_path: Path) -> None:
    """Two batches of 8 added up are a step of one batch of 16: the same weights, in as many steps."""
    data = write_npz(tmp_path, x_train=ARRAYS["x_train"][:34], y_train=ARRAYS["y_train"][:34])  # 32 to train on
    options = ["--data-dir", str(data), "--warmup", "0"]
    train(*options, "--batch_size", "16", "--learning_rate", str(0.001 * 2**0.5))
    one = torch.load(last_save(Path("out")), weights_only=True)
    train(*options, "--batch-size", "8", "--accumulation_steps", "2", "--lr", "0.001", "--resume", "never")
    other = torch.load(last_save(Path("out")), weights_only=True)
    assert one["global_step"] == other["global_step"] == 4
    torch.testing.assert_close(one["state_dict"], other["state_dict"], rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_accumulation_is_not_cut_in_two(digits: Path, tmp_path: Path) -> None:  # noqa: F811
    """Told to stop between two batches of one step, a training saves after that step and goes on as if undisturbed."""
    whole, training = (Training(tmp_path / name, digits, [sys.executable]) for name in ("whole", "run"))
    for each in (whole, training):
        each.options += ["--accumulate", "3"]
    assert whole.attempt().returncode == 0
    epoch, step = training.interrupted("0:training_step:5")  # the second of its three
    assert epoch == 1 and 2 <= step < 13
    assert len(training.steps()) == 3 * step
    assert training.attempt().returncode == 0
    assert training.steps() == whole.steps()
    assert_equal(training.state(), whole.state())


def record_steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """Return a list that fills with the learning rate and the norm of the gradient of each step."""
    seen: list[tuple[float, float]] = []
    step = torch.optim.AdamW.step

    def record(self: Any, closure: Any = None) -> Any:
        with torch.enable_grad():
            loss = closure()
        gradients = [p.grad for p in self.param_groups[0]["params"]]
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm().item()
        seen.append((self.param_groups[0]["lr"], norm))
        step(self, lambda: loss)
        return loss

    monkeypatch.setattr(torch.optim.AdamW, "step", record)
    return seen


@pytest.mark.slow
def test_large_gradients_are_clipped(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """--clip scales a larger gradient down to its norm; without it gradients are larger."""
    seen = record_steps(monkeypatch)
    train("--clip", "0.01")
    assert len(seen) == 10 and max(norm for _, norm in seen) <= 0.0101
    seen.clear()
    train("--resume", "never")
    assert max(norm for _, norm in seen) > 0.02


@pytest.mark.slow
def test_learning_rate_rises_and_falls(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate rises in a line for --warmup epochs to its peak, then falls along a cosine to 0; 0 epochs: no rise."""
    seen = record_steps(monkeypatch)
    train("--lr", "0.01", "--warmup", "1")  # 5 of 10 steps
    rates = [rate for rate, _ in seen]
    assert rates[:6] == pytest.approx([0.01 * (n + 1) / 6 for n in range(6)])
    assert rates[5:] == pytest.approx([0.005 * (1 + math.cos(math.pi * n / 5)) for n in range(5)])
    seen.clear()
    train("--lr", "0.01", "--warmup", "0", "--resume", "never")
    assert seen[0][0] == 0.01


@pytest.mark.slow
def test_learning_rate_scales_with_the_batch(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """--lr is for one rank's batch; a step over four times as many images has twice its peak."""
    seen = record_steps(monkeypatch)
    train("--batch-size", "2", "--accumulate", "4", "--lr", "0.001", "--warmup", "0")
    assert seen[0][0] == pytest.approx(0.002)


@pytest.mark.slow
def test_sync_batchnorm_adds_batch_norm(train: Any) -> None:
    """--sync-batchnorm puts batch norm behind each convolution; one process alone trains with it on a CPU too."""
    train("--sync-batchnorm")
    assert {"net.1.running_mean", "net.4.running_mean"} <= weights().keys()


@pytest.mark.slow
def test_early_stopping_stops_once(train: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Without better validation accuracy in --patience epochs training stops; started again it is still stopped."""
    train("--epochs", "9", "--patience", "2", "--lr", "0")
    out = capsys.readouterr().out
    assert [line.split(":")[0] for line in out.splitlines() if line.startswith("epoch")] == [
        "epoch 1",
        "epoch 2",
        "epoch 3",
    ]
    train("--epochs", "9", "--patience", "2", "--lr", "0")
    again = capsys.readouterr().out
    assert "epoch" not in again.replace("9 epochs", "")


@pytest.mark.slow
def test_seed_decides_all(train: Any) -> None:
    """The same --seed twice gives the same weights bit for bit, also with dropout; another seed gives others."""
    found = []
    for seed in ("1", "1", "2"):
        train("--seed", seed, "--deterministic", "--resume", "never", "--model", "cnn-large", "--epochs", "1")
        found.append(weights())
    assert torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    assert_equal(found[0], found[1])
    with pytest.raises(AssertionError):
        assert_equal(found[0], found[2])


@pytest.mark.parametrize(("model", "parameters"), [("cnn", 207_178), ("cnn-large", 1_199_882), ("perceptron", 101_770)])
def test_models_have_their_size(model: str, parameters: int, mnist: ModuleType) -> None:  # noqa: F811
    """Each --model takes images of 28 x 28 and gives ten scores, with as many parameters as the docs say."""
    network = mnist.make_network(model)
    assert network(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


def test_checkpoint_of_another_model_is_refused(train: Any) -> None:
    """A checkpoint of another network is refused, and stays as it is."""
    train("--model", "perceptron")
    before = last_save(Path("out")).read_bytes()
    with pytest.raises(SystemExit, match=r"out/resume-2.ckpt: not a checkpoint of this training .*; move it away"):
        train()
    assert last_save(Path("out")).read_bytes() == before


@pytest.mark.slow
def test_best_and_last_are_kept(digits: Path, tmp_path: Path) -> None:  # noqa: F811
    """best.ckpt is of the first epoch with the highest validation accuracy, across attempts, and can go on."""
    training = Training(tmp_path / "run", digits, [sys.executable])
    training.interrupted("0:training_step:50")
    assert training.attempt("--epochs", "6").returncode == 0
    rows = [row for log in logs(training.folder) for row in table(log)]
    assert [row["epoch"] for row in rows] == list(range(6))  # no attempt has deleted another's
    accuracies = [row["val accuracy"] for row in rows]
    best = training.folder / "best.ckpt"
    epoch = torch.load(best, weights_only=True)["epoch"]
    assert epoch == accuracies.index(max(accuracies))
    again = training.attempt("--epochs", "7", "--resume", str(best))
    assert again.returncode == 0, again.stderr
    assert f"\nepoch {epoch + 2}: " in f"\n{again.stdout}" and f"\nepoch {epoch + 1}: " not in f"\n{again.stdout}"


@pytest.mark.slow
def test_kill_leaves_both_checkpoints_whole(digits: Path, tmp_path: Path) -> None:  # noqa: F811
    """A kill -9 at any moment leaves a last and a best checkpoint that load, and a metrics.csv of all whole epochs."""
    training = Training(tmp_path / "run", digits, [sys.executable])
    for attempt in range(2):
        process = subprocess.Popen(
            training.command("--epochs", "5000", "--save-every", "1"),
            env=clean_env(**training.variables),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        while len(logs(training.folder)) <= attempt:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(random.uniform(0.3, 1))  # noqa: S311
        process.kill()
        process.wait()
        saved = torch.load(sys.modules["training"].resume_path(training.folder), weights_only=True)["epoch"]
        assert torch.load(training.folder / "best.ckpt", weights_only=True)["epoch"] <= saved + 1
        assert len(table(logs(training.folder)[attempt])) >= 1


@pytest.mark.slow
def test_saves_within_an_epoch(digits: Path, tmp_path: Path) -> None:  # noqa: F811
    """--save-every loses no more than so many steps when a rank dies without a word."""
    training = Training(tmp_path / "run", digits, [sys.executable])
    result = training.attempt("--save-every", "5", KILL="0:training_step:18")
    assert result.returncode == -signal.SIGKILL, result.stderr
    assert torch.load(training.checkpoint, weights_only=True)["global_step"] == 15
    assert "resumed at epoch 1, step 15" in training.attempt().stdout


@pytest.mark.slow
def test_torchrun_replaces_a_lost_worker(digits: Path, tmp_path: Path) -> None:  # noqa: F811
    """Under an elastic torchrun a killed worker is replaced, and all go on from the last save."""
    training = Training(tmp_path / "run", digits, [])
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "1"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:2", "--max-restarts", "3", *rendezvous]
    command = [*torchrun, "--nproc-per-node", "1", *training.command("--save-every", "5")]
    environment = clean_env(
        **training.variables | {"STEP_SECONDS": "0.02"},
        KILL="1:training_step:12",
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",  # else torch 2.13 hangs now and then
    )
    agents = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [agent.communicate(timeout=120) for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], outputs
    output = "".join(out for out, _ in outputs)
    assert "resumed at epoch 1, step 10" in output
    assert output.count("test accuracy: ") == 1
    steps = [int(line.split()[0]) for line in training.steps(0)]
    # Those since the last save are trained twice, none is left out.
    assert sorted(set(steps)) == list(range(57)) and len(steps) <= 57 + 5


def test_restarts_that_may_hang_are_warned_of(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """If torchrun restarts ranks in its own way, a warning says what keeps them from waiting for dead ones."""
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    with pytest.warns(UserWarning, match="set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"):
        train()


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 3])
def test_metrics_are_exact(world_size: int, digits: Path, tmp_path: Path, mnist: ModuleType) -> None:  # noqa: F811
    """Whatever the number of ranks, accuracy and loss are those of plain torch over each image once."""
    out = tmp_path / "out"
    # 55 validation and 60 test images: in batches of 7 some rank has a batch less, and 3 does not divide 55.
    options = ["--devices", str(world_size), "--epochs", "1", "--batch-size", "7", "--data-dir", str(digits)]
    result = run([sys.executable, str(SCRIPT), *options, "--output-dir", str(out)], tmp_path)
    assert result.returncode == 0, result.stderr
    found = json.loads((out / "metrics.json").read_text())
    assert found["world_size"] == world_size
    logged = table(logs(out)[0])[-1]

    network = mnist.make_network("cnn")
    network.load_state_dict({k.removeprefix("net."): v for k, v in weights(out).items()})
    (images, labels), test = mnist.read_mnist(digits)
    std, mean = torch.std_mean(images.float())
    for accuracy, loss, (x, y) in (
        (found["accuracy"], found["loss"], test),
        (logged["val accuracy"], logged["val loss"], (images[:55], labels[:55])),
    ):
        with torch.no_grad():
            scores = network((x[:, None].float() - mean) / std)
        correct = int((scores.argmax(1) == y).sum())
        assert round(accuracy * len(y), 4) == correct
        assert loss == pytest.approx(torch.nn.functional.cross_entropy(scores, y.long()).item(), rel=1e-4)


def test_results_are_written(train: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """metrics.csv has a line an epoch, metrics.json the end; nothing else but the checkpoints is left."""
    found = train("--epochs", "3")
    assert [Path(file).name for file in files(Path("out"))] == [
        "best.ckpt",
        "metrics.csv",
        "metrics.json",
        "resume-3.ckpt",
    ]
    rows = table(logs("out")[0])
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    names = ("loss", "val loss", "val accuracy", "samples per second")
    assert all(row[name] >= 0 for row in rows for name in names)
    assert found.keys() == {
        "accuracy",
        "loss",
        "val_accuracy",
        "val_loss",
        "samples_per_second",
        "samples_per_epoch",
        "world_size",
    }
    assert found["world_size"] == 1 and 0 <= found["accuracy"] <= 1 and found["samples_per_second"] > 0
    assert f"test accuracy: {100 * found['accuracy']:.2f} %" in capsys.readouterr().out


@pytest.mark.slow
def test_no_run_deletes_another_ones_metrics(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs into one folder, within a second too, have each their own metrics.csv."""
    monkeypatch.setattr(time, "strftime", lambda _: "now")
    train()
    first = logs("out")[0].read_bytes()
    train("--resume", "never")
    assert first in [log.read_bytes() for log in logs("out")] and len(logs("out")) == 2


def test_tensorboard_is_written_where_it_is_installed(train: Any) -> None:
    """Where TensorBoard is installed its events lie beside metrics.csv."""
    if not any(importlib.util.find_spec(name) for name in ("tensorboard", "tensorboardX")):
        pytest.skip("neither tensorboard nor tensorboardX is installed")
    train()
    assert any("tfevents" in name for name in files(Path("out/lightning_logs")))


def by_hand(*options: list[str], tmp_path: Path, **variables: str) -> list[subprocess.CompletedProcess[str]]:
    """Start a process for each list of options, each on a node of its own."""
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    started = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), *options[node]],
            cwd=tmp_path,
            env=clean_env(**world | variables, NODE_RANK=str(node)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for node in range(len(options))
    ]
    outputs = [process.communicate(timeout=150) for process in started]
    return [subprocess.CompletedProcess([], p.returncode, *out) for p, out in zip(started, outputs, strict=True)]


@pytest.mark.slow
def test_classic_options_place_the_ranks(tmp_path: Path, tiny: str) -> None:  # noqa: F811
    """--dist_url, --world_size and --rank start ranks by hand; with two --gpu_ids a process starts another."""
    common = ["--data-dir", tiny, "--epochs", "1", "--dist_url", f"tcp://127.0.0.1:{free_port()}", "--world_size", "4"]
    started = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), *common, "--gpu_ids", "0,1", "--rank", rank],
            cwd=tmp_path,
            env=clean_env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "2")
    ]
    (output, errors), _ = [process.communicate(timeout=100) for process in started]
    assert [process.returncode for process in started] == [0, 0], errors
    assert "world size 4, nodes 2, " in errors
    assert "test accuracy: " in output


@pytest.mark.slow
def test_ranks_with_other_terms_end_at_once(tmp_path: Path, tiny: str) -> None:  # noqa: F811
    """Nodes that were started with other options would wait for each other; both end with the reason instead."""
    options = ["--data-dir", tiny, "--batch-size", "8", "--epochs"]
    for result in by_hand([*options, "1"], [*options, "2"], tmp_path=tmp_path):
        assert result.returncode == 1
        assert re.search(r"^mnist.py: rank 1 on \S+: trains with epochs 2, rank 0 with 1$", result.stderr, re.M)
        assert "test accuracy" not in result.stdout


@pytest.mark.slow
def test_rank_that_never_comes_is_told(tmp_path: Path, tiny: str) -> None:  # noqa: F811
    """When a promised rank does not come, the others end after --timeout with how many have come."""
    (alone,) = by_hand(["--data-dir", tiny, "--timeout", "3"], tmp_path=tmp_path)
    assert alone.returncode == 1
    assert (
        "mnist.py: not all 2 ranks came together within 3 s: " in alone.stderr and "1/2 clients joined" in alone.stderr
    )
    assert "Traceback" not in alone.stderr


@pytest.mark.slow
def test_bad_data_is_told_once(tmp_path: Path) -> None:
    """What is wrong for all ranks is told by rank 0 alone, and no rank hangs."""
    result = run([*TORCHRUN, "--master-port", free_port(), str(SCRIPT), "--data-dir", "typo"], tmp_path)
    assert result.returncode == 1
    assert result.stderr.count("mnist.py: typo: no such folder") == 1


@pytest.mark.slow
def test_data_that_one_node_lacks_is_told_by_it(tmp_path: Path) -> None:
    """A rank whose node alone lacks the data says so itself, since rank 0 has nothing to tell."""
    write_idx(tmp_path / "data")
    here = ["--data-dir", "data", "--timeout", "10", "--epochs", "1"]
    first, second = by_hand(here, ["--data-dir", "typo"], tmp_path=tmp_path)
    assert second.returncode == 1 and "mnist.py: typo: no such folder" in second.stderr
    assert first.returncode == 1 and "1/2 clients joined" in first.stderr
