"""A partition is chosen from the request when none is named."""

from __future__ import annotations

import pytest

from hpclaunch.job.consider import consider
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import make_request
from hpclaunch.profile import search


def planned(name: str, **asked: object) -> Plan:
    plan, _ = consider(search.load(name), make_request({"account": "ab12", "command": ["true"], **asked}))
    assert plan
    return plan


@pytest.mark.parametrize(
    ("name", "asked", "partition", "why"),
    [
        ("jean-zay", {"account": "abc@a100"}, "a100", "the account ends in @a100"),
        ("jean-zay", {"account": "abc@cpu"}, "cpu_p1", "the account ends in @cpu"),
        ("jean-zay", {"account": "abc@h100", "qos": "qos_gpu_h100-t4"}, "h100", "v100 refuses it, partition v100 has "),
        ("gadi", {"gpus_per_node": 0}, "normal", "gpuvolta refuses it, no GPUs requested"),
        ("gadi", {"gpus_per_node": 8}, "dgxa100", "gpuvolta refuses it, 8 GPUs per node"),
        ("gadi", {"mem_gb": 1000}, "dgxa100", "gpuvolta refuses it, 1000 GB per node exceeds the 382 GB"),
        # The default stays: it takes the job, nothing does, a job for GPUs gets no other, limits are not confirmed.
        ("gadi", {}, "gpuvolta", ""),
        ("jean-zay", {"account": "abc@gpu"}, "v100", ""),
        ("gadi", {"gpus_per_node": 9}, "gpuvolta", ""),
        ("gadi", {"nodes": 30, "walltime": "5h"}, "gpuvolta", ""),
    ],
)
def test_the_first_partition_that_takes_the_job(name, asked, partition, why):
    """A job that the default partition refuses gets the first other one that takes it, and why is known."""
    plan = planned(name, **asked)
    assert plan.partition_name == partition
    assert plan.chosen.startswith(why) and bool(plan.chosen) is bool(why)
    named = planned(name, **asked, partition="v100" if name == "jean-zay" else "gpuvolta")
    assert (named.partition_name, named.chosen) == (planned(name).partition_name, "")


@pytest.mark.parametrize(
    ("order", "gpus", "partition"),
    [
        ("cheapest", None, "gpuvolta"),
        ("fastest", None, "dgxa100"),
        ("cheapest", 0, "normalbw"),
        ("fastest", 0, "normalsr"),
        ("none", 0, "gpuvolta"),
    ],
)
def test_a_site_chooses_the_cheapest_or_the_fastest(work, order, gpus, partition):
    """With `choose` the price or the GPU's age decides, also where the default would take the job; or nothing does."""
    hopper = "partitions: {gpuhopper: null}"  # its price is not confirmed
    (work / "mine.yaml").write_text(f"extends: gadi\ntitle: Mine\nchoose: {order}\n{hopper}\n")
    plan = planned("./mine.yaml", **({} if gpus is None else {"gpus_per_node": gpus}))
    assert plan.partition_name == partition
    assert (plan.chosen == f"the {order} that takes the job") is (partition == "dgxa100")


def test_small_shared_and_reserved_partitions_are_chosen_last_or_never(work):
    """One for small jobs comes after whole nodes; one that is not `automatic` must be named."""
    (work / "mine.yaml").write_text("""\
title: Mine
scheduler: slurm
default_partition: gpu
partitions:
  gpu: {cores_per_node: 64, gpus_per_node: 4, account_suffixes: [_g]}
  data: {cores_per_node: 8, automatic: false}
  serial: {cores_per_node: 64, small_jobs: true}
  cpu: {cores_per_node: 128, walltime: [{max_walltime: "24:00:00"}]}
""")
    asked = {"account": "x_c", "gpus_per_node": 0}
    assert planned("./mine.yaml", **asked).partition_name == "cpu"
    assert planned("./mine.yaml", **asked, walltime="30h").partition_name == "serial"


def test_the_reason_is_printed_and_explained(cli):
    """The reason stands on stderr and in --explain; the script's own command names the partition."""
    result = cli("render", "--site", "jean-zay", "-A", "abc@a100", "--", "true")
    assert "hpclaunch: partition a100: the account ends in @a100\n" in result.stderr
    assert "--partition a100" in result.stdout
    explained = cli("render", "--explain", "--site", "jean-zay", "-A", "abc@a100", "--", "true").stdout
    assert "<- partition_name: the account ends in @a100" in explained
