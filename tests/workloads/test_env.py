"""hpclaunch/workloads/env.py as its users run it: under every launcher, and in worlds that do not fit together."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import start

SCRIPT = Path(__file__).parents[2] / "hpclaunch" / "workloads" / "env.py"
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# Rank 0 of two on this host.
FINE = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "NODE_RANK": "0",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}
SECOND = {"RANK": "1", "LOCAL_RANK": "1"}


def launch(*words: object) -> str:
    process = start("run", "--quiet", *words, "--workload", "env", env=os.environ | AS_ROOT)
    stdout, stderr = process.communicate(timeout=100)
    assert process.returncode == 0, stdout + stderr
    return stdout


def rows(output: str) -> list[list[str]]:
    """Return the table's numbers, without the number of the rank in front, pid and host."""
    found = re.findall(r"^(?:\[[^]]*\] )?(\d[\d ]*\d)  +\S+$", output, re.MULTILINE)
    return [line.split()[:-2] for line in found]


def together(*changes: dict[str, str | None], seconds: float = 2) -> list[subprocess.CompletedProcess[str]]:
    """Start a process for each of `changes` to the fine environment, None takes a variable away."""
    processes = []
    for change in changes:
        env = {name: value for name, value in (os.environ | FINE | change).items() if value is not None}
        command = [sys.executable, SCRIPT, "--seconds", str(seconds)]
        processes.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    ends = [process.communicate(timeout=60) for process in processes]
    return [subprocess.CompletedProcess(p.args, p.returncode, *end) for p, end in zip(processes, ends, strict=True)]


@pytest.mark.parametrize("launcher", ["tasks", "torchrun", "mpirun"])
def test_every_rank_has_a_row(work, launcher):
    """Two nodes of two ranks: rank 0 prints each rank's place and that all fit together, and leaves no file."""
    if launcher == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("Open MPI is not installed: no mpirun on PATH")
    if launcher == "torchrun":
        pytest.importorskip("torch")
    output = launch("--nodes", 2, "--tasks-per-node", 2, "--launcher", launcher)
    assert rows(output) == [["0", "0", "0"], ["1", "0", "1"], ["2", "1", "0"], ["3", "1", "1"]]
    assert re.search(r"MASTER_ADDR=127\.0\.0\.1 MASTER_PORT=\d+ WORLD_SIZE=4 LOCAL_WORLD_SIZE=2", output)
    assert "[0] all fit together: world size 4, nodes 0-1 on 1 host\n" in output
    assert not list(work.glob("hpclaunch-runs/*/env-*"))


@pytest.mark.parametrize(("nodes", "tasks"), [(1, 1), (2, 1), (1, 2)])
def test_world_may_be_small(nodes, tasks):
    """One process or two are worlds as well."""
    output = launch("--nodes", nodes, "--tasks-per-node", tasks)
    assert [row[0] for row in rows(output)] == [str(rank) for rank in range(nodes * tasks)]
    assert f"all fit together: world size {nodes * tasks}," in output


