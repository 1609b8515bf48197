"""hpclaunch/workloads/resnet.py as its users run it; what needs torchvision is skipped where it is not installed."""

import importlib.util
import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from test_mnist import SCRIPT as MNIST
from test_mnist import TORCHRUN, check_trained, clean_env, free_port, last_save, run

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
pytest.importorskip("pytorch_lightning")

SCRIPT = MNIST.with_name("resnet.py")
needs_torchvision = pytest.mark.skipif(not importlib.util.find_spec("torchvision"), reason="wants torchvision")


@pytest.fixture(scope="module")
def resnet() -> Iterator[ModuleType]:
    sys.path.insert(0, str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("resnet_under_test", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(SCRIPT.parent))


def parts() -> dict[str, tuple[Any, list[int]]]:
    rng = np.random.default_rng(0)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    return {name: (rng.integers(0, 256, (8, 3072), dtype=np.uint8), [n % 10 for n in range(8)]) for name in names}


def write_python(folder: Path) -> Path:
    for name, (images, labels) in parts().items():
        (folder / name).write_bytes(pickle.dumps({b"data": images, b"labels": labels}, protocol=4))
    return folder


def write_binary(folder: Path) -> Path:
    for name, (images, labels) in parts().items():
        rows = np.concatenate([np.array(labels, dtype=np.uint8)[:, None], images], axis=1)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    return folder


@pytest.mark.parametrize("write", [write_python, write_binary])
@pytest.mark.parametrize("below", ["", "cifar-10-batches-py"])
def test_both_kinds_of_files_read_equal(resnet: ModuleType, tmp_path: Path, write: Any, below: str) -> None:
    """CIFAR-10 is found as it is downloaded: python or binary files, flat or in the archive's folder."""
    (tmp_path / below).mkdir(exist_ok=True)
    write(tmp_path / below)
    for name, (images, labels) in parts().items():
        found = resnet.read_part(tmp_path, name)
        assert np.array_equal(found[0].numpy(), images.reshape(8, 3, 32, 32)) and found[1].tolist() == labels


BAD_FILES = {
    "missing": (None, "has no data_batch_1[.bin]; --data-dir needs CIFAR-10's python or binary files"),
    "cut off": (pickle.dumps({b"data": b"x" * 99, b"labels": []})[:-20], "not a complete file of CIFAR-10's"),
    "a page": (b"<html>", "not a complete file of CIFAR-10's"),
    "a program": (pickle.dumps(os.system), "posix.system is no array"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_data_is_one_clear_message(
    case: str, resnet: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data that cannot be used ends the run at once with one line, and a pickle that would run a program is refused."""
    content, message = BAD_FILES[case]
    if content:
        (tmp_path / "data_batch_1").write_bytes(content)
    monkeypatch.setattr(sys, "argv", ["resnet.py", "--data-dir", str(tmp_path)])
    with pytest.raises(SystemExit) as exit_info:
        resnet.main()
    text = str(exit_info.value.code)
    assert text.startswith(f"resnet.py: {tmp_path}") and message in text and "\n" not in text


def test_missing_torchvision_is_one_clear_sentence(resnet: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torchvision the run ends at once, and says which one to install."""
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setattr(sys, "argv", ["resnet.py"])
    with pytest.raises(SystemExit, match=rf"^resnet.py: torchvision is not installed .*{re.escape(torch.__version__)}"):
        resnet.main()


def test_crop_moves_each_image(resnet: ModuleType) -> None:
    """Each image is cut at its own row and column, in its own colours."""
    images = torch.arange(2 * 3 * 6 * 6).reshape(2, 3, 6, 6)
    cut = resnet.crop(images, 4, torch.tensor([[0, 2], [1, 0]])[:, :, None, None])
    assert torch.equal(cut, torch.stack([images[0, :, 0:4, 1:5], images[1, :, 2:6, 0:4]]))


@pytest.mark.slow
@needs_torchvision
def test_two_ranks_train_and_a_weights_file_is_learned_on(tmp_path: Path) -> None:
    """Two ranks train from scratch; then only the last layer learns on from their weights, all others stay."""
    data = write_python(tmp_path)
    common = ["--data-dir", str(data), "--epochs", "1", "--batch-size", "4", "--channels-last", "--workers", "1"]
    command = [*TORCHRUN, "--master-port", free_port(), str(SCRIPT), *common, "--output-dir", "out"]
    check_trained(run(command, tmp_path), world_size=2, images=36)
    assert 0 <= json.loads((tmp_path / "out/metrics.json").read_text())["accuracy"] <= 1
    state = {k.removeprefix("net."): v for k, v in torch.load(last_save(tmp_path / "out"))["state_dict"].items()}
    state["conv1.weight"] = torch.zeros(64, 3, 7, 7)  # ImageNet's
    torch.save(state, tmp_path / "weights.pth")
    options = ["--weights", "weights.pth", "--freeze", "--batch-size", "32", "--output-dir", "tuned"]
    check_trained(run([sys.executable, str(SCRIPT), *common, *options], tmp_path), world_size=1, images=36)
    tuned = torch.load(last_save(tmp_path / "tuned"))["state_dict"]
    changed = {name for name in state if not torch.equal(tuned[f"net.{name}"], state[name])}
    assert changed == {"fc.weight", "fc.bias"}


@pytest.mark.slow
@needs_torchvision
def test_training_goes_on_as_if_undisturbed(tmp_path: Path) -> None:
    """A training that is stopped and started again ends with the weights of one that was not, workers and all."""
    data = write_python(tmp_path)
    options = ["--data-dir", str(data), "--epochs", "2", "--batch-size", "4", "--workers", "1", "--output-dir"]
    assert run([sys.executable, str(SCRIPT), *options, "whole"], tmp_path).returncode == 0
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *options, "cut", "--save-every", "4"], cwd=tmp_path, env=clean_env()
    )
    while not (tmp_path / "cut").exists() or not [*(tmp_path / "cut").glob("resume-*.ckpt")]:
        assert process.poll() is None
    process.kill()
    process.wait()
    again = run([sys.executable, str(SCRIPT), *options, "cut"], tmp_path)
    assert again.returncode == 0 and "resumed at epoch 1, step 4" in again.stdout, again.stderr
    whole, cut = (torch.load(last_save(tmp_path / name))["state_dict"] for name in ("whole", "cut"))
    torch.testing.assert_close(whole, cut, rtol=0, atol=0)
