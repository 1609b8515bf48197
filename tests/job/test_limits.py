"""The numbers of Gadi and Jean-Zay at their very limits: what just fits is taken, one step more is not."""

from __future__ import annotations

from typing import Any

import pytest

from hpclaunch.job.checks import Finding
from hpclaunch.job.consider import consider
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import make_request
from hpclaunch.profile import search


def checked(name: str, **asked: Any) -> tuple[Plan, list[Finding]]:
    plan, findings = consider(search.load(name), make_request({"site": name, "command": ["python", "t.py"], **asked}))
    assert plan
    return plan, findings


def refusals(name: str, **asked: Any) -> set[str]:
    return {finding.check for finding in checked(name, **asked)[1] if finding.refuses}


# queue, cores of a node, and NCI's tiers of ncpus and hours (Queue limits)
TIERS = """
normal     48 1-672:48 720-1440:24 1488-2976:10 3024-20736:5
express    48 1-480:24 528-3168:5
normalbw   28 1-336:48 364-840:24 868-1736:10 1764-10080:5
expressbw  28 1-280:24 308-1848:5
normalsl   32 1-288:48 320-608:24 640-1984:10 2016-3200:5
normalsr  104 1-1040:48 1144-2080:24 2184-4160:10 4264-10400:5
expresssr 104 1-1040:24 1144-2080:5
hugemem    48 1-48:48 96-96:24 144-192:5
hugemembw  28 7-28:48 56-140:12
megamem    48 48-48:48 96-96:24
gpuvolta   48 12-96:48 144-192:24 240-960:5
dgxa100   128 16-128:48 256-256:5
""".strip().splitlines()
STEPS = [
    (queue, int(node), *map(int, sizes.split("-")), int(hours))
    for queue, node, *rest in map(str.split, TIERS)
    for sizes, _, hours in (tier.partition(":") for tier in rest)
]


