"""From a request to final numbers, and what is refused on the way."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from hpclaunch.errors import RequestError
from hpclaunch.job.consider import make_plan
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import make_request, quote
from hpclaunch.profile import search
from hpclaunch.schedulers import walltime


def plan(name: str, **asked) -> Plan:
    return make_plan(search.load(name), make_request({"site": name, "command": ["python", "train.py"], **asked}))


def refusals(name: str, **asked) -> str:
    with pytest.raises(RequestError) as error:
        plan(name, **{"partition": search.load(name).site.default_partition} | asked)
    return str(error.value)


def test_two_nodes_on_gadi_are_filled_in():
    """`--nodes 2` on Gadi is 8 V100 with all that belongs to them."""
    job = plan("gadi", nodes=2)
    assert (job.partition_name, job.world_size, job.tasks_per_node, job.gpus_per_node) == ("gpuvolta", 8, 4, 4)
    assert (job.nodes * job.cpus_per_node, job.cpus_per_task) == (96, 12)
    assert (job.nodes * (job.mem_gb_per_node or 0), job.nodes * (job.jobfs_gb_per_node or 0)) == (760, 800)
    assert str(job.cost) == "288 SU"
    assert job.summary() == (
        "gadi gpuvolta: 2 nodes x 4 tasks = world size 8, 96 cpus, 8 GPUs, 760 GB, walltime 01:00:00, at most 288 SU"
    )


@pytest.mark.parametrize(
    ("name", "asked", "expected"),
    [
        ("gadi", {"tasks_per_node": 1}, {"gpus_per_node": 1, "cpus_per_node": 12, "mem_gb_per_node": 95}),
        ("gadi", {"gpus_per_node": 2}, {"tasks_per_node": 2, "cpus_per_node": 24, "jobfs_gb_per_node": 200}),
        ("gadi", {"partition": "dgxa100", "nodes": 2}, {"world_size": 16, "cpus_per_task": 16}),
        ("gadi", {"partition": "normal"}, {"world_size": 1, "cpus_per_task": 48, "mem_gb_per_node": 190}),
        ("gadi", {"partition": "normal", "tasks_per_node": 4}, {"cpus_per_task": 12, "cpus_per_node": 48}),
        ("gadi", {"partition": "normal", "tasks_per_node": 2, "cpus_per_task": 4}, {"cpus_per_node": 8}),
        ("gadi", {"partition": "normal", "nodes": 2, "cpus_per_task": 4}, {"cpus_per_node": 48}),
        ("gadi", {"partition": "copyq"}, {"cpus_per_node": 1, "world_size": 1, "gpus_per_node": 0}),
        ("gadi", {"mem_gb": 200}, {"mem_gb_per_node": 200}),
        (
            "jean-zay",
            {"nodes": 2},
            {"world_size": 8, "cpus_per_task": 10, "mem_gb_per_node": None, "starts_per_node": 4},
        ),
        ("jean-zay", {"launcher": "torchrun"}, {"world_size": 4, "starts_per_node": 1, "cpus_per_start": 40}),
        ("jean-zay", {"partition": "gpu_p2"}, {"world_size": 8, "cpus_per_task": 3}),
        ("jean-zay", {"partition": "gpu_p5"}, {"partition_name": "a100", "world_size": 8, "cpus_per_task": 8}),
        ("jean-zay", {"partition": "h100"}, {"world_size": 4, "cpus_per_task": 24}),
        ("local", {"nodes": 2, "tasks_per_node": 2}, {"world_size": 4, "cpus_per_task": 1}),
    ],
)
def test_numbers_are_filled_in_from_the_profile(name, asked, expected):
    """What the request leaves open comes from the partition."""
    job = plan(name, **asked)
    assert {key: getattr(job, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("jean-zay", {"gpus_per_node": 5}, "gpus: 5 GPUs per node, but a v100 node has 4; use --gpus-per-node 4"),
        (
            "gadi",
            {"gpus_per_node": 0},
            "gpus: no GPUs requested, but gpuvolta is for jobs with 1 to 4 per node; use --gpus",
        ),
        (
            "gadi",
            {"partition": "normal", "gpus_per_node": 1},
            "gpus: 1 GPU per node, but a normal node has none; use --gpus-per-node 0 or --partition gpuvolta",
        ),
        ("gadi", {"gpus_per_node": 2, "tasks_per_node": 4}, "tasks: 4 ranks per node with 2 GPUs"),
        ("gadi", {"nodes": 2, "gpus_per_node": 2}, "use --nodes 1 --gpus-per-node 4"),
        ("gadi", {"nodes": 3, "gpus_per_node": 2}, "use --gpus-per-node 4"),
        (
            "gadi",
            {"tasks_per_node": 4, "cpus_per_task": 13},
            "cpus: 4 tasks x 13 = 52 cores per node, but a gpuvolta node has 48; use --cpus-per-task 12",
        ),
        (
            "gadi",
            {"gpus_per_node": 1, "cpus_per_task": 13},
            "1 task x 13 = 13 cores per node exceed the 1 x 12 = 12 that gpuvolta gives with 1 GPU",
        ),
        ("gadi", {"nodes": 21}, "size: 21 nodes with 1008 cores exceeds gpuvolta's limit of 960 cores; use --nodes 20"),
        ("gadi", {"partition": "copyq", "nodes": 2}, "copyq's limit of 1 core"),
        ("gadi", {"partition": "hugemembw", "cpus_per_task": 5}, "gives cores in multiples of 7"),
        (
            "gadi",
            {"mem_gb": 383},
            "memory: 383 GB per node exceeds the 382 GB for jobs of a gpuvolta node; use --mem-gb 382",
        ),
        (
            "gadi",
            {"nodes": 4, "walltime": "24:00:01"},
            "limit of 24:00:00 for 144-192 cores; use --walltime 24:00:00 or --nodes 2",
        ),
        (
            "gadi",
            {"nodes": 5, "walltime": "6h"},
            "walltime: 06:00:00 exceeds gpuvolta's limit of 05:00:00 for 240-960 cores",
        ),
        ("gadi", {"walltime": "49h"}, "walltime: 49:00:00 exceeds gpuvolta's limit of 48:00:00 for up to 96 cores"),
        ("jean-zay", {"partition": "a100", "walltime": "21h"}, "qos_gpu_a100-t3's limit of 20:00:00"),
        ("jean-zay", {"walltime": "101h"}, "limit of "),
        ("jean-zay", {"qos": "qos_gpu-dev", "walltime": "3h"}, "qos_gpu-dev's limit of 02:00:00; use --qos qos_gpu-t3"),
        ("jean-zay", {"qos": "qos_gpu-t5"}, "qos: partition v100 has no QoS 'qos_gpu-t5' (did you mean qos_gpu-t"),
        (
            "jean-zay",
            {"account": "abc"},
            "account: abc cannot be charged in v100, only accounts that end in @v100 or @gpu; use -A abc@v100",
        ),
        ("jean-zay", {"account": "abc@a100"}, "use -A abc@v100"),
        ("jean-zay", {"partition": "a10"}, "partition: site jean-zay has no partition 'a10' (did you mean a100?)"),
        ("jean-zay", {"job_name": "bash"}, "under the name bash Lightning ignores Slurm"),
        ("gadi", {"walltime": "2 days"}, "'2 days' is no walltime: write HH:MM:SS"),
        ("gadi", {"walltime": "48:00"}, "'48:00' is no walltime"),
        ("gadi", {"env": {"RANK": "0"}}, "--env RANK: the job sets it itself"),
        ("gadi", {"env": {"HPCLAUNCH_RUN_DIR": "/"}}, "--env HPCLAUNCH_RUN_DIR: the job sets it itself"),
        ("gadi", {"env": {"IFS": ","}}, "--env IFS: the job script's own shell uses it"),
        ("gadi", {"account": "ab12\n"}, "--account: expected one word"),
        ("gadi", {"job_name": "train\n"}, "--job-name: expected"),
        ("gadi", {"partition": "gpuhopper", "walltime": "1" + 400 * "0" + "h"}, "is no walltime"),
        ("local", {"max_attempts": 3}, "nothing limits the time on this machine"),
        ("jean-zay", {"max_attempts": 3, "walltime": "2m"}, "--warn-before 00:02:00 is not less than the walltime"),
        ("gadi", {"max_attempts": 2, "directive": ["-J 0-3"]}, "-J with --max-attempts: each job of the array"),
        ("gadi", {"directive": ["-l foo=1 # why"]}, "after the directive: qsub refuses it"),
        ("gadi", {"job_name": "a\nb"}, "--job-name: expected at most 230 letters, digits and ._+-"),
        ("gadi", {"job_name": "a/b"}, "--job-name: expected"),
        ("gadi", {"account": "ab12 -l x"}, "--account: expected one word"),
        ("gadi", {"setup": ["a\nb"]}, "--setup: expected one line of text"),
        ("gadi", {"directive": ["-l a=1\n-V"]}, "--directive: expected one line of text"),
    ],
)
def test_what_cannot_be_is_refused_with_what_would(name, asked, message):
    """A request that the site refuses or mishandles ends in the numbers and the way out."""
    assert message in refusals(name, **asked)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("gadi", {"nodes": 20, "walltime": "05:00:00"}),
        ("gadi", {"nodes": 4, "walltime": "24:00:00"}),
        ("gadi", {"nodes": 2, "walltime": "48:00:00"}),
        ("gadi", {"mem_gb": 382}),
        ("gadi", {"gpus_per_node": 1, "cpus_per_task": 12}),
        ("gadi", {"partition": "hugemembw", "cpus_per_task": 7}),
        ("jean-zay", {"gpus_per_node": 4, "tasks_per_node": 1}),
        ("jean-zay", {"nodes": 4, "walltime": "100:00:00"}),
        ("jean-zay", {"partition": "a100", "walltime": "20:00:00"}),
        ("jean-zay", {"qos": "qos_gpu-dev", "walltime": "2h", "nodes": 8}),
        ("jean-zay", {"account": "abc@gpu"}),
        ("jean-zay", {"max_attempts": 3, "walltime": "3m"}),
    ],
)
def test_a_value_at_its_limit_is_fine(name, asked):
    """What is just allowed goes through."""
    assert plan(name, **asked).world_size


def test_all_refusals_come_at_once():
    """Several mistakes are told in one go."""
    text = refusals("gadi", gpus_per_node=5, mem_gb=500, walltime="50h", env={"RANK": "1"})
    assert [line.split(":")[0] for line in text.splitlines()] == [
        "gpus",
        "cpus",
        "memory",
        "walltime",
        "env",
    ]


def test_unconfirmed_limits_only_warn():
    """Two nodes of gpuhopper, whose upper limit nobody has confirmed, are allowed with a warning."""
    assert any(
        "gpuhopper's limit of 48 cores" in warning for warning in plan("gadi", partition="gpuhopper", nodes=2).warnings
    )


def test_qos_follows_walltime_and_size():
    """A job beyond 20 hours gets the long QoS by itself; an ordinary one needs no directive."""
    qos = plan("jean-zay", walltime="30h").qos
    assert qos
    assert qos.name == "qos_gpu-t4"
    default = plan("jean-zay").qos
    assert default
    assert default.default


def test_a_job_that_no_qos_takes_is_told_what_each_allows():
    """Five nodes for 30 hours are too long for one QoS and too large for the other."""
    lines = refusals("jean-zay", walltime="30h", nodes=5).splitlines()
    assert [line.partition(" [")[0] for line in lines] == [
        "qos: walltime 30:00:00 exceeds qos_gpu-t3's limit of 20:00:00; use --walltime 20:00:00",
        "qos: 20 GPUs exceed qos_gpu-t4's limit of 16; use --nodes 4",
    ]


def test_missing_account_is_a_warning():
    """Without an account the script is still made, and the person told."""
    assert any("account: no account to charge" in warning for warning in plan("gadi").warnings)
    assert plan("gadi", account="ab12").warnings == []


@pytest.mark.parametrize(
    ("asked", "cost"),
    [
        ({}, "4 GPU-hours"),
        ({"gpus_per_node": 1}, "1 GPU-hours"),
        ({"gpus_per_node": 1, "cpus_per_task": 20}, "2 GPU-hours"),
        ({"nodes": 2, "gpus_per_node": 1}, "8 GPU-hours"),
        ({"partition": "gpu_p2", "gpus_per_node": 1, "cpus_per_task": 12}, "4 GPU-hours"),
        ({"partition": "cpu_p1", "nodes": 2, "walltime": "2h"}, "160 core-hours"),
    ],
)
def test_jean_zay_charges_whole_nodes_and_surplus_cpus(asked, cost):
    """A job on several nodes pays all their GPUs; half a node's cores pay half its GPUs."""
    assert str(plan("jean-zay", **asked).cost) == cost


