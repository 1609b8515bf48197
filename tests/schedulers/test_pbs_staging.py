"""--stage-in and --stage-out in a PBS job of two nodes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from conftest import PbsJob, wait_until

HOSTS = ["127.0.0.1", "127.0.0.2"]
# Each rank writes what it finds and then works until it gets TERM, once or more, at which it saves.
WORK = r"""
mkdir -p "$HPCLAUNCH_LOCAL/results"; cat "$HPCLAUNCH_LOCAL/data/a" >"$HPCLAUNCH_LOCAL/results/$RANK"
trap 'printf "a\nsaved\n" >"$HPCLAUNCH_LOCAL/results/$RANK"; exit 143' TERM
echo $PPID >group-$RANK; touch begun-$RANK
until [[ -e begun-0 && -e begun-1 && -e begun-2 && -e begun-3 ]]; do sleep 0.1; done
for ((i = 0; i < STEPS; i++)); do ((RANK != FAILS)) || exit 7; sleep 0.2; done
"""


@pytest.fixture
def submit(cli, pbs, work, tmp_path):
    """Submit WORK on two nodes of a site with a disk on each."""
    (tmp_path / "disk").mkdir()
    (work / "site_profiles").mkdir()
    keys = f"extends: gadi\ntitle: Mine\nmodules: []\nlocal_disk: {tmp_path}/disk/$USER_OF_DISK\n"
    (work / "site_profiles" / "mine.yaml").write_text(keys)
    (work / "data").mkdir()
    (work / "data" / "a").write_text("a\n")

    def call(*options: str, steps: int = 0, fails: int = 9) -> PbsJob:
        asked = ["--site", "mine", "-A", "ab12", "--nodes", "2", "--tasks-per-node", "2", "--launcher", "tasks"]
        variables = [f"--env={setting}" for setting in (f"STEPS={steps}", f"FAILS={fails}", "USER_OF_DISK=me")]
        stage = ["--stage-in", "data", "--stage-out", "results:back", *variables]
        result = cli("render", *asked, *stage, *options, "--", "bash", "-c", WORK)
        assert result.exit_code == 0, result.stderr
        return pbs(result.stdout, HOSTS)

    return call


def back() -> dict[str, str]:
    return {path.name: path.read_text() for path in Path("back").iterdir()}


def test_each_node_has_its_copy_and_brings_back(submit, tmp_path):
    """The data is on both nodes, the results of all ranks come back, and nothing stays on the disk."""
    job = submit()
    assert job.wait() == 0, job.output
    assert back() == dict.fromkeys("0123", "a\n")
    assert not [*(tmp_path / "disk" / "me").iterdir()]


def test_a_deleted_job_brings_back_what_it_saved(submit):
    """After qdel, as at the walltime, what the ranks save at TERM comes back before PBS kills them."""
    job = submit(steps=1000)
    wait_until(lambda: len([*Path().glob("begun-*")]) == 4)
    job.qdel()
    job.wait()
    assert back() == dict.fromkeys("0123", "a\nsaved\n")


def test_results_come_back_however_often_term_comes(submit):
    """PBS and the job script may both send it: here it comes all the time to the ranks of a node."""
    job = submit(steps=1000)
    wait_until(lambda: len([*Path().glob("begun-*")]) == 4)
    groups = [os.getpgid(int(Path(f"group-{rank}").read_text())) for rank in (0, 1)]
    job.qdel()
    while groups:
        for group in [*groups]:
            try:
                os.killpg(group, signal.SIGTERM)
            except ProcessLookupError:
                groups.remove(group)
    job.wait()
    assert back() == dict.fromkeys("0123", "a\nsaved\n")


def test_a_rank_that_fails_costs_no_results(submit):
    """What the others save when one fails comes back too, and the exit code is that of the failure."""
    job = submit(steps=1000, fails=3)
    assert job.wait() == 7, job.output
    assert back() == dict.fromkeys("012", "a\nsaved\n") | {"3": "a\n"}


def test_what_cannot_be_copied_ends_the_job_with_a_sentence(submit):
    """The job's end names the node and the file."""
    job = submit("--stage-in", "$PBS_O_WORKDIR/data/nothing")
    assert job.wait() == 1
    assert "first failure: the copy of " in job.output and "/data/nothing to node " in job.output