def of_cores(queue: str, node: int, cores: int) -> dict[str, Any]:
    """Return what asks for so many cores of a queue: whole nodes, or on one node tasks or GPUs."""
    nodes = max(cores // node, 1)
    if cores >= node:
        return {"partition": queue, "nodes": nodes}
    per_gpu = {"gpuvolta": 12, "dgxa100": 16}.get(queue)
    if per_gpu:
        return {"partition": queue, "gpus_per_node": cores // per_gpu}
    return {"partition": queue, "cpus_per_task": cores}


@pytest.mark.parametrize(("queue", "node", "least", "most", "hours"), STEPS)
def test_gadi_walltime_by_size(queue, node, least, most, hours):
    """From a tier's first to its last size a job may take all its hours and not a second more."""
    for cores in (least, most):
        asked = of_cores(queue, node, cores)
        plan, findings = checked("gadi", walltime=f"{hours}h", **asked)
        assert plan.nodes * plan.cpus_per_node == cores
        assert not [finding for finding in findings if finding.refuses]
        assert refusals("gadi", walltime=f"{hours}:00:01", **asked) == {"walltime"}


@pytest.mark.parametrize(("queue", "node", "_least", "most", "_hours"), [row for row in STEPS if row[4] in (5, 12, 24)])
def test_gadi_largest_job(queue, node, _least, most, _hours):
    """A queue's largest job is taken, and one node more is refused."""
    largest = search.load("gadi").site.partitions[queue].max_cores
    assert ("size" in refusals("gadi", partition=queue, nodes=most // node + 1, walltime="1h")) == (most == largest)


@pytest.mark.parametrize(
    ("queue", "node_gb", "jobfs_gb"),
    [
        ("normal", 192, 400),
        ("normalbw", 256, 400),
        ("normalsl", 192, 400),
        ("normalsr", 500, 400),
        ("hugemembw", 1020, 390),
        ("megamem", 2990, 1400),
        ("gpuvolta", 382, 400),
        ("dgxa100", 2000, 28000),
    ],
)
def test_gadi_memory_and_disk(queue, node_gb, jobfs_gb):
    """A node's memory and disk may be asked for whole, and not a GB more."""
    assert refusals("gadi", partition=queue, mem_gb=node_gb, jobfs_gb=jobfs_gb) == set()
    assert refusals("gadi", partition=queue, mem_gb=node_gb + 1, jobfs_gb=jobfs_gb + 1) == {"memory", "jobfs"}


@pytest.mark.parametrize(("queue", "gpus", "cpus"), [("gpuvolta", 4, 12), ("dgxa100", 8, 16), ("gpuhopper", 4, 12)])
def test_gadi_cores_come_with_gpus(queue, gpus, cpus):
    """Ncpus is 12 (dgxa100: 16) for each GPU, filled in and kept to."""
    for number in range(1, gpus + 1):
        plan, _ = checked("gadi", partition=queue, gpus_per_node=number)
        assert plan.cpus_per_node == number * cpus
        assert "cpus" in refusals("gadi", partition=queue, gpus_per_node=number, cpus_per_task=cpus + 1)


def test_gadi_largest_gpu_jobs():
    """80 V100 and 16 A100 are one job's most; of gpuhopper, whose most nobody has confirmed, two nodes only warn."""
    assert checked("gadi", nodes=20)[0].world_size == 80
    assert checked("gadi", partition="dgxa100", nodes=2)[0].world_size == 16
    assert refusals("gadi", partition="dgxa100", nodes=3) == {"size"}
    assert refusals("gadi", partition="gpuhopper", nodes=2, walltime="60h") == set()
    assert refusals("gadi", partition="gpuhopper", walltime="48h") == set()
    assert refusals("gadi", partition="gpuhopper", walltime="49h") == {"walltime"}


def test_gadi_copyq_is_one_core_for_ten_hours():
    """The data movers give one core, ten hours and no GPU."""
    assert refusals("gadi", partition="copyq", walltime="10h") == set()
    assert refusals("gadi", partition="copyq", walltime="10:00:01", cpus_per_task=2) == {"size", "walltime"}


# QoS, what its partition and account are, hours, and its most nodes (or the largest that anybody allows)
QOS = [
    ("qos_gpu-t3", "v100", "@v100", 20, None),  # the caps of these three are from a copy of 2023, and only warn
    ("qos_gpu-t4", "v100", "@gpu", 100, 4),
    ("qos_gpu-dev", "v100", "@v100", 2, 8),
    ("qos_gpu-t3", "gpu_p2", "@v100", 20, None),
    ("qos_gpu-t4", "gpu_p2", "@v100", 100, 2),
    ("qos_gpu-dev", "gpu_p2", "@v100", 2, 4),
    ("qos_gpu_a100-t3", "a100", "@a100", 20, None),
    ("qos_gpu_a100-dev", "a100", "@a100", 2, 4),
    ("qos_gpu_h100-t3", "h100", "@h100", 20, 128),
    ("qos_gpu_h100-t4", "h100", "@h100", 100, 16),
    ("qos_gpu_h100-dev", "h100", "@h100", 2, 8),
    ("qos_cpu-t3", "cpu_p1", "@cpu", 20, None),
    ("qos_cpu-t4", "cpu_p1", "@cpu", 100, 4),
    ("qos_cpu-dev", "cpu_p1", "@cpu", 2, None),
]


@pytest.mark.parametrize(("qos", "partition", "suffix", "hours", "nodes"), QOS)
def test_jean_zay_qos_limits(qos, partition, suffix, hours, nodes):
    """A QoS takes its hours and its size, and not a second or a node more."""
    asked = {"partition": partition, "account": f"abc{suffix}", "qos": qos}
    assert refusals("jean-zay", walltime=f"{hours}h", nodes=nodes or 52, **asked) == set()
    assert refusals("jean-zay", walltime=f"{hours}:00:01", **asked) == {"qos"}
    if nodes:
        assert refusals("jean-zay", walltime="1h", nodes=nodes + 1, **asked) == {"qos"}


@pytest.mark.parametrize(
    ("partition", "walltime", "nodes", "qos"),
    [
        ("v100", "20h", 1, "qos_gpu-t3"),
        ("v100", "20:00:01", 4, "qos_gpu-t4"),
        ("h100", "20:00:01", 4, "qos_gpu_h100-t4"),
        ("h100", "20:00:01", 16, "qos_gpu_h100-t4"),
        ("a100", "20h", 8, "qos_gpu_a100-t3"),
        ("cpu_p1", "100h", 4, "qos_cpu-t4"),
    ],
)
def test_jean_zay_qos_is_chosen(partition, walltime, nodes, qos):
    """A job that names no QoS gets the first that it fits."""
    chosen = checked("jean-zay", partition=partition, walltime=walltime, nodes=nodes)[0].qos
    assert chosen and chosen.name == qos


@pytest.mark.parametrize(
    ("partition", "gpus", "cpus"), [("v100", 4, 10), ("gpu_p2", 8, 3), ("a100", 8, 8), ("h100", 4, 24)]
)
def test_jean_zay_cores_come_with_gpus(partition, gpus, cpus):
    """A GPU's share of cores is filled in; one core more on a part of a node is told to cost more."""
    plan, _ = checked("jean-zay", partition=partition)
    assert (plan.gpus_per_node, plan.cpus_per_task) == (gpus, cpus)
    _, findings = checked("jean-zay", partition=partition, gpus_per_node=1, cpus_per_task=cpus + 1)
    assert [finding.refuses for finding in findings if finding.check == "cpus"] == [False]
    assert refusals("jean-zay", partition=partition, gpus_per_node=gpus + 1) >= {"gpus"}


@pytest.mark.parametrize("partition", ["prepost", "visu", "archive", "compil"])
@pytest.mark.parametrize("account", ["abc@v100", "abc@cpu", "abc@h100", "abc"])
def test_free_partitions_take_any_account(partition, account):
    """prepost, visu, archive and compil need no constraint and no account of their own."""
    assert refusals("jean-zay", partition=partition, account=account) == set()


@pytest.mark.parametrize("gpus", range(2, 5))
@pytest.mark.parametrize("name", ["gadi", "jean-zay"])
def test_one_process_may_use_several_gpus(name, gpus):
    """One task on several GPUs, and a launcher in it that starts a node's ranks, are legal."""
    assert refusals(name, gpus_per_node=gpus, tasks_per_node=1) == set()
    command = ["accelerate", "launch", "--devices", str(gpus), "t.py"]
    assert refusals(name, gpus_per_node=gpus, tasks_per_node=1, command=command, launcher="tasks") == set()
