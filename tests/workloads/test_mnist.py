"""hpclaunch/workloads/mnist.py as its users run it: real processes under python, torchrun and Lightning's launcher."""

import ast
import contextlib
import fcntl
import gzip
import importlib.util
import os
import pty
import re
import shutil
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hpclaunch.paths import COMPANIONS

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
pytest.importorskip("pytorch_lightning")

SCRIPT = Path(__file__).parents[2] / "hpclaunch" / "workloads" / "mnist.py"
FILES = ["mnist.py", *COMPANIONS["mnist"]]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
LAST_LINE = re.compile(
    r"test accuracy: (\d+\.\d\d) % \(world size (\d+), (\d+) training images, (\d+) epochs, \d+\.\d s\)"
)
# What a scheduler or launcher around the tests may have set.
LAUNCH_VARIABLES = re.compile(
    r"(HPCLAUNCH|SLURM|PBS|OMPI|PMI|PMIX|TORCHELASTIC|MASTER|LOCAL|GROUP|ROLE|NODE)_|(RANK|WORLD_SIZE|MNIST_DIR)$"
)


# What NCI's page about Lightning shows of a training; the last only where there is a GPU.
SIX_LINES = [
    r"GPU available: ",
    r"GLOBAL_RANK: 0, MEMBER: 1/2$",
    r"^distributed_backend=(gloo|nccl)$",
    r"^All distributed processes registered. Starting with 2 processes$",
    r"^  \| Name +\| Type +\| Params",
    r"^LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: \[",
]


def clean_env(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not LAUNCH_VARIABLES.match(name)}
    # One thread: on a busy machine threads that wait for each other take far longer than one alone.
    return kept | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"} | variables


