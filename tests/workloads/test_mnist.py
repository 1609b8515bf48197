"""hpclaunch/workloads/mnist.py as its users run it: real processes under python, torchrun and Lightning's launcher."""

import ast
import contextlib
import fcntl
import gzip
import importlib.util
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
pytest.importorskip("pytorch_lightning")

SCRIPT = Path(__file__).parents[2] / "hpclaunch" / "workloads" / "mnist.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
LAST_LINE = re.compile(
    r"test accuracy: (\d+\.\d\d) % \(world size (\d+), (\d+) training images, (\d+) epochs, \d+\.\d s\)"
)
# What a scheduler or launcher around the tests may have set.
LAUNCH_VARIABLES = re.compile(
    r"(SLURM|PBS|OMPI|PMI|PMIX|TORCHELASTIC|MASTER|LOCAL|GROUP|ROLE|NODE)_|(RANK|WORLD_SIZE|MNIST_DIR)$"
)


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
def mnist() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mnist_under_test", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_imports_nothing_of_hpclaunch() -> None:
    """A person can copy the one file to a machine where hpclaunch is not installed."""
    imported = set()
    for node in ast.walk(ast.parse(SCRIPT.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module).split(".")[0])
    assert imported - sys.stdlib_module_names == {"numpy", "pytorch_lightning", "torch"}


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
    (images, labels), (test_images, test_labels) = (mnist.draw_digits(12_000, 1), mnist.draw_digits(2_000, 2))
    x, test_x = images.flatten(1) / 255, test_images.flatten(1) / 255
    weight = torch.zeros(784, 10, requires_grad=True)
    # About where its test accuracy is highest: more steps fit the training images only.
    optimizer = torch.optim.LBFGS([weight], max_iter=40)

    def loss() -> Any:
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(x @ weight, labels.long())
        value.backward()
        return value

    optimizer.step(loss)
    accuracy = ((test_x @ weight).argmax(1) == test_labels).float().mean().item()
    assert 0.75 < accuracy < 0.95


def test_python_alone_trains_one_process(tmp_path: Path) -> None:
    """`python mnist.py` passes 97 % with no launcher, and leaves no files behind."""
    here = tmp_path / "here"
    here.mkdir()
    result = run([sys.executable, str(SCRIPT), "--epochs", "3"], here)
    assert check_trained(result, world_size=1) > 97
    assert "MEMBER" not in result.stderr
    assert list(here.iterdir()) == []


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
    """`torchrun --nproc-per-node 2 mnist.py` trains over gloo on a machine without GPUs."""
    result = run([*TORCHRUN, "--master-port", free_port(), str(SCRIPT), "--epochs", "2"], tmp_path)
    assert check_trained(result, world_size=2) > 90
    assert "distributed_backend=gloo" in result.stderr
    assert "GLOBAL_RANK: 1, MEMBER: 2/2" in result.stderr
    assert "Warning" not in result.stderr


def test_lightning_starts_the_other_local_ranks(tmp_path: Path, tiny: str) -> None:
    """One process a node that sees no LOCAL_RANK is enough: Lightning starts the others."""
    variables = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    command = [sys.executable, str(SCRIPT), "--epochs", "2", "--data-dir", tiny]
    result = run(command, tmp_path, **variables, MASTER_PORT=free_port())
    accuracy = check_trained(result, world_size=2, images=33)
    # Two ranks share 21 test images, and each counts once: not 22 as with DistributedSampler, nor a mean of two means.
    assert accuracy in [round(100 * correct / 21, 2) for correct in range(22)]
    assert "distributed_backend=gloo" in result.stderr
    assert "GLOBAL_RANK: 1, MEMBER: 2/2" in result.stderr


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


def test_srun_needs_no_other_launcher(tmp_path: Path, tiny: str) -> None:
    """A plain `srun python mnist.py` finds its ranks in Slurm's own variables."""
    first, second = srun(2, tmp_path, MASTER_PORT=free_port(), MNIST_DIR=tiny)
    check_trained(first, world_size=2, images=33)
    assert second.returncode == 0 and second.stdout == ""
    assert "GLOBAL_RANK: 1, MEMBER: 2/2" in second.stderr


