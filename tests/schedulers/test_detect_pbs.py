"""`site new --detect` on a PBS site: recorded answers of its programs become a profile that loads and renders."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hpclaunch import paths
from hpclaunch.profile import model, search
from hpclaunch.schedulers.values import pbs_gb

ANSWERS = Path(__file__).parent / "pbs_answers"
QSTAT = """#!/bin/bash
case "$*" in
    "-B -f -F json") exec cat "{0}/server.json" ;;
    "-Q -f -F json") exec cat "{0}/queues.json" ;;
esac
echo "qstat: $*: not asked like that" >&2
exit 2
"""
PBSNODES = """#!/bin/bash
[[ "$*" == "-a -F json" ]] && exec cat "{0}/nodes.json"
exit 2
"""


@pytest.fixture
def detected(programs, cli):
    """Draft a profile of a recorded PBS and load it: the profile's text and its model."""

    def detect(name: str) -> tuple[str, model.Site]:
        programs("qstat", QSTAT.format(ANSWERS / name))
        programs("pbsnodes", PBSNODES.format(ANSWERS / name))
        result = cli("site", "new", "mine", "--detect")
        assert result.exit_code == 0, result.stderr
        path = paths.user_config() / "site_profiles" / "mine.yaml"
        assert result.stdout.strip() == str(path)
        assert cli("site", "check", "mine").exit_code == 0
        return path.read_text(), search.load("mine").site

    return detect


def tiers(partition: model.Partition) -> list[tuple[int | None, str]]:
    return [(tier.max_cores, tier.max_walltime) for tier in partition.walltime]


def test_a_queue_that_routes_is_named_and_those_behind_it_are_not(detected):
    """Of a routing queue and its execution queues a person names the former; its tiers are those of the latter."""
    text, found = detected("routed")
    assert list(found.partitions) == ["normal", "gpuvolta", "copyq"]
    assert found.default_partition == "normal"
    normal = found.partitions["normal"]
    assert (normal.cores_per_node, normal.gpus_per_node, normal.mem_gb_per_node) == (48, 0, 190)
    assert tiers(normal) == [(96, "48:00:00"), (None, "24:00:00")]
    assert (
        "{max_cores: 96, max_walltime: '48:00:00'}  # qstat -Bf, qstat -Qf normal normal-exec normal-large-exec\n"
        in text
    )
    assert normal.max_cores == 288
    assert "A route to normal-exec, normal-large-exec, not to be named themselves" in text
    assert "#   normal-exec: jobs reach it through normal" in text


def test_gpus_are_those_of_the_nodes_tied_to_the_queue(detected):
    """A GPU queue has its own nodes' GPUs and memory, and its limit on GPUs becomes one on cores."""
    text, found = detected("routed")
    gpu = found.partitions["gpuvolta"]
    assert (gpu.cores_per_node, gpu.gpus_per_node, gpu.mem_gb_per_node, gpu.max_cores) == (48, 4, 382, 96)
    assert "max_cores: 96  # qstat -Bf, qstat -Qf gpuvolta gpuvolta-exec\n" in text
    copyq = found.partitions["copyq"]
    assert (copyq.cores_per_node, copyq.max_cores, tiers(copyq)) == (16, 1, [(None, "10:00:00")])


def test_what_is_not_for_this_person_is_left_out_with_the_reason(detected):
    """Reservations, closed queues and those of other people are no partitions; the draft says why."""
    text, _ = detected("routed")
    assert "#   training: enabled=False" in text
    assert "#   staff: not for you" in text
    assert "#   projects: not for you" in text
    assert "#   R1234: a reservation" in text


def test_memory_is_asked_for_where_little_comes_by_itself(detected):
    """A server that gives 2 GB to jobs that request none makes every job ask, so none dies of it."""
    text, found = detected("routed")
    assert found.ask_memory is True
    assert "ask_memory: true  # qstat: the server gives 2gb to jobs that request none" in text