def run(command: list[str], cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = clean_env(**variables)
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def check_trained(result: subprocess.CompletedProcess[str], world_size: int, images: int = 11_000) -> float:
    """Check that a run ended well and left nothing but its lines; returns its test accuracy in percent."""
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    match = LAST_LINE.fullmatch(lines[-1])
    assert match, result.stdout
    assert (int(match[2]), int(match[3])) == (world_size, images)
    assert [line.split(":")[0] for line in lines[:-1]] == [f"epoch {n + 1}" for n in range(int(match[4]))]
    assert "\r" not in result.stdout
    return float(match[1])


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def idx(array: Any) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + bytes(array.tobytes())


ARRAYS = {
    "x_train": np.random.default_rng(0).integers(0, 256, (36, 28, 28), dtype=np.uint8),
    "y_train": np.arange(36, dtype=np.uint8) % 10,
    "x_test": np.random.default_rng(1).integers(0, 256, (21, 28, 28), dtype=np.uint8),
    "y_test": np.arange(21, dtype=np.uint8) % 10,
}
IDX_NAMES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


def write_idx(folder: Path, suffix: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in ARRAYS.items():
        content = gzip.compress(idx(array)) if suffix else idx(array)
        (folder / f"{IDX_NAMES[name]}{suffix}").write_bytes(content)
    return folder


def write_npz(folder: Path, **changed: Any) -> Path:
    np.savez(folder / "mnist.npz", **(ARRAYS | changed))
    return folder / "mnist.npz"


@pytest.fixture
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with 33 training images in MNIST's format, for runs whose accuracy does not matter."""
    return str(write_idx(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def mnist() -> Iterator[ModuleType]:
    """Import mnist.py as Python runs it: with its own folder first on the path."""
    torch.set_num_threads(1)  # see clean_env
    sys.path.insert(0, str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("mnist_under_test", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(SCRIPT.parent))


@pytest.mark.parametrize("name", FILES)
def test_imports_nothing_of_hpclaunch(name: str) -> None:
    """A person can copy the few files to a machine where hpclaunch is not installed."""
    imported = set()
    for node in ast.walk(ast.parse(SCRIPT.with_name(name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module).split(".")[0])
    beside = {Path(file).stem for file in FILES}
    assert imported - sys.stdlib_module_names - beside <= {
        "lightning",  # which resume.py takes as well
        "numpy",
        "pytorch_lightning",
        "torch",
    }


def test_drawn_digits_are_the_same_each_time(mnist: ModuleType) -> None:
    """Every rank draws the same digits, in MNIST's format and an equal number of each."""
    images, labels = mnist.draw_digits(500, seed=1)
    again, same_labels = mnist.draw_digits(500, seed=1)
    other, _ = mnist.draw_digits(500, seed=2)
    assert images.shape == (500, 28, 28) and images.dtype == labels.dtype == torch.uint8
    assert torch.bincount(labels.long()).tolist() == [50] * 10
    assert torch.equal(images, again) and torch.equal(labels, same_labels)
    assert not torch.equal(images, other)


def test_drawn_digits_are_too_hard_for_a_linear_model(mnist: ModuleType) -> None:
    """The drawn digits are a real task: softmax regression on the pixels stays between 75 % and 95 %."""
    (images, labels), (test_images, test_labels) = (mnist.draw_digits(6_000, 1), mnist.draw_digits(1_000, 2))
    x, test_x = images.flatten(1) / 255, test_images.flatten(1) / 255
    weight = torch.zeros(784, 10, requires_grad=True)
    # About where its test accuracy is highest: more steps fit the training images only.
    optimizer = torch.optim.LBFGS([weight], max_iter=25)

    def loss() -> Any:
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(x @ weight, labels.long())
        value.backward()
        return value

    optimizer.step(loss)
    accuracy = ((test_x @ weight).argmax(1) == test_labels).float().mean().item()
    assert 0.75 < accuracy < 0.95


@pytest.mark.slow
def test_python_alone_trains_one_process(tmp_path: Path) -> None:
    """`python mnist.py` passes 97 % with no launcher, and leaves nothing behind but Lightning's folder of metrics."""
    here = tmp_path / "here"
    here.mkdir()
    result = run([sys.executable, str(SCRIPT), "--epochs", "3"], here)
    assert check_trained(result, world_size=1) > 97
    assert "MEMBER" not in result.stderr
    assert [Path(file).name for file in files(here)] == ["metrics.csv", "metrics.json"]


@pytest.mark.slow
def test_terminal_shows_a_progress_bar(tmp_path: Path, tiny: str) -> None:
    """On a terminal there is a progress bar, and the lines of each epoch and of the end are there as well."""
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))  # 24 rows of 80; a new one has none
    command = [sys.executable, str(SCRIPT), "--epochs", "2", "--data-dir", tiny]
    process = subprocess.Popen(command, cwd=tmp_path, env=clean_env(), stdout=terminal, stderr=subprocess.PIPE)
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the other side has closed
        while chunk := os.read(ours, 65536):
            shown += chunk
    os.close(ours)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert b"\r" in shown.replace(b"\r\n", b"")
    assert b"epoch 2: loss" in shown and b"test accuracy: " in shown.splitlines()[-1]


def test_torchrun_trains_two_processes(tmp_path: Path) -> None:
    """`torchrun --nproc-per-node 2 mnist.py` trains over gloo without GPUs; a table says once who takes part."""
    port = free_port()
    result = run([*TORCHRUN, "--master-port", port, str(SCRIPT), "--epochs", "2"], tmp_path)
    assert check_trained(result, world_size=2) > 90
    for line in SIX_LINES[:5]:
        assert re.search(line, result.stderr, re.MULTILINE), line
    assert "Warning" not in result.stderr
    shown = result.stderr[result.stderr.index("world size 2") :].splitlines()[:4]
    assert shown[0] == (
        f"world size 2, nodes 1, precision 32-true, master 127.0.0.1:{port}, DDPStrategy, gloo, LightningEnvironment"
    )
    host = socket.gethostname()
    assert shown[1:] == [
        "rank  node  local rank  host, device",
        f"0     0     0           {host}, cpu",
        f"1     0     1           {host}, cpu",
    ]
    assert result.stderr.count("local rank") == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="wants a GPU")
def test_gpu_shows_the_six_lines(tmp_path: Path, tiny: str) -> None:
    """On a GPU each line that NCI's page shows is there, and the ranks meet by nccl."""
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    command = [*TORCHRUN[:-1], "1", str(SCRIPT), "--strategy", "ddp", "--epochs", "1", "--data-dir", tiny]
    result = run(command, tmp_path, CUDA_VISIBLE_DEVICES=gpus)
    check_trained(result, world_size=1, images=33)
    for line in SIX_LINES:
        assert re.search(line.replace("1/2", "1/1").replace("2 pro", "1 pro"), result.stderr, re.MULTILINE), line


def srun(tasks: int, cwd: Path, **variables: str) -> list[subprocess.CompletedProcess[str]]:
    """Start what `srun --nodes=TASKS --ntasks-per-node=1 python mnist.py` starts, each with Slurm's variables."""
    step = {"SLURM_STEP_NUM_TASKS": str(tasks), "SLURM_STEP_NUM_NODES": str(tasks)}
    job = {"SLURM_JOB_ID": "4242", "SLURM_JOB_NAME": "train", "SLURM_NODELIST": "localhost", "SLURM_LOCALID": "0"}
    sizes = {"SLURM_NTASKS": str(tasks), "SLURM_NNODES": str(tasks), "SLURM_NTASKS_PER_NODE": "1"}
    command = [sys.executable, str(SCRIPT), "--epochs", "1"]
    started = [
        subprocess.Popen(
            command,
            cwd=cwd,
            env=clean_env(**step, **job, **sizes, SLURM_PROCID=rank, SLURM_NODEID=rank, **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in map(str, range(tasks))
    ]
    outputs = [process.communicate(timeout=120) for process in started]
    return [subprocess.CompletedProcess(command, p.returncode, *out) for p, out in zip(started, outputs, strict=True)]


@pytest.mark.slow
def test_srun_needs_no_other_launcher(tmp_path: Path, tiny: str) -> None:
    """A plain `srun python mnist.py` finds its ranks in Slurm's own variables."""
    first, second = srun(2, tmp_path, MASTER_PORT=free_port(), MNIST_DIR=tiny)
    check_trained(first, world_size=2, images=33)
    assert second.returncode == 0 and second.stdout == ""
    assert "GLOBAL_RANK: 1, MEMBER: 2/2" in second.stderr


def test_python_in_a_batch_script_does_not_hang(mnist: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python` without srun inside a Slurm job of many tasks is one process, and waits for nobody."""
    job = {"SLURM_JOB_ID": "4242", "SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "4", "SLURM_NNODES": "1"}
    task = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
    for name, value in (job | task).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["mnist.py"])
    layout = sys.modules["layout"].find_layout(mnist.make_parser("").parse_args())
    assert (layout.per_node * layout.nodes, type(layout.environment).__name__) == (1, "LightningEnvironment")


@pytest.mark.parametrize("layout", ["plain", "gz", "torchvision", "torchvision-gz", "npz", "npz-path"])
def test_every_layout_of_the_files_reads_equal(layout: str, mnist: ModuleType, tmp_path: Path) -> None:
    """MNIST is found as it lies at a site: IDX or npz, zipped or not, flat or in torchvision's folders."""
    if layout.startswith("npz"):
        source = write_npz(tmp_path)
    else:
        write_idx(tmp_path / "MNIST" / "raw" if "torchvision" in layout else tmp_path, ".gz" if "gz" in layout else "")
    train, test = mnist.read_mnist(source if layout == "npz-path" else tmp_path)
    for tensor, name in zip((*train, *test), ARRAYS, strict=True):
        assert np.array_equal(tensor.numpy(), ARRAYS[name]), name


def damage(name: str, change: Callable[[bytes], bytes], suffix: str = "") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        file = write_idx(folder, suffix) / f"{IDX_NAMES[name]}{suffix}"
        file.write_bytes(change(file.read_bytes()))
        return folder

    return write


def no_test_labels(folder: Path) -> Path:
    (write_idx(folder) / IDX_NAMES["y_test"]).unlink()
    return folder


BAD_DATA: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no folder": (lambda folder: folder / "typo", "typo: no such folder"),
    "empty folder": (lambda folder: folder, "has no train-images-idx3-ubyte"),
    "a file is missing": (no_test_labels, "has no t10k-labels-idx1-ubyte"),
    "wrong magic": (damage("x_train", lambda raw: b"\x89PNG" + raw[4:]), "an IDX file of bytes starts with 000008"),
    "empty file": (damage("y_test", lambda raw: b""), "an IDX file of bytes starts with 000008"),
    "truncated": (
        damage("x_test", lambda raw: raw[:-1]),
        "t10k-images-idx3-ubyte: not a complete file of MNIST's (cannot reshape array",
    ),
    "truncated header": (damage("x_test", lambda raw: raw[:6]), "not a complete file of MNIST's (buffer is smaller"),
    "truncated gz": (damage("x_train", lambda raw: raw[:-20], ".gz"), "train-images-idx3-ubyte.gz: not a complete"),
    "corrupt gz": (damage("x_train", lambda raw: raw[:99] + bytes(99) + raw[198:], ".gz"), "not a complete file"),
    "no gz at all": (
        damage("y_train", lambda raw: b"<html>", ".gz"),
        "train-labels-idx1-ubyte.gz: not a complete file",
    ),
    "wrong length": (
        damage("y_train", lambda raw: idx(ARRAYS["y_train"][:35])),
        "images are torch.uint8 [36, 28, 28] and labels [35]",
    ),
    "wrong label": (damage("y_test", lambda raw: raw[:-1] + b"\x0a"), "labels from 0 to 9"),
    "npz without arrays": (
        lambda folder: np.savez(folder / "mnist.npz", x_train=1) or folder,
        "mnist.npz: not a complete file",
    ),
    "npz of other shape": (lambda folder: write_npz(folder, x_test=np.zeros((21, 784))), "needed are torch.uint8"),
    "no npz at all": (
        lambda folder: (folder / "my.npz").write_bytes(b"PK") and folder / "my.npz",
        "not a complete file",
    ),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_is_one_clear_message(
    case: str, mnist: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data that cannot be used ends the run at once with one line: what is wrong and in which file."""
    write, message = BAD_DATA[case]
    monkeypatch.setattr(sys, "argv", ["mnist.py", "--data-dir", str(write(tmp_path))])
    with pytest.raises(SystemExit) as exit_info:
        mnist.main()
    # sys.exit with text prints the text and exits with 1, as the next test sees in a real process.
    text = str(exit_info.value.code)
    assert text.startswith(f"mnist.py: {tmp_path}") and message in text and "\n" not in text


def test_zero_epochs_are_a_usage_error(
    mnist: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number that makes no sense is refused with exit code 2 and the name of its option."""
    monkeypatch.setattr(sys, "argv", ["mnist.py", "--epochs", "0"])
    with pytest.raises(SystemExit, match="2"):
        mnist.main()
    assert "--epochs" in capsys.readouterr().err


@pytest.mark.slow
def test_real_mnist(tmp_path: Path) -> None:
    """On the real MNIST the same network passes 97 %."""
    folder = os.environ.get("HPCLAUNCH_TEST_MNIST")
    if not folder:
        pytest.skip("HPCLAUNCH_TEST_MNIST names no folder with MNIST's IDX files")
    result = run([sys.executable, str(SCRIPT), "--data-dir", folder], tmp_path)
    assert result.returncode == 0, result.stderr
    match = LAST_LINE.fullmatch(result.stdout.splitlines()[-1])
    assert match and float(match[1]) > 97


# Runs mnist.py with a hand on it. Each rank writes for each step its number, the batch's checksum and a random number,
# and signals itself where SIGNAL says: "RANK:HOOK:COUNT" is the COUNTth call of that hook.
DRIVER = """
import collections, importlib.util, os, signal, sys, time, zlib
import torch

sys.path.insert(0, os.path.dirname(os.environ["SCRIPT"]))
spec = importlib.util.spec_from_file_location("mnist", os.environ["SCRIPT"])
mnist = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mnist)
rank, calls = os.environ.get("RANK") or os.environ.get("LOCAL_RANK", "0"), collections.Counter()


def tap(cls, hook):
    original = getattr(cls, hook)

    def tapped(self, *args, **options):
        calls[hook] += 1
        if f"{rank}:{hook}:{calls[hook]}" in os.environ.get("SIGNAL", "").split():
            os.kill(os.getpid(), signal.SIGUSR1)
        first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        if f"{rank}:{hook}:{calls[hook]}" == os.environ.get("KILL") and first:
            os.kill(os.getpid(), signal.SIGKILL)
        if hook == "training_step":
            time.sleep(float(os.environ.get("STEP_SECONDS", 0)))
            images = zlib.crc32(args[0][0].numpy().tobytes())
            with open(f"{os.environ['STEPS']}.{rank}", "a") as steps:
                print(self.trainer.global_step, images, torch.rand(1).item(), file=steps)
        return original(self, *args, **options)

    setattr(cls, hook, tapped)


tap(mnist.DigitsData, "__init__")
for hook in ("training_step", "validation_step", "test_step"):
    tap(mnist.DigitsModel, hook)
mnist.main()
"""


class Training:
    """A training in one folder, in as many attempts as it takes: 38 steps an epoch on one rank, 19 on two."""

    def __init__(self, folder: Path, data: Path, launcher: list[str]) -> None:
        folder.mkdir()
        self.folder, self.launcher = folder, launcher
        (folder / "driver.py").write_text(DRIVER)
        self.options = ["--data-dir", str(data), "--batch-size", "16", "--output-dir", str(folder)]
        self.variables = {"SCRIPT": str(SCRIPT), "STEPS": str(folder / "steps"), "STEP_SECONDS": "0"}

    @property
    def checkpoint(self) -> Path:
        return last_save(self.folder)

    def command(self, *options: str) -> list[str]:
        port = ["--master-port", free_port()] if self.launcher == TORCHRUN else []
        return [*self.launcher, *port, str(self.folder / "driver.py"), "--epochs", "3", *self.options, *options]

    def attempt(self, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run(self.command(*options), self.folder, **self.variables, **variables)

    def interrupted(self, signals: str, **variables: str) -> tuple[int, int]:
        """Make an attempt that must end with 75; returns the epoch and the step of its checkpoint."""
        # Slow enough that the ranks ask each other several times an epoch.
        result = run(
            self.command(), self.folder, **self.variables | variables | {"SIGNAL": signals, "STEP_SECONDS": "0.06"}
        )
        if self.launcher == TORCHRUN:  # whose own code is 1
            assert result.returncode == 1
            assert re.findall(r"exitcode +: (\S+)", result.stderr) == ["75", "75"], result.stderr
        else:
            assert result.returncode == 75, result.stderr
        match = re.search(r"^saved at epoch (\d+), step (\d+): start again$", result.stdout, re.MULTILINE)
        assert match, result.stdout
        return int(match[1]), int(match[2])

    def steps(self, rank: int = 0) -> list[str]:
        return (self.folder / f"steps.{rank}").read_text().splitlines()

    def state(self) -> dict[str, Any]:
        checkpoint: dict[str, Any] = torch.load(self.checkpoint, weights_only=True)
        return {key: checkpoint[key] for key in ("epoch", "global_step", "state_dict", "optimizer_states")}


def last_save(folder: Path) -> Path:
    (path,) = folder.glob("resume-*.ckpt")
    return path


def assert_equal(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.fixture(scope="module")
def digits(mnist: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with 605 training, 55 validation and 60 test images."""
    (images, labels), (test_images, test_labels) = (mnist.draw_digits(660, 1), mnist.draw_digits(60, 2))
    arrays = {"x_train": images, "y_train": labels, "x_test": test_images, "y_test": test_labels}
    path = tmp_path_factory.mktemp("digits") / "mnist.npz"
    np.savez(path, **{name: array.numpy() for name, array in arrays.items()})
    return path


@pytest.fixture(scope="module")
def whole(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """A training of one process that nothing interrupted."""
    training = Training(tmp_path_factory.mktemp("whole") / "run", digits, [sys.executable])
    training.accuracy = check_trained(training.attempt(), world_size=1, images=605)
    assert len(training.steps()) == 3 * 38
    return training


@pytest.mark.slow
def test_interrupted_training_equals_a_whole_one(digits: Path, whole: Training, tmp_path: Path) -> None:
    """SIGUSR1 in set-up, in an epoch, in validation and in the test: each step is trained once, as if undisturbed."""
    training = Training(tmp_path / "run", digits, [sys.executable])
    assert training.interrupted("0:__init__:1") == (1, 0)
    epoch, step = training.interrupted("0:training_step:3")
    assert epoch == 1 and 3 <= step < 38
    assert training.interrupted("0:validation_step:2") == (2, 38)
    epoch, step = training.interrupted("0:training_step:3")
    assert epoch == 2 and 41 <= step < 76
    last = training.attempt(SIGNAL="0:test_step:1")
    assert last.returncode == 0, last.stderr
    assert last.stdout.startswith(f"resumed at epoch 2, step {step}\nepoch 2: loss ")
    assert "Warning" not in last.stderr
    assert training.steps() == whole.steps()
    assert_equal(training.state(), whole.state())
    assert f"test accuracy: {whole.accuracy:.2f} %" in last.stdout


@pytest.mark.slow
def test_finished_training_is_not_trained_again(digits: Path, whole: Training, tmp_path: Path) -> None:
    """Started once more, a training that is done tells its accuracy; with more epochs it goes on."""
    training = Training(tmp_path / "run", digits, [sys.executable])
    shutil.copy(whole.checkpoint, training.folder)
    again = training.attempt()
    assert again.returncode == 0, again.stderr
    (last,) = again.stdout.splitlines()
    assert last.startswith(f"test accuracy: {whole.accuracy:.2f} %")
    more = training.attempt("--epochs", "4", "--resume", "never", HPCLAUNCH_ATTEMPT="2")
    assert more.returncode == 0, more.stderr
    assert [line.split(":")[0] for line in more.stdout.splitlines()[1:-1]] == ["epoch 4"]
    assert [int(line.split()[0]) for line in training.steps()] == [*range(114, 152)]


def test_resume_chooses_the_checkpoint(mnist: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice of --resume is for the first attempt of a job; a later one goes on where the one before has stopped."""
    own, other = str(tmp_path / "resume-3.ckpt"), str(tmp_path / "other.ckpt")
    model = torch.nn.Linear(1, 1)

    def found() -> list[str | None]:
        parse, choices = mnist.make_parser("").parse_args, ("auto", "never", other)
        arguments = [parse(["--output-dir", str(tmp_path), "--resume", choice]) for choice in choices]
        return [sys.modules["training"].find_checkpoint(args, model) for args in arguments]

    torch.save({"state_dict": model.state_dict()}, other)
    assert found() == [None, None, other]
    shutil.copy(other, own)
    assert found() == [own, None, other]
    monkeypatch.setenv("HPCLAUNCH_ATTEMPT", "2")
    assert found() == [own, own, own]


@pytest.mark.slow
def test_two_ranks_stop_at_one_step_and_go_on(digits: Path, tmp_path: Path) -> None:
    """Told a second apart, the ranks save and leave together; two of them go on as if undisturbed, and so can one."""
    whole = Training(tmp_path / "whole", digits, TORCHRUN)
    accuracy = check_trained(whole.attempt(), world_size=2, images=605)
    training = Training(tmp_path / "run", digits, TORCHRUN)
    epoch, step = training.interrupted("0:training_step:3 1:training_step:18")
    assert epoch == 1 and 3 <= step < 19
    epoch, step = training.interrupted("1:training_step:2")
    assert len(training.steps(0)) == len(training.steps(1)) == step
    alone = Training(tmp_path / "alone", digits, [sys.executable])
    shutil.copy(training.checkpoint, alone.folder)

    last = training.attempt()
    assert last.returncode == 0, last.stderr
    assert last.stdout.count("resumed at") == 1
    assert f"test accuracy: {accuracy:.2f} %" in last.stdout
    assert [training.steps(rank) for rank in (0, 1)] == [whole.steps(rank) for rank in (0, 1)]
    assert_equal(training.state(), whole.state())

    one = alone.attempt()
    assert one.returncode == 0, one.stderr
    assert len(alone.steps()) == 3 * 38 - 2 * step  # each step of two ranks is two of one


@pytest.mark.slow
def test_lightning_launcher_leaves_with_75(digits: Path, tmp_path: Path) -> None:
    """Also where Lightning starts the local ranks, a process a node leaves with 75."""
    training = Training(tmp_path / "run", digits, [sys.executable])
    node = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    training.interrupted("0:training_step:3", **node, MASTER_PORT=free_port())


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5000])


BAD_CHECKPOINTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no file": (lambda path: path.unlink(), "FileNotFoundError"),
    "a folder": (lambda path: path.unlink() or path.mkdir(), "not a checkpoint of this training"),
    "empty": (lambda path: path.write_bytes(b""), "EOFError"),
    "no checkpoint": (lambda path: path.write_bytes(b"<html>" * 99), "not a checkpoint of this training"),
    "cut off": (cut, "not a checkpoint of this training"),
    "of another program": (lambda path: torch.save({"model": torch.zeros(3)}, path), "KeyError: 'state_dict'"),
}


@pytest.mark.parametrize("case", BAD_CHECKPOINTS)
def test_bad_checkpoint_is_one_clear_message(
    case: str, mnist: ModuleType, digits: Path, whole: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that cannot be used ends every rank before they meet, with one line."""
    spoil, message = BAD_CHECKPOINTS[case]
    path = shutil.copy(whole.checkpoint, tmp_path / "resume-1.ckpt")
    spoil(path)
    monkeypatch.setattr(sys, "argv", ["mnist.py", "--data-dir", str(digits), "--epochs", "2", "--resume", str(path)])
    with pytest.raises(SystemExit) as exit_info:
        mnist.main()
    text = str(exit_info.value.code)
    assert text.startswith(f"mnist.py: {path}: ") and message in text and "\n" not in text
