"""The benchmarks of the bundled training start, and what they print is what their tables promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("pytorch_lightning")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """A file with 240 training images."""
    arrays = {
        f"{kind}_{part}": np.random.default_rng(0).integers(0, 10 if kind == "y" else 256, shape, dtype=np.uint8)
        for part, count in (("train", 262), ("test", 20))
        for kind, shape in (("x", (count, 28, 28)), ("y", (count,)))
    }
    np.savez(tmp_path / "mnist.npz", **arrays)
    return str(tmp_path / "mnist.npz")


def table(name: str, *words: str) -> list[str]:
    """Run a benchmark, and return the lines that it prints."""
    command = [sys.executable, str(BENCHMARKS / name), *words]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.slow
def test_overhead_has_each_training_in_both_ways(tiny: str) -> None:
    """Two epochs of two ranks are enough for a row with both times, and the verdict below."""
    lines = table(
        "lightning_overhead.py", "--rounds", "1", "--starts", "1", "--model", "perceptron", "--data-dir", tiny
    )
    ours, plain = map(float, re.fullmatch(r"perceptron, as bundled +(\S+) +(\S+) .*", lines[2]).groups())
    assert ours > 0 and plain > 0
    assert re.fullmatch(r"goal: perceptron at most 1.15 x the plain loop \(\S+\): (met|missed)", lines[-1])


@pytest.mark.slow
def test_scaling_tells_where_a_start_goes(tiny: str) -> None:
    """The parts of the way to the first step are the whole of it."""
    lines = table("scaling.py", "--rounds", "1", "--epochs", "2", "-n", "1", "--data-dir", tiny)
    total, *parts = map(float, re.findall(r"(\S+) s\b", lines[-2]))
    assert len(parts) == 4 and total == pytest.approx(sum(parts), abs=0.05)
    assert lines[-1].startswith("goal: first step after at most 1.15 x the import")


@pytest.mark.slow
def test_data_path_compares_the_same_images() -> None:
    """A row for each way to the data; ways that gave other images would end it."""
    lines = table("data.py", "--rounds", "1", "--images", "600")
    assert [line[:21].rstrip() for line in lines[2:5]] == [
        "bundled workload",
        "DataLoader, 0 workers",
        "DataLoader, 2 workers",
    ]
    assert re.fullmatch(r"goal: at least 5 x either DataLoader \(\S+\): (met|missed)", lines[-1])


def test_rank_that_fails_ends_a_benchmark(tmp_path: Path) -> None:
    """A training that cannot start is told with its own words, and no rank is left waiting."""
    command = [sys.executable, str(BENCHMARKS / "scaling.py"), "-n", "2", "--data-dir", str(tmp_path / "typo")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 1
    assert f"scaling_rank.py: {tmp_path}/typo: no such folder" in result.stderr and "Traceback" not in result.stderr