def test_nodes_are_found_by_what_chunks_ask_for(detected):
    """A route to CPU and GPU queues has the commonest nodes' size; the draft names the other kind."""
    text, found = detected("chunks")
    assert list(found.partitions) == ["main", "debug", "large", "any"]
    main = found.partitions["main"]
    assert (main.cores_per_node, main.gpus_per_node, tiers(main)) == (128, 0, [(None, "24:00:00")])
    assert "Decide: a partition of its own, with `directives:`, for 64 cores, 4x GPU, 486 GB; 1 node: g1" in text
    assert found.multi_node == "exclusive"
    assert found.partitions["debug"].max_cores == 128
    assert "Decide: min_cores; the queue has resources_min.nodect=2" in text
    assert "no job_history_enable" in text


def test_nodes_tell_their_queues_by_a_tag(programs, cli, tmp_path):
    """Where queues say nothing of their nodes, the nodes' Qlist names the queues that they serve."""
    queues = {name: {"queue_type": "Execution", "enabled": "True", "started": "True"} for name in ("cpu", "gpu")}
    nodes = {
        "c1": {"resources_available": {"ncpus": 64, "mem": "256gb", "Qlist": "cpu,test"}},
        "g1": {"resources_available": {"ncpus": 32, "ngpus": 4, "mem": "512gb", "Qlist": "gpu"}},
    }
    for file, answer in (("server", {"Server": {"s": {}}}), ("queues", {"Queue": queues}), ("nodes", {"nodes": nodes})):
        (tmp_path / f"{file}.json").write_text(json.dumps(answer))
    programs("qstat", QSTAT.format(tmp_path))
    programs("pbsnodes", PBSNODES.format(tmp_path))
    assert cli("site", "new", "mine", "--detect").exit_code == 0
    found = search.load("mine").site.partitions
    assert {name: (part.cores_per_node, part.gpus_per_node) for name, part in found.items()} == {
        "cpu": (64, 0),
        "gpu": (32, 4),
    }


def test_a_command_that_hangs_delays_nothing(detected, programs):
    """On a PBS site with a scontrol that hangs, PBS's answer counts at once."""
    programs("scontrol", "#!/bin/bash\nexec sleep 9\n")
    began = time.monotonic()
    assert detected("routed")[1].scheduler == "pbs"
    assert time.monotonic() - began < 8


def test_a_queue_without_limits_has_the_commonest_nodes(detected):
    """A queue that any node serves has the size of most nodes, and no walltime."""
    _, found = detected("chunks")
    part = found.partitions["any"]
    assert (part.cores_per_node, part.gpus_per_node, part.walltime) == (128, 0, [])


def test_the_draft_renders_a_script_that_qsub_takes(detected, cli, standin, monkeypatch):
    """A job of two nodes, rendered from the draft, is accepted by a PBS."""
    detected("routed")
    result = cli("render", "--site", "mine", "-p", "gpuvolta", "--nodes", "2", "--", "true")
    assert result.exit_code == 0, result.stderr
    assert "#PBS -l select=2:ncpus=48:ngpus=4:mem=382gb:mpiprocs=4\n" in result.stdout
    monkeypatch.undo()
    assert standin().submit(result.stdout).endswith(".gadi-pbs")


def test_a_draft_tells_what_is_left_to_decide(detected, cli):
    """The person's own lines are marked, in the file and, counted, on stderr."""
    text, _ = detected("routed")
    assert text.startswith("# yaml-language-server: $schema=site.schema.json\n")
    for word in (
        "a price",
        "the environment of every job",
        "file systems that a job must name",
        "may jobs submit jobs",
    ):
        assert f"# Decide: {word}" in text


