"""`site new --detect` on a Slurm site: recorded answers of scontrol and sacctmgr become a profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpclaunch import paths
from hpclaunch.profile import model, search
from hpclaunch.schedulers.slurm import detect as slurm
from hpclaunch.schedulers.slurm.accounting import seconds

ANSWERS = Path(__file__).parent / "slurm_answers"
SCONTROL = """#!/bin/bash
for word; do :; done
exec cat "{0}/$word"
"""
SACCTMGR = """#!/bin/bash
exec cat "{0}/$4"
"""


@pytest.fixture
def programs(programs):
    """The same with a recorded scontrol and sacctmgr."""
    programs("scontrol", SCONTROL.format(ANSWERS))
    programs("sacctmgr", SACCTMGR.format(ANSWERS))
    return programs


@pytest.fixture
def detected(programs, cli):
    """Draft a profile and load it: its text and its model."""

    def detect() -> tuple[str, model.Site]:
        result = cli("site", "new", "mine", "--detect")
        assert result.exit_code == 0, result.stderr
        assert cli("site", "check", "mine").exit_code == 0
        return (paths.user_config() / "site_profiles" / "mine.yaml").read_text(), search.load("mine").site

    return detect


def test_partitions_and_their_default(detected):
    """What a person may name is there, Slurm's default is the draft's, the rest is left out with the reason."""
    text, found = detected()
    assert list(found.partitions) == ["standard", "gpu", "debug", "forever", "guests"]
    assert found.default_partition == "standard"
    assert "default_partition: standard  # scontrol show partition standard: Default=YES" in text
    for line in (
        "CPU nodes (amd): a profile's names have no such characters",
        "staff: not for your accounts, AllowAccounts=ops,root",
        "old: State=DOWN",
        "empty: no nodes",
    ):
        assert f"#   {line}\n" in text


def test_hyperthreads_are_no_cores(detected):
    """Where Slurm deals in hyperthreads, the draft counts cores and asks for them as such."""
    _, found = detected()
    standard = found.partitions["standard"]
    assert (standard.cores_per_node, standard.mem_gb_per_node) == (128, 250)
    assert found.directives == ["--hint=nomultithread"]
    assert standard.max_cores == 16 * 128


def test_the_commonest_node_counts_and_others_are_named(detected):
    """A partition of mixed nodes has the commonest kind's size; the draft names the others, and the features."""
    text, found = detected()
    gpu = found.partitions["gpu"]
    assert (gpu.cores_per_node, gpu.gpus_per_node, gpu.gpu) == (126, 4, "a100")
    assert gpu.mem_gb_per_node == 499  # less what the system keeps
    own = "# Decide: a partition of its own, with `directives:`, for "
    assert f"{own}128 cores, 1006 GB; 1 node: c4\n" in text
    assert f"{own}64 cores, 3x v100, t4, 375 GB; 1 node: g4\n" in text
    assert "# Features, for --directive=--constraint=NAME: a100, ib\n" in text


def test_what_a_partition_lets_jobs_have(detected):
    """Limits on cores and nodes; memory is asked for where little comes by itself."""
    text, found = detected()
    assert (found.partitions["debug"].cores_per_node, found.partitions["debug"].max_cores) == (64, 128)
    assert "cores_per_node: 64  # scontrol show partition debug: MaxCPUsPerNode" in text
    assert found.ask_memory is True
    assert "Decide: a job here has at least 2 nodes (MinNodes)" in text
    assert "Decide: charge; Slurm's own weights are CPU=1.0,Mem=0.25G,GRES/gpu=16.0" in text


def test_no_limit_on_time_makes_no_tier(detected):
    """An unlimited partition has no tier, and a QoS without limit there is not chosen by itself."""
    _, found = detected()
    forever = found.partitions["forever"]
    assert forever.walltime == []
    assert {qos.name: qos.max_walltime for qos in forever.qos}["normal"] == "8760:00:00"


def test_qos_have_the_limits_that_count(detected):
    """Of a QoS, its partition and the partition's QoS, the limit that counts is in the draft."""
    _, found = detected()
    qos = {qos.name: qos for qos in found.partitions["gpu"].qos}
    assert {name: one.max_walltime for name, one in qos.items()} == dict.fromkeys(
        ("normal", "long", "debug", "scavenge", "unlimited"), "24:00:00"
    )  # where a partition's QoS sets a limit, a job's does not count
    assert (qos["normal"].max_walltime, qos["normal"].max_gpus, qos["normal"].default) == ("24:00:00", 16, True)
    assert qos["long"].max_cores == 512
    assert qos["scavenge"].automatic is False  # makes room for others
    assert [qos.name for qos in found.partitions["debug"].qos] == ["debug"]
    debug = found.partitions["debug"].qos[0]
    assert (debug.max_walltime, debug.max_gpus, debug.max_cores) == ("00:30:00", 4, 128)  # GPUs: MaxTRESPU
    standard = {qos.name: qos.max_walltime for qos in found.partitions["standard"].qos}
    assert list(standard) == ["normal", "debug", "scavenge", "long", "unlimited"]  # the default, then the shorter first
    assert standard["unlimited"] == "168:00:00"
    assert found.partitions["standard"].walltime[0].max_walltime == "168:00:00"
    assert "hidden" not in standard


