"""--preflight and hpclaunch/workloads/preflight.py: nodes that are not fit are named before a training starts."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import program, slow, start

pytest.importorskip("torch")

SCRIPT = Path(__file__).parents[2] / "hpclaunch" / "workloads" / "preflight.py"
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
# An nvidia-smi for which a GPU of node 1 is broken.
SMI = """#!/bin/bash
errors=0; [[ $NODE_RANK != 1 ]] || errors=3
echo "<log><gpu><ecc_errors><volatile><dram_uncorrectable>$errors</dram_uncorrectable>"
echo "</volatile></ecc_errors></gpu></log>"
"""
BROKEN = "node 1 ({}), which has errors in GPU 0: dram_uncorrectable 3"


@pytest.fixture
def broken(tmp_path):
    """Return variables with which node 1 has a broken GPU."""
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "nvidia-smi", SMI)
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"PATH": path, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def launch(*words: object, code: int = 0, **variables: str) -> str:
    process = start("run", *words, env=os.environ | NO_GPU | variables)
    stdout, stderr = process.communicate(timeout=200)
    assert process.returncode == code, stdout + stderr
    return stdout + stderr


@pytest.mark.parametrize("launcher", ["tasks", slow("torchrun"), slow("lightning")])
def test_ranks_start_after_the_test(work, broken, launcher):
    """On fit nodes the ranks start, each once, and what was found stands above what rank 0 writes."""
    words = ("--nodes", 2, "--tasks-per-node", 2, "--launcher", launcher, "--preflight")
    launch(*words, "--", "bash", "-c", "echo trains", PATH=broken["PATH"].partition(":")[2])
    (folder,) = Path("hpclaunch-runs").iterdir()
    logs = [path.read_text() for path in sorted(folder.glob("*-?.log"))]
    assert "".join(logs).count("trains\n") == (2 if launcher == "lightning" else 4)
    assert "".join(logs).count("preflight: 2 nodes are fit; an all-reduce of 4 MB took ") == 1
    assert logs[0].startswith("preflight: ")
    assert not [*folder.glob("*.unfit")]


@pytest.mark.parametrize("launcher", ["tasks", slow("torchrun"), slow("lightning"), slow("mpirun")])
def test_a_node_that_is_not_fit_ends_the_job_before_it_begins(work, broken, launcher):
    """The job's output names the node and the reason, no rank starts, and the run folder has a note for the node."""
    words = ("--nodes", 3, "--tasks-per-node", 2, "--launcher", launcher, "--preflight")
    output = launch(*words, "--", "bash", "-c", "echo trains >>trains", code=1, **broken)
    host = os.uname().nodename
    assert f"first failure: {BROKEN.format(host)}, exit code 1" in output
    assert not Path("trains").exists()
    (folder,) = Path("hpclaunch-runs").iterdir()
    notes = {path.name: path.read_text() for path in folder.glob("*.unfit")}
    assert notes == {"node-1.unfit": f"{host} has errors in GPU 0: dram_uncorrectable 3\n"}


@pytest.mark.slow
def test_it_is_a_workload_too(work, broken):
    """`--workload preflight` tests once a node, also under torchrun, whose own port stays its own."""
    for launcher in ("tasks", "torchrun"):
        words = ("--nodes", 2, "--tasks-per-node", 2, "--launcher", launcher, "--workload", "preflight")
        assert "[0] preflight: 2 nodes are fit" in launch(*words)
        assert BROKEN.format(os.uname().nodename) in launch(*words, code=1, **broken)


def pairs(nodes: int, **others: float | str) -> dict[tuple[int, ...], float | str]:
    found = {(a, b): 0.003 for a in range(nodes) for b in range(a + 1, nodes)}
    return found | {tuple(map(int, pair[1:])): result for pair, result in others.items()}


@pytest.mark.parametrize(
    ("results", "unfit"),
    [
        (pairs(4), {}),
        (pairs(4, _01=0.006, _23=0.0079), {}),
        (pairs(4, _01=0.2, _12=0.2, _13=0.2), {1: "is slow in an all-reduce with any other"}),
        (pairs(4, _12=0.2), {2: "is slow in an all-reduce with node 1"}),
        (pairs(4, _02="cut", _12="cut", _23="cut"), {2: "has no all-reduce with node 0, 1, 3: cut"}),
        (pairs(4, _12="cut"), {2: "has no all-reduce with node 1: cut"}),
        (pairs(2, _01="cut"), {1: "has no all-reduce with node 0: cut"}),
    ],
)
def test_the_node_or_the_pair_is_named(results, unfit):
    """A node that is slow or cut in every pair is to blame, else the pair; what differs a little is not slow."""
    found = importlib.import_module("hpclaunch.workloads.preflight").judged(results)
    assert found.keys() == unfit.keys()
    assert all(found[node].startswith(why) for node, why in unfit.items())