def test_job_is_named_after_its_script():
    """The job's name is the script's, made fit for the scheduler."""
    assert plan("gadi").job_name == "train"
    assert plan("gadi", command=["./my model.sh"]).job_name == "my_model"
    assert plan("gadi", command=[]).job_name == "mnist"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("48:00:00", 172800),
        ("1-12:00:00", 129600),
        ("2h", 7200),
        ("90m", 5400),
        ("1h30m", 5400),
        ("1d", 86400),
        ("30s", 30),
    ],
)
def test_walltime_is_understood(text, seconds):
    """Walltimes are read as people write them."""
    assert walltime.parse(text) == seconds
    assert walltime.parse(walltime.clock(seconds)) == seconds


@pytest.mark.parametrize(
    "text", ["", "48:00", "1:60:00", "2 days", "1.5h", "-1:00:00", "00:00:00", "h", "1::2", "\u0661h"]
)
def test_what_is_no_walltime_is_refused(text):
    """What could mean two things means none."""
    with pytest.raises(ValueError, match="is no walltime"):
        walltime.parse(text)


def test_an_ambiguous_walltime_is_told_both_ways():
    """Minutes to the scheduler, hours to who typed it: `48:00` is refused with how to write either."""
    assert "it could be hours or minutes: write 48:00:00 or 00:48:00" in refusals("gadi", walltime="48:00")
    assert "write 04:30:00 or 00:04:30" in refusals("gadi", walltime="4:30")