def test_limits_of_a_user_are_limits_of_a_job(detected):
    """No job is larger than what its user may have in a QoS; how many jobs may wait is a limit, how many run a note."""
    text, found = detected()
    debug = found.partitions["debug"].qos[0]
    assert (debug.name, debug.max_gpus, debug.max_jobs) == ("debug", 4, 10)
    assert "# QoS debug: 2 jobs of a user run at once (MaxJobsPU), more wait\n" in text


def test_accounts_are_told(detected):
    """The person's accounts are in the draft, the default one ready to be uncommented."""
    text, found = detected()
    assert "# account: phys  # sacctmgr show user: your default; you also have chem\n" in text
    assert found.account is None


def test_the_draft_renders(detected, cli):
    """A job for the draft's GPU partition has its GPUs, cores and memory."""
    detected()
    result = cli("render", "--site", "mine", "-p", "gpu", "--nodes", "2", "-t", "10h", "--", "true")
    assert result.exit_code == 0, result.stderr
    for line in ("--partition=gpu", "--gres=gpu:4", "--cpus-per-task=31", "--mem=499G", "--hint=nomultithread"):
        assert f"#SBATCH {line}\n" in result.stdout
    refused = cli("render", "--site", "mine", "-p", "gpu", "--nodes", "2", "-t", "30h", "--qos", "normal", "--", "true")
    assert refused.exit_code == 1
    assert "walltime: 30:00:00 exceeds gpu's limit of 24:00:00" in refused.stderr


def test_without_accounting_the_partitions_are_there(programs, detected):
    """If sacctmgr fails, the draft has no QoS and a line that says so."""
    programs("sacctmgr", "#!/bin/bash\necho 'sacctmgr: error: Connection refused' >&2\nexit 1\n")
    text, found = detected()
    assert found.partitions["standard"].qos == []
    assert found.partitions["standard"].walltime[0].max_walltime == "168:00:00"
    assert "# Decide: QoS and accounts are not known, sacctmgr says: sacctmgr: error: Connection refused" in text


BAD = {
    "no answer": ("sleep 60", "scontrol: no answer after 0.5 s; its daemon may be down"),
    "refuses": ("echo 'slurm_load_partitions: Unable to contact slurm controller' >&2; exit 1", "Unable to contact"),
    "garbled": ("head -c 3000 /dev/urandom || echo '\ufffd\u0007 ='", "names no partition"),
    "nothing": ("exit 0", "names no partition"),
    "none of use": ("echo 'PartitionName=x AllowGroups=ALL State=UP'", "partition x: no nodes"),
}


@pytest.mark.parametrize("case", BAD)
def test_no_answer_leaves_one_message_and_no_file(case, programs, cli, monkeypatch):
    """With a controller that is silent, refuses or talks nonsense, the exit code is 3 and nothing is written."""
    answer, message = BAD[case]
    monkeypatch.setattr("hpclaunch.schedulers.slurm.detect.SECONDS", 0.5)
    programs("scontrol", f"#!/bin/bash\n{answer}\n")
    result = cli("site", "new", "mine", "--detect")
    assert result.exit_code == 3
    assert message in result.stderr
    assert not list(paths.user_config().rglob("*"))


@pytest.mark.parametrize(
    ("gres", "gpus", "model"),
    [
        ("gpu:4", 4, ""),
        ("gpu:a100:4(S:0-1)", 4, "a100"),
        ("gpu:a100:4(S:0,2),gpu:t4:2,shard:8", 6, "a100, t4"),
        ("gpu:1g.5gb:7", 7, "1g.5gb"),
        ("gpu", 1, ""),
        ("(null)", 0, ""),
        ("craynetwork:4", 0, ""),
    ],
)
def test_gpus_are_counted(gres, gpus, model):
    """Slurm writes GPUs with and without model, sockets and shards."""
    assert slurm._gpus(gres) == (gpus, model)


@pytest.mark.parametrize(
    ("text", "length"),
    [("4-04:00:00", 360000), ("20:00:00", 72000), ("UNLIMITED", None), ("", None), ("00:00:00", None), ("x", None)],
)
def test_times_are_read(text, length):
    """Slurm's times have days before a dash; what is no time is no limit."""
    assert seconds(text) == length