BAD = {
    "not there": (None, None, "pbs: qstat: not found; is this a login node of the site?"),
    "no answer": ("#!/bin/bash\nsleep 60\n", None, "qstat: no answer after 0.5 s; its daemon may be down"),
    "refuses": ("#!/bin/bash\necho 'Connection refused' >&2\nexit 255\n", None, "Connection refused"),
    "garbled": ("#!/bin/bash\necho '{\"Queue\": {'\n", None, "its answer is no JSON"),
    "a list": ("#!/bin/bash\necho '[]'\n", None, "its answer is no JSON"),
    "no queues": ("#!/bin/bash\necho '{}'\n", None, "names no queue"),
    "odd queues": ('#!/bin/bash\necho \'{"Queue": {"a": 1}}\'\n', None, "names no queue"),
    "none of use": (
        '#!/bin/bash\necho \'{"Queue": {"a": {"enabled": "False"}, "b c": {}}}\'\n',
        "#!/bin/bash\necho '{}'\n",
        "partition b c: a profile's names have no such characters",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_no_answer_leaves_one_message_and_no_file(case, programs, cli, monkeypatch):
    """Without a scheduler, or with one that is silent or talks nonsense, the exit code is 3 and nothing is written."""
    qstat, pbsnodes, message = BAD[case]
    monkeypatch.setattr("hpclaunch.schedulers.pbs.detect.SECONDS", 0.5)
    if qstat:
        programs("qstat", qstat)
        programs("pbsnodes", pbsnodes or "#!/bin/bash\necho '{}'\n")
    result = cli("site", "new", "mine", "--detect")
    assert result.exit_code == 3
    assert message in result.stderr
    assert not list(paths.user_config().rglob("*"))


@pytest.mark.parametrize("value", ["x", 7, [], None, {"walltime": ["x"], "ncpus": "many", "ngpus": -1}])
def test_odd_values_never_give_a_traceback(value, programs, cli, tmp_path):
    """An answer that is JSON but not PBS's makes a draft without those values, or a message."""
    queue = {"resources_max": value, "resources_min": value, "default_chunk": value, "route_destinations": value}
    answers = {
        "server": {"Server": {"s": {"default_queue": value, "resources_max": value, "resources_default": value}}},
        "queues": {"Queue": {"q": queue, "p": {}}},
        "nodes": {"nodes": {"n": {"resources_available": {"ncpus": 4, "mem": value, "ngpus": value}, "queue": value}}},
    }
    for name, answer in answers.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(answer))
    programs("qstat", QSTAT.format(tmp_path))
    programs("pbsnodes", PBSNODES.format(tmp_path))
    result = cli("site", "new", "mine", "--detect")
    assert result.exit_code in (0, 3)
    assert result.exit_code == 3 or cli("site", "check", "mine").exit_code == 0


def test_a_queue_of_which_nothing_is_known(programs, cli, tmp_path):
    """A queue without limits, whose nodes nobody shows, is a partition all the same, and said to be unknown."""
    answers = {"server": {"Server": {"s": {}}}, "queues": {"Queue": {"q": {}}}, "nodes": {}}
    for name, answer in answers.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(answer))
    programs("qstat", QSTAT.format(tmp_path))
    programs("pbsnodes", PBSNODES.format(tmp_path))
    assert cli("site", "new", "mine", "--detect").exit_code == 0
    assert search.load("mine").site.partitions == {"q": model.Partition()}
    assert "Decide: which nodes serve it is not known" in (paths.user_config() / "site_profiles/mine.yaml").read_text()


def test_detect_never_overwrites(detected, cli):
    """A profile of that name is left as it is, and the scheduler is not even asked."""
    detected("routed")
    path = paths.user_config() / "site_profiles" / "mine.yaml"
    path.write_text("precious")
    again = cli("site", "new", "mine", "--detect")
    assert again.exit_code == 1
    assert "exists; edit it" in again.stderr
    assert path.read_text() == "precious"


@pytest.mark.parametrize("words", [(), ("--from", "gadi", "--detect")])
def test_a_new_profile_begins_in_one_way(cli, words):
    """--from and --detect exclude each other, and one of them is needed."""
    result = cli("site", "new", "mine", *words)
    assert result.exit_code == 2
    assert "either --from" in result.stderr


@pytest.mark.parametrize(
    ("text", "gb"),
    [
        *(("395264000kb", 376), ("514260mb", 502), ("2tb", 2048), ("1gb", 1)),
        *((str(2**31), 2), ("256mw", 2), ("4g", 4)),
    ],
)
def test_memory_is_read_in_all_its_units(text, gb):
    """PBS's sizes are powers of two, whatever their unit."""
    assert int(pbs_gb(text)) == gb