def test_python_in_a_batch_script_does_not_hang(tmp_path: Path, tiny: str) -> None:
    """`python` without srun inside a Slurm job of many tasks is one process, and waits for nobody."""
    job = {"SLURM_JOB_ID": "4242", "SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "4", "SLURM_NNODES": "1"}
    task = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
    result = run([sys.executable, str(SCRIPT), "--epochs", "1", "--data-dir", tiny], tmp_path, **job, **task)
    check_trained(result, world_size=1, images=33)


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


def test_data_dir_comes_from_the_environment(tmp_path: Path, tiny: str) -> None:
    """MNIST_DIR in a site's environment takes the place of --data-dir."""
    check_trained(run([sys.executable, str(SCRIPT)], tmp_path, MNIST_DIR=tiny), world_size=1, images=33)


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
    "wrong magic": (damage("x_train", lambda raw: b"\x89PNG" + raw[4:]), "starts with 89504e47"),
    "empty file": (damage("y_test", lambda raw: b""), "starts with nothing"),
    "truncated": (damage("x_test", lambda raw: raw[:-1]), "its header promises [21, 28, 28]"),
    "truncated header": (damage("x_test", lambda raw: raw[:6]), "images are torch.uint8 [0, 0, 0]"),
    "truncated gz": (damage("x_train", lambda raw: raw[:-20], ".gz"), "train-images-idx3-ubyte.gz: is no complete"),
    "corrupt gz": (damage("x_train", lambda raw: raw[:99] + bytes(99) + raw[198:], ".gz"), "is no complete gzip"),
    "no gz at all": (damage("y_train", lambda raw: b"<html>", ".gz"), "is no complete gzip file"),
    "wrong length": (damage("y_train", lambda raw: idx(ARRAYS["y_train"][:35])), "36 images but 35 labels"),
    "wrong label": (damage("y_test", lambda raw: raw[:-1] + b"\x0a"), "labels from 0 to 9"),
    "npz without arrays": (lambda folder: np.savez(folder / "mnist.npz", x_train=1) or folder, "needed are x_train"),
    "npz of other shape": (lambda folder: write_npz(folder, x_test=np.zeros((21, 784))), "wanted are torch.uint8"),
    "no npz at all": (lambda folder: write_idx(folder) / IDX_NAMES["x_test"], "is no complete .npz file"),
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


@pytest.mark.parametrize("launcher", [[sys.executable], TORCHRUN], ids=["python", "torchrun"])
def test_bad_data_exits_with_1(launcher: list[str], tmp_path: Path) -> None:
    """No rank hangs or prints a traceback when the data is missing."""
    result = run([*launcher, str(SCRIPT), "--data-dir", str(tmp_path / "typo")], tmp_path)
    assert result.returncode == 1
    lines = result.stderr.splitlines()
    complaints = [line for line in lines if line.startswith(f"mnist.py: {tmp_path}/typo: no such folder")]
    assert len(complaints) >= 1
    if launcher == [sys.executable]:
        assert lines == complaints


def test_zero_epochs_are_a_usage_error(
    mnist: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number that makes no sense is refused with exit code 2 and the name of its option."""
    monkeypatch.setattr(sys, "argv", ["mnist.py", "--epochs", "0"])
    with pytest.raises(SystemExit, match="2"):
        mnist.main()
    assert "--epochs" in capsys.readouterr().err


def test_real_mnist(tmp_path: Path) -> None:
    """On the real MNIST the same network passes 95 %."""
    folder = os.environ.get("HPCLAUNCH_TEST_MNIST")
    if not folder:
        pytest.skip("HPCLAUNCH_TEST_MNIST names no folder with MNIST's IDX files")
    result = run([sys.executable, str(SCRIPT), "--data-dir", folder, "--epochs", "5"], tmp_path)
    assert result.returncode == 0, result.stderr
    match = LAST_LINE.fullmatch(result.stdout.splitlines()[-1])
    assert match and float(match[1]) > 95
