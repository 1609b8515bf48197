"""`site new --detect` and `doctor` on a real Slurm cluster."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from conftest import call

from hpclaunch import paths
from hpclaunch.profile import search

pytestmark = pytest.mark.usefixtures("slurm")


def test_the_draft_is_taken_by_sbatch(work):
    """On a login node a person gets a profile that loads, and whose job scripts the real sbatch takes."""
    path = call("site", "new", "mine", "--detect").strip()
    assert path == str(paths.user_config() / "site_profiles" / "mine.yaml")
    assert call("site", "check", "mine") == f"{path}: fine\n"
    part = search.load("mine").site.partitions["gpu_p13"]
    assert (part.cores_per_node, part.gpus_per_node, part.mem_gb_per_node) == (40, 4, 156)
    qos = {one.name: one for one in part.qos}
    assert (qos["qos_gpu-t3"].default, qos["qos_gpu-t3"].max_gpus) == (True, 512)
    assert (qos["qos_gpu-t4"].max_walltime, qos["qos_gpu-t4"].automatic) == ("100:00:00", True)
    assert qos["qos_spare"].automatic is False  # others preempt it
    for options in ((), ("--nodes", "2", "-A", "abc@v100"), ("-t", "30h", "--gpus-per-node", "1", "--mem-gb", "30")):
        (work / "job.sh").write_text(call("render", "--site", "mine", *options, "--", "true"))
        tried = subprocess.run(["sbatch", "--test-only", "job.sh"], capture_output=True, text=True, check=False)
        assert tried.returncode == 0, tried.stderr
    assert "#SBATCH --qos=qos_gpu-t4" in (work / "job.sh").read_text()


@pytest.mark.slow
def test_the_doctor_asks_slurm():
    """On a login node the controller, the partition, the account and the job itself are found well."""
    own = ("--site", "mine", "--", sys.executable, "-c", "")
    call("site", "new", "mine", "--detect")
    answer = call("doctor", "--json", *own, code=1)  # the tests' folder is in /tmp
    found = {row["check"]: row for row in json.loads(answer)}
    assert {probe for probe, row in found.items() if row["verdict"] == "problem"} <= {"shared", "torch"}  # a CPU build
    assert found["server"]["message"] == "Slurmctld(primary) at slurmctl is UP"
    assert found["partition"]["message"] == "gpu_p13 is there and open"
    assert found["account"]["message"] == "abc@v100 is yours"
    assert found["job"]["verdict"] == "ok"
    answer = call("doctor", "--json", "-A", "abc@h100", *own, code=1)
    found = {row["check"]: row for row in json.loads(answer)}
    assert "abc@h100 is not yours" in found["account"]["message"]
    assert "Invalid account" in found["job"]["message"]