def test_one_process_a_node_is_a_row_a_node():
    """Under the lightning launcher there is no RANK yet: a row for each node."""
    output = launch("--nodes", 2, "--tasks-per-node", 2, "--launcher", "lightning")
    assert rows(output) == [["0"], ["1"]]
    assert "[node 0] all fit together: world size 4, nodes 0-1 on 1 host\n" in output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {"RANK": "0"}, "rank 1 did not come"),
        ({"WORLD_SIZE": "4"}, {"WORLD_SIZE": "4"}, "ranks 2-3 did not come"),
        ({"WORLD_SIZE": "1"}, {}, "WORLD_SIZE is not the same for all: 1 on rank 0; 2 on rank 1"),
        ({}, {"MASTER_ADDR": "localhost"}, "MASTER_ADDR is not the same for all: 127.0.0.1 on rank 0; localhost on"),
        ({}, {"MASTER_PORT": "29501"}, "MASTER_PORT is not the same for all: 29500 on rank 0; 29501 on rank 1"),
        ({"NODE_RANK": "1"}, {}, "has NODE_RANK 1 and LOCAL_RANK 0: with LOCAL_WORLD_SIZE 2 it should have 0 and 0"),
        (
            {"LOCAL_WORLD_SIZE": "1"},
            {"LOCAL_WORLD_SIZE": "1"},
            "has NODE_RANK 0 and LOCAL_RANK 1: with LOCAL_WORLD_SIZE 1 it should have 1 and 0",
        ),
        ({"MASTER_ADDR": "no-such-host.invalid"}, {}, "MASTER_ADDR no-such-host.invalid is not known on .*: "),
        ({}, {"RANK": None, "LOCAL_RANK": None, "NODE_RANK": "1"}, "RANK is set for some processes and not for others"),
    ],
)
def test_world_that_does_not_fit_together_fails_with_the_reason(work, first, second, message):
    """Rank 0 shows who came, says what is wrong and exits with 1; no file is left."""
    zero, one = together(first, SECOND | second)
    assert zero.returncode == 1
    assert re.search(f"^env.py: .*{message}", zero.stderr, re.MULTILINE), zero.stderr
    assert re.search(r"^(RANK|NODE_RANK) .*pid +host$", zero.stdout, re.MULTILINE)
    assert "Traceback" not in zero.stderr + one.stderr
    assert not list(work.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"WORLD_SIZE": None}, "WORLD_SIZE is not set; start this with hpclaunch or torchrun"),
        ({"RANK": None}, "RANK is not set"),
        ({"NODE_RANK": "one"}, "NODE_RANK is one; start this with"),
        ({"HPCLAUNCH_RUN_DIR": "/proc/no"}, "No such file or directory: '/proc/no'"),
        (SECOND, "no rank 0 came to env-1 within 5.2 s"),
    ],
)
def test_process_without_a_place_says_so_itself(change, message):
    """What this process lacks is named, with its host; it does not wait in vain for ever."""
    (end,) = together(change, seconds=0.1)
    assert (end.returncode, end.stdout) == (1, "")
    assert re.match(f"env.py: .*{message}", end.stderr), end.stderr
    assert "Traceback" not in end.stderr


def mistakes(*changes: dict[str, Any]) -> list[str]:
    """Return what the script says of two ranks on two hosts of a cluster, with changes to their rows."""
    spec = importlib.util.spec_from_file_location("env_under_test", SCRIPT)
    assert spec and spec.loader
    env = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(env)
    alike = {
        "LOCAL_RANK": 0,
        "WORLD_SIZE": 2,
        "expected": 2,
        "LOCAL_WORLD_SIZE": 1,
        "MASTER_ADDR": "n0",
        "MASTER_PORT": 29500,
    }
    alike |= {"master": "10.0.0.1", "pid": 1, "cpus": 8}
    rows = [
        alike | {"RANK": i, "place": i, "NODE_RANK": i, "host": f"n{i}", "owns_master": i == 0} | changes[i]
        for i in range(2)
    ]
    return list(env.mistakes(rows))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {"host": "n0"}, "nodes 0-1 should have a host each, and are on n0"),
        ({}, {"NODE_RANK": 0}, "node 0 should have a host each, and are on n0, n1"),
        (
            {"owns_master": False},
            {},
            "MASTER_ADDR n0 is 10.0.0.1 on n0; it should be an address of n0, where rank 0 is",
        ),
        (
            {},
            {"master": "127.0.1.1", "owns_master": True},
            "MASTER_ADDR n0 is 127.0.1.1 on n1; it should be an address of n0, where rank 0 is",
        ),
    ],
)
def test_hosts_of_a_cluster_are_held_against_the_numbers(first, second, message):
    """Two real hosts are two nodes, and MASTER_ADDR leads to the one that has rank 0."""
    assert mistakes({}, {}) == []
    assert message in mistakes(first, second)


def test_nothing_but_python_is_needed():
    """The script runs on a python without torch or anything else."""
    run = subprocess.run(
        [sys.executable, "-I", "-S", SCRIPT], env=FINE | {"WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
