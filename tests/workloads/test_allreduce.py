"""hpclaunch/workloads/allreduce.py as its users run it, on the CPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import start

pytest.importorskip("torch")

SCRIPT = Path(__file__).parents[2] / "hpclaunch" / "workloads" / "allreduce.py"
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def alone(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script by itself."""
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, words)], env=os.environ | NO_GPU | variables,
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip


def launch(*words: object, code: int = 0) -> str:
    """Run the script by `hpclaunch run`, and return all that is shown."""
    process = start("run", "--quiet", *words, env=os.environ | NO_GPU)
    stdout, stderr = process.communicate(timeout=200)
    assert process.returncode == code, stdout + stderr
    return stdout + stderr


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "tasks"), [(1, 1), (2, 2)])
def test_bandwidths_are_those_of_nccl_tests(work, nodes, tasks):
    """For 1 and 4 ranks each size has a latency, algbw = bytes / latency and busbw = algbw * 2 (n - 1) / n."""
    world_size = nodes * tasks
    command = (sys.executable, SCRIPT, "--max-bytes", "16M", "--json", "result.json")
    output = launch("--nodes", nodes, "--tasks-per-node", tasks, "--", *command)
    assert f"[0] all-reduce of float32 by gloo: world size {world_size} on 1 host, cpu, torch " in output
    rows = re.findall(r"^\[0\] +(\d+) ([KM])B +\d+ +(\d+\.\d) +(\d+\.\d{3}) +(\d+\.\d{3})$", output, re.MULTILINE)
    result = json.loads((work / "result.json").read_text())
    assert [row["busbw_gb_per_s"] for row in result["sizes"]] == pytest.approx(
        [float(row[-1]) for row in rows], abs=6e-4
    )
    sizes = [int(count) * {"K": 1024, "M": 1024**2}[unit] for count, unit, *_ in rows]
    assert sizes == [1024 * 4**power for power in range(8)]
    for size, (*_, latency, algbw, busbw) in zip(sizes, rows, strict=True):
        assert float(latency) > 0
        assert float(algbw) == pytest.approx(size / float(latency) / 1e3, rel=0.06, abs=0.0006)
        assert float(busbw) == pytest.approx(float(algbw) * 2 * (world_size - 1) / world_size, abs=0.0015)
    slowest = re.search(r"slowest rank: (\d+) on \S+, \d+\.\d us to add 16 MB of its own, (\d+\.\d\d) x", output)
    assert slowest and int(slowest[1]) < world_size and float(slowest[2]) >= 1


@pytest.mark.parametrize(
    ("asked", "gpus", "said"),
    [
        (None, 2, "xccl"),
        (None, 0, "gloo"),
        ("xccl", 2, "xccl"),
        ("nccl", 2, "use --backend xccl"),
        ("xccl", 0, "use --backend gloo"),
    ],
)
def test_intels_gpus_meet_by_xccl(monkeypatch, asked, gpus, said):
    """Where torch has Intel's GPUs the backend is xccl, if there are enough; nccl is refused with what to use."""
    import torch

    monkeypatch.syspath_prepend(SCRIPT.parent)
    import allreduce

    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    monkeypatch.setattr(torch.xpu, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.xpu, "set_device", lambda device: None)
    used = []
    monkeypatch.setattr(allreduce.dist, "init_process_group", lambda backend, **_: used.append(backend))
    try:
        used.append(allreduce.meet(asked, 1).type)
    except ValueError as error:
        used.append(str(error))
    assert said in " ".join(used)
    assert ("xpu" in used) == (said == "xccl")


def test_slow_rank_is_named():
    """The rank whose processor is slow is the slowest, though all wait for it in the all-reduce."""
    # Rank 1's additions are made slow, as on a processor that is throttled.
    slow = (
        "import os, runpy, sys, time, torch\n"
        "add = torch.Tensor.add_\n"
        "if os.environ['RANK'] == '1': torch.Tensor.add_ = lambda *a: (time.sleep(0.05), add(*a))[1]\n"
        f"sys.argv = ['allreduce.py', '--max-bytes', '4K']; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
    )
    output = launch("--tasks-per-node", 3, "--", sys.executable, "-c", slow)
    assert re.search(r"slowest rank: 1 on \S+, 5\d{4}\.\d us to add 4 KB of its own, \d{2,}", output), output


@pytest.mark.slow
def test_workload_needs_no_arguments(work):
    """`--workload allreduce` goes from 1 KB to 256 MB."""
    output = launch("--tasks-per-node", 2, "--workload", "allreduce")
    sizes = re.findall(r"^\[0\] +(\d+ [KMG]?B) ", output, re.MULTILINE)
    assert sizes == ["1 KB", "4 KB", "16 KB", "64 KB", "256 KB", "1 MB", "4 MB", "16 MB", "64 MB", "256 MB"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "variables", "code", "message"),
    [
        (["--max-bytes", "big"], {}, 2, "'big' is not a multiple of 4 bytes; use 1024, 64K, 256M or 1G"),
        (["--backend", "ncll"], {}, 2, "invalid choice: 'ncll'"),
        (["--backend", "mpi"], {}, 1, "Distributed package doesn't have MPI built in"),
        ([], {"WORLD_SIZE": "2"}, 1, "environment variable RANK expected, but not set"),
        (
            ["--seconds", "2"],
            {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
            1,
            "allreduce.py: rank 1 on ",
        ),
    ],
)
def test_a_mistake_is_one_clear_message(words, variables, code, message):
    """Bad input and ranks that do not come end in a message and exit code 1 or 2, no traceback."""
    end = alone(*words, **variables)
    assert (end.returncode, end.stdout) == (code, ""), end.stderr
    assert message in end.stderr
    assert "Traceback" not in end.stderr


def test_python_without_torch_is_told_what_to_do(work):
    """Where the job's python has no torch, the message names that python."""
    end = subprocess.run([sys.executable, "-I", "-S", SCRIPT], capture_output=True, text=True, check=False)
    assert end.returncode == 1
    assert end.stderr.startswith(f"allreduce.py: {sys.executable}: No module named 'torch'; load the site's module")