def test_provenance_makes_the_same_request(cli):
    """The command in the script's header makes the same bytes, whatever characters the values have."""
    nasty = 'it\'s "q" $HOME `id` \\ é'
    words = ["--env", f"A={nasty}", "--setup", "echo 'x'", "--venv", "~/my env", "--directive", "-m abe"]
    plain = "--site gadi -N 2 -q gpuvolta -P ab12 -t 90m --env B=a=b -- python -c print(1)"
    words += [*plain.split(), nasty]
    first = cli("render", *words).stdout
    line = next(line for line in first.splitlines() if line.startswith("#   hpclaunch render "))
    again = cli(*shlex.split(line.removeprefix("#   hpclaunch "))).stdout
    assert again == first


@pytest.mark.parametrize("word", ["a\nb", "tab\there", "\x1b[0m", "quote'\n", "back\\slash\n", "é\n", "\udcff\n"])
def test_control_characters_stay_on_one_line(word):
    """A value with newlines is written on one line and comes out of bash unchanged."""
    quoted = quote(word)
    assert quoted.isprintable()
    shown = subprocess.run(["bash", "-c", f"printf %s {quoted}"], capture_output=True, check=True).stdout
    assert shown == word.encode(errors="surrogateescape")


def test_a_workload_is_a_command_with_a_name():
    """The plan says which bundled program runs, mnist where nothing is asked for, and none beside a command."""
    profile = search.load("gadi")
    assert make_plan(profile, make_request({"site": "gadi"})).workload == "mnist"
    chosen = make_plan(profile, make_request({"site": "gadi", "workload": "env"}))
    assert (chosen.workload, chosen.job_name, chosen.command[0]) == ("env", "env", "python")
    assert plan("gadi").workload is None
    assert "give a COMMAND or --workload env, not both" in refusals("gadi", workload="env")
    assert "-- python " in refusals("gadi", workload="env")


def test_no_modules_can_be_asked_for():
    """`--module none` loads none of the site's, and a job on Gadi need not be allowed to see where they lie."""
    job = plan("gadi", module=["none"])
    assert (job.modules, job.storage) == ([], [])
    assert plan("gadi").storage == ["gdata/dk92"]
    assert plan("jean-zay", partition="a100", account="abc@a100", module=["none"]).modules == ["arch/a100"]
