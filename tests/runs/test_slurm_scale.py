"""A scaling study on a real Slurm cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import call

pytestmark = [pytest.mark.usefixtures("slurm", "plots"), pytest.mark.slow, pytest.mark.timeout(600)]
# All ranks meet and add up what each has done; the throughput follows Gustafson's law with a serial fraction of 0.2.
TRAIN = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
done = torch.tensor([0.8])
dist.all_reduce(done)
if dist.get_rank() == 0:
    print(f"{1000 * (0.2 + done.item()):.1f} samples/s", flush=True)
dist.destroy_process_group()
"""


def test_a_study_of_up_to_four_nodes(work):
    """Jobs of 1, 2 and 4 nodes are measured by what rank 0 prints, and drawn; a size that runs yet is left out."""
    (work / "train.py").write_text(TRAIN)
    words = ("--weak", "--metric", r"([\d.]+) samples/s", "--tasks-per-node", "1", "--launcher", "tasks")
    study = call("scale", "-N", "1,2,4", *words, "--at-most", "1", "--", sys.executable, "train.py").strip()
    call("wait", f"{study}:1", seconds=200)
    (first,) = json.loads(call("scale", study, "--json"))
    assert first["sizes"][0]["samples_per_second"] == 1000
    call("wait", study, seconds=300)
    (found,) = json.loads(call("scale", study, "--json"))
    assert [size["samples_per_second"] for size in found["sizes"]] == [1000, 1800, 3400]
    assert found["serial_fraction"] == pytest.approx(0.2)
    assert call("status", study).count("COMPLETED") == 3
    assert "weak scaling, Gustafson's law with a serial fraction of 20 %" in Path("scaling.svg").read_text()
    assert Path("scaling.png").stat().st_size > 10_000
