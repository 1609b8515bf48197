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
@pytest.mark.parametrize(("nodes", "tasks"), [(1, 1), (1, 2), (2, 2)])
def test_bandwidths_are_those_of_nccl_tests(work, nodes, tasks):
    """For 1, 2 and 4 ranks each size has a latency, algbw = bytes / latency and busbw = algbw * 2 (n - 1) / n."""
    world_size = nodes * tasks
    command = (sys.executable, SCRIPT, "--max-bytes", "64K", "--json", "result.json")
    output = launch("--nodes", nodes, "--tasks-per-node", tasks, "--", *command)
    result = json.loads((work / "result.json").read_text())
    assert (result["world_size"], result["hosts"], result["backend"], result["device"]) == (
        world_size, 1, "gloo", "cpu",
    )  # fmt: skip
    assert [row["bytes"] for row in result["sizes"]] == [1024, 4096, 16384, 65536]
    for row in result["sizes"]:
        assert row["latency_us"] > 0
        assert row["algbw_gb_per_s"] == pytest.approx(row["bytes"] / row["latency_us"] / 1e3)
        assert row["busbw_gb_per_s"] == pytest.approx(row["algbw_gb_per_s"] * 2 * (world_size - 1) / world_size)
    assert f"[0] all-reduce of float32 by gloo: world size {world_size} on 1 host, cpu, torch " in output
    assert re.search(r"\[0\] +64 KB +\d+ +\d+\.\d +\d+\.\d{3} +\d+\.\d{3}\n", output)
    slowest = result["slowest"]
    assert 0 <= slowest["rank"] < world_size
    assert slowest["local_us"] >= slowest["median_local_us"] > 0
    assert f"slowest rank: {slowest['rank']} on {slowest['host']}, " in output


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


def test_workload_needs_no_arguments(work):
    """`--workload allreduce` goes from 1 KB to 256 MB."""
    output = launch("--tasks-per-node", 2, "--workload", "allreduce")
    sizes = re.findall(r"^\[0\] +(\d+ [KMG]?B) ", output, re.MULTILINE)
    assert sizes == ["1 KB", "4 KB", "16 KB", "64 KB", "256 KB", "1 MB", "4 MB", "16 MB", "64 MB", "256 MB"]


def test_json_on_stdout_is_alone_there():
    """--json without a file prints JSON for a program, and the table on stderr."""
    end = alone("--max-bytes", "4K", "--json")
    assert [row["bytes"] for row in json.loads(end.stdout)["sizes"]] == [1024, 4096]
    assert "busbw GB/s" in end.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "variables", "code", "message"),
    [
        (["--max-bytes", "big"], {}, 2, "'big' is not a multiple of 4 bytes; use 1024, 64K, 256M or 1G"),
        (["--max-bytes", "512"], {}, 2, "--max-bytes no less than --min-bytes"),
        (["--backend", "ncll"], {}, 2, "invalid choice: 'ncll'"),
        (["--backend", "mpi"], {}, 1, "--backend mpi: this torch has "),
        (["--json", "no/such.json"], {}, 1, "no/such.json: No such file or directory"),
        ([], {"WORLD_SIZE": "2"}, 1, "WORLD_SIZE is 2, RANK is not set: use a launcher that starts every rank"),
        ([], {"WORLD_SIZE": "two"}, 1, "invalid literal for int() with base 10: 'two'"),
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
