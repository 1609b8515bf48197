"""What is requested, charged and refused of jobs that go on inside their allocation."""

from __future__ import annotations

import re

import pytest

GADI = "--site gadi -q gpuvolta -P ab12 --launcher torchrun"
JEAN_ZAY = "--site jean-zay -p v100 -A abc@v100"


def script(cli, words: str) -> str:
    result = cli("render", *words.split(), "--", "true")
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_spares_are_requested_and_charged_and_have_no_ranks(cli):
    """Two nodes and a spare: three nodes in directives and price, two in the world size; the same again by line 4."""
    made = script(cli, f"{GADI} --nodes 2 --spares 1")
    assert "2 nodes x 4 tasks = world size 8, 1 spare node, 144 cpus, 12 GPUs" in made
    assert "#PBS -l ncpus=144\n" in made
    assert "at most 432 SU" in made
    assert "--nnodes=2 --nproc-per-node=4 --max-restarts=1 " in made
    words = re.search(r"^#   hpclaunch render (.*) -- true$", made, re.MULTILINE)
    assert script(cli, words[1]) == made


def test_a_range_is_charged_at_most(cli):
    """A job of two to four nodes has the price of four; ranks count the nodes when the job runs."""
    made = script(cli, f"{JEAN_ZAY} --nodes 2:4")
    assert "2 to 4 nodes x 4 tasks = world size 16" in made
    assert "at most 16 GPU-hours" in made
    assert "#SBATCH --nodes=2-4\n" in made
    assert "WORLD_SIZE=$(((SLURM_JOB_NUM_NODES - 0) * 4))" in made


def test_without_these_options_a_script_has_none_of_it(cli):
    """A line is in the script only where it was asked for."""
    made = script(cli, f"{JEAN_ZAY} --nodes 2 --launcher torchrun")
    assert not re.search(r"no-kill|max-restarts|\.starts|SLURM_JOB_NUM_NODES|TORCH_DISABLE", made)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (f"{JEAN_ZAY} --launcher tasks --spares 1", "--spares: the launcher tasks cannot start ranks again"),
        (
            f"{JEAN_ZAY} --launcher mpirun --max-restarts 1 --min-nodes 1",
            "--max-restarts, --min-nodes: the launcher mpi",
        ),
        (f"{GADI} --nodes 2 --min-nodes 3", "min-nodes 3 exceeds the 2 nodes of the training; use --min-nodes 2"),
        (f"{GADI} --nodes 2:4", "pbs has no range of nodes, as a job requests totals; use --nodes 4 or --nodes 2"),
        (f"{JEAN_ZAY} --nodes 4:2", "nodes 4:2: 4 exceeds 2; use --nodes 2:4"),
        (f"{JEAN_ZAY} --nodes 0", "0 is not in the range"),
        (f"{JEAN_ZAY} --nodes 2:", "not a valid integer range"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(cli, words, says):
    """Launchers that cannot start ranks again, a range on PBS, and numbers that contradict each other."""
    result = cli("render", *words.split(), "--", "true")
    assert result.exit_code != 0
    assert says in result.stderr