@pytest.fixture
def nodes(tmp_path, request):
    """Network namespaces of four nodes on a bridge; return what starts the test in them."""
    if os.geteuid() != 0 or subprocess.run(["tc", "-V"], capture_output=True, check=False).returncode:
        pytest.skip("network namespaces and slow links need root and iproute2")
    names = [f"pf{os.getpid()}-{number}" for number in range(4)]
    bridge = f"pf{os.getpid()}"
    lines = [f"link add {bridge} type bridge", f"link set {bridge} up"]
    for number, name in enumerate(names):
        lines += [f"netns add {name}", f"link add {name} type veth peer name eth0 netns {name}",
                  f"link set {name} master {bridge} up", f"-n {name} link set lo up", f"-n {name} link set eth0 up",
                  f"-n {name} address add 10.78.0.{number + 1}/24 dev eth0"]  # fmt: skip

    def clean() -> None:
        for line in (f"{kind} delete {name}" for name in [*names, bridge] for kind in ("link", "netns")):
            subprocess.run(["ip", *line.split()], stderr=subprocess.DEVNULL, check=False)

    request.addfinalizer(clean)  # noqa: PT021 - also if the setup fails
    for line in lines:
        made = subprocess.run(["ip", *line.split()], capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"ip {line}: {made.stderr}")

    def test(*changes: str, code: int = 1) -> tuple[str, float]:
        """Change the network by commands in which pfN is a node, run the test, return its sentence and its seconds."""
        for change in changes:
            words = [names[int(word[2:])] if word[:2] == "pf" else word for word in change.split()]
            subprocess.run(words, check=True)
        own = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "10.78.0.1", "MASTER_PORT": "24242"}
        own |= {"HPCLAUNCH_RUN_DIR": str(tmp_path), "GLOO_SOCKET_IFNAME": "eth0", "PATH": os.environ["PATH"]}
        began = time.monotonic()
        started = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', f"pf{number}",
                 sys.executable, str(SCRIPT)],
                env=own | NO_GPU | {"NODE_RANK": str(number)},
                stderr=subprocess.DEVNULL,
            )
            for number, name in enumerate(names)
        ]  # fmt: skip
        assert [process.wait(120) for process in started] == [code] * 4
        return (tmp_path / "preflight").read_text(), time.monotonic() - began

    return test


@pytest.mark.slow
def test_nodes_whose_network_is_well_are_fit(nodes):
    """Four nodes are tested in 10 seconds, to which each adds the import of torch on this machine."""
    sentence, seconds = nodes(code=0)
    assert sentence == "\n"
    assert seconds < 30


@pytest.mark.slow
def test_a_slow_node_is_named(nodes):
    """A node whose link is slower than the others' is named, with its time and the median."""
    sentence, _ = nodes("tc qdisc add dev pf2 root tbf rate 200mbit burst 64kb latency 400ms")
    assert sentence.startswith("node 2 (pf2), which is slow in an all-reduce with any other: ")


@pytest.mark.slow
def test_a_node_whose_network_is_cut_is_named(nodes, tmp_path):
    """A node that does not reach the first is named with that reason, within two minutes."""
    sentence, seconds = nodes("ip link set pf3 down")
    assert sentence.startswith("node 3 (pf3), which cannot reach MASTER_ADDR 10.78.0.1, port 24242: ")
    assert (tmp_path / "node-3.unfit").read_text().startswith("pf3 cannot reach MASTER_ADDR")
    assert seconds < 120


@pytest.mark.slow
def test_two_nodes_that_do_not_reach_each_other_are_named(nodes):
    """A link that is cut between two nodes only is named with both."""
    sentence, seconds = nodes("ip -n pf1 route add blackhole 10.78.0.3/32")
    assert sentence.startswith("node 2 (pf2), which has no all-reduce with node 1: ")
    assert seconds < 120


@pytest.mark.slow
def test_the_first_node_is_named_if_no_other_reaches_it(nodes):
    """Where all others fail to reach node 0, it is not the others."""
    sentence, seconds = nodes("ip link set pf0 down")
    assert sentence.startswith("node 0 (pf0), which no other node reaches: node 1 cannot reach MASTER_ADDR")
    assert seconds < 120
