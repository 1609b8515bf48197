"""The same job at several places, side by side."""

from __future__ import annotations

import json
import re

import pytest

from hpclaunch.job import compare
from hpclaunch.job.consider import consider
from hpclaunch.job.request import make_request
from hpclaunch.profile import search

BOTH = ("compare", "--site", "gadi", "--site", "jean-zay")
TWO_NODES = """\
          gadi gpuvolta                                          jean-zay v100
fits      yes                                                    yes
node      2x 24-core Cascade Lake, 4x V100                       4x V100 of 16 or 32 GB, whichever is free first
nodes     2                                                      2
GPUs      8 x NVIDIA V100-SXM2 32 GB                             8 x NVIDIA V100 SXM2 16 or 32 GB
ranks     8                                                      8
cpus      96                                                     80
memory    760 GB                                                 320 GB
walltime  10:00:00                                               10:00:00
longest   48:00:00                                               100:00:00
QoS                                                              qos_gpu-t3
price     at most 2,880 SU                                       at most 80 GPU-hours
because   3 SU x 10 h x max(96 cpus, 760 GB / 7.95833 GB)        10 h x max(8 GPUs, 80 cpus / 10)
GPU-hour  36 SU                                                  1 GPU-hours
waiting   the SU of the whole walltime are set aside when a job  a project that is ahead of its allocation gets a
            is queued; while the project has too few, it waits     lower priority; 25 % beyond it, its jobs are
                                                                   blocked
options   --site gadi --nodes 2 --partition gpuvolta             --site jean-zay --nodes 2 --partition v100
"""


def told(cli, *words: str, code: int = 0) -> dict[str, dict]:
    """Return what `compare --json` says of each place."""
    result = cli("compare", "--json", *words)
    assert result.exit_code == code, result.stderr
    return {f"{one['site']} {one['partition']}": one for one in json.loads(result.stdout)}


def test_two_sites_stand_side_by_side(cli, monkeypatch):
    """Size, limits, price and what makes jobs wait, a column for each site; the job fits, so the exit code is 0."""
    monkeypatch.setenv("COLUMNS", "120")
    result = cli(*BOTH, "--nodes", "2", "-t", "10h", "--", "true")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == TWO_NODES


def test_refusals_are_in_their_column(cli):
    """A place that refuses says why, in the words of render, and its numbers all the same; one that fits is enough."""
    places = told(
        cli, "-s", "gadi", "-s", "jean-zay", "-p", "gpuvolta", "-p", "jean-zay:a100", "-t", "30h", "--", "true"
    )
    assert [(name, one["fits"]) for name, one in places.items()] == [("gadi gpuvolta", True), ("jean-zay a100", False)]
    assert "qos_gpu_a100-t3's limit of 20:00:00" in places["jean-zay a100"]["refusals"][0]
    assert (places["jean-zay a100"]["longest_walltime"], places["jean-zay a100"]["gpus"]) == ("20:00:00", 8)
    text = cli("compare", "-p", "jean-zay:a100", "-t", "30h", "--", "true")
    assert text.exit_code == 1
    assert re.search(r"^refused +qos: walltime 30:00:00 exceeds", text.stdout, re.MULTILINE)


def test_it_fits_nowhere(cli):
    """Where no place takes the job, the exit code is 1."""
    places = told(cli, *BOTH[1:], "-t", "500h", "--", "true", code=1)
    assert not any(one["fits"] for one in places.values())


@pytest.mark.parametrize(
    ("gpus", "sizes"),
    [
        (1, {"gadi gpuvolta": (1, 1), "jean-zay v100": (1, 1), "jean-zay a100": (1, 1)}),
        (4, {"gadi gpuvolta": (1, 4), "jean-zay v100": (1, 4), "jean-zay a100": (1, 4)}),
        (8, {"gadi gpuvolta": (2, 8), "jean-zay v100": (2, 8), "jean-zay a100": (1, 8)}),
        (16, {"gadi gpuvolta": (4, 16), "jean-zay v100": (4, 16), "jean-zay a100": (2, 16)}),
        (12, {"gadi gpuvolta": (3, 12), "jean-zay v100": (3, 12), "jean-zay a100": None}),
    ],
)
def test_gpus_choose_the_nodes_of_each_place(cli, gpus, sizes):
    """--gpus 8 is two nodes of four and one of eight, and the options that are named ask for just that."""
    names = [name.replace(" ", ":") for name in sizes]
    places = told(cli, *(word for name in names for word in ("-p", name)), "--gpus", str(gpus), "--", "true")
    for name, size in sizes.items():
        if size is None:
            assert places[name]["refusals"] == [
                "gpus: 12 GPUs do not fill nodes of partition a100, 8 GPUs each; use --gpus 8 or 16"
            ]
            continue
        assert (places[name]["nodes"], places[name]["gpus"]) == size
        script = cli("render", *places[name]["options"].split(), "--", "true").stdout
        total = re.search(r"ngpus=(\d+)", script) or re.search(r"--gres=gpu:(\d+)", script)
        assert total and int(total[1]) * (1 if "ngpus" in script else size[0]) == gpus


def test_gpus_and_ranks_go_together(cli):
    """Fewer ranks than GPUs on a node are the person's choice; the GPUs that are asked for stay."""
    place = told(cli, "-p", "gadi:gpuvolta", "--gpus", "4", "--tasks-per-node", "4", "--", "true")["gadi gpuvolta"]
    assert (place["gpus"], place["ranks"]) == (4, 4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-p", "gadi:normal"), "gpus: a node of partition normal has none"),
        (("-s", "local"), "gpus: a node of partition here has none"),
        (("-s", "pbs", "-p", "x"), "gpus: the GPUs of a node of partition x are not known"),
    ],
)
def test_gpus_that_no_node_has(cli, words, said):
    """A place without GPUs, or of which nothing is known, says so."""
    (place,) = told(cli, *words, "--gpus", "4", "--", "true", code=1).values()
    assert place["refusals"][0].startswith(said)


@pytest.mark.parametrize("words", [("--nodes", "2"), ("--gpus-per-node", "2")])
def test_gpus_exclude_the_nodes(cli, words):
    """--gpus with --nodes is a contradiction; nodes from the config file give way."""
    result = cli("compare", "-p", "gadi:gpuvolta", "--gpus", "4", *words, "--", "true")
    assert result.exit_code == 2 and "--gpus excludes --nodes and --gpus-per-node" in result.stderr


def test_partitions_are_looked_for_at_each_site(cli):
    """A partition is compared where there is one; a site that has none of those named says so in its column."""
    places = told(cli, *BOTH[1:], "-p", "gpu_p5", "-p", "cpu", "--", "true")
    assert list(places) == ["gadi gpu_p5", "jean-zay a100", "jean-zay cpu_p1"]
    assert places["gadi gpu_p5"]["refusals"][0].startswith("partition: site gadi has no partition 'gpu_p5'")
    nowhere = cli(*BOTH, "-p", "gpuvolt", "-p", "v100", "--", "true")
    assert nowhere.exit_code == 1
    assert nowhere.stderr == ("hpclaunch: gadi and jean-zay: no partition 'gpuvolt' (did you mean gpuvolta?)\n")


def test_a_site_alone_is_compared_with_itself(cli):
    """One site and no partition: those with GPUs where the default one has some, each once."""
    assert list(told(cli, "-s", "gadi", "--", "true")) == ["gadi gpuvolta", "gadi dgxa100", "gadi gpuhopper"]
    assert list(told(cli, "-s", "local", "--", "true")) == ["local here"]
    assert list(told(cli, "-s", "jean-zay", "-p", "gpu_p13", "-p", "v100", "--", "true")) == ["jean-zay v100"]


def test_prices_that_are_none(cli, monkeypatch):
    """What is free and what nobody knows are told apart."""
    monkeypatch.setenv("COLUMNS", "120")
    words = ("-p", "jean-zay:prepost", "-p", "pbs:workq", "-p", "gadi:copyq")
    text = cli("compare", *words, "--", "true").stdout
    assert re.search(
        r"^price +not known +at most 2 SU \(not confirmed\)$", text.replace("free of charge", ""), re.MULTILINE
    )
    assert re.search(r"^price +free of charge ", text, re.MULTILINE)


def test_whom_to_charge_is_no_difference(cli):
    """Without an account no column warns of that; one that is given is checked at each site."""
    assert not any(one["warnings"] for one in told(cli, *BOTH[1:], "--", "true").values())
    places = told(cli, *BOTH[1:], "-A", "abc@v100", "--", "true")
    assert [one["fits"] for one in places.values()] == [True, True]
    places = told(cli, *BOTH[1:], "-A", "ab12", "--", "true")
    assert [one["fits"] for one in places.values()] == [True, False]


def test_settings_of_one_site_do_not_count_at_others(cli, work, monkeypatch):
    """A config file or environment written for one site's account and partition does not spoil a comparison of two."""
    (work / "hpclaunch.yaml").write_text("site: gadi\naccount: ab12\npartition: gpuvolta\nnodes: 2\nmodule: [mine]\n")
    places = told(cli, "-s", "gadi", "-s", "jean-zay", "-p", "gpuvolta", "-p", "v100", "--", "true")
    assert [(one["fits"], one["nodes"]) for one in places.values()] == [(True, 2), (True, 2)]
    assert list(told(cli, "-p", "gpuvolta", "-p", "normal", "--", "true")) == ["gadi gpuvolta", "gadi normal"]
    assert list(told(cli, "--", "true")) == ["gadi gpuvolta"]
    monkeypatch.setenv("HPCLAUNCH_SITE", "gadi jean-zay")
    monkeypatch.setenv("HPCLAUNCH_PARTITION", "normal cpu_p1")
    assert list(told(cli, "--", "true")) == ["gadi normal", "jean-zay cpu_p1"]


def test_sites_that_are_typed_are_not_asked_for_a_configs_partition(cli, work, monkeypatch):
    """A partition from further away than the sites belongs to others: each site is compared by its own."""
    (work / "hpclaunch.yaml").write_text("site: jean-zay\npartition: a100\n")
    places = told(cli, *BOTH[1:], "--", "true")
    assert [(name, one["fits"]) for name, one in places.items()] == [("gadi gpuvolta", True), ("jean-zay v100", True)]
    assert list(told(cli, "-s", "gadi", "--", "true")) == ["gadi gpuvolta", "gadi dgxa100", "gadi gpuhopper"]
    assert list(told(cli, "-s", "jean-zay", "-p", "a100", "--", "true")) == ["jean-zay a100"]
    monkeypatch.setenv("HPCLAUNCH_SITE", "gadi pbs")
    assert list(told(cli, "--", "true")) == ["gadi gpuvolta", "pbs workq"]


def test_max_cost_counts_in_each_sites_unit(cli):
    """--max-cost refuses in a column where that site's figure is above it."""
    places = told(cli, *BOTH[1:], "--nodes", "2", "--max-cost", "100", "--", "true")
    assert [one["fits"] for one in places.values()] == [False, True]
    assert places["gadi gpuvolta"]["refusals"][0].startswith("max-cost: the job may cost 288 SU")


def test_scripts_are_told_apart(cli):
    """--diff shows how the others' scripts differ from the first's; with --json there are the scripts themselves."""
    text = cli("compare", "-p", "gadi:gpuvolta", "-p", "gadi:normal", "--diff", "--", "true").stdout
    assert "\n--- gadi gpuvolta\n+++ gadi normal\n@@ " in text
    assert "\n-#PBS -q gpuvolta\n+#PBS -q normal\n" in text
    assert "\n---" not in cli("compare", "-p", "gadi:gpuvolta", "--diff", "--", "true").stdout
    places = told(cli, "-p", "gadi:normal", "-p", "jean-zay:a100", "-t", "30h", "--diff", "--", "true")
    assert places["jean-zay a100"]["script"] is None
    asked = places["gadi normal"]["options"].split()
    assert places["gadi normal"]["script"].count("#PBS -q normal") == 1
    assert (
        cli("render", *asked, "-t", "30h", "--", "true").stdout.splitlines()[4:]
        == (places["gadi normal"]["script"].splitlines()[4:])
    )


def test_words_and_files_of_sites(cli, work):
    """A profile's file is a site too, alone or before a partition."""
    (work / "mine.yaml").write_text("extends: gadi\ntitle: Mine\n")
    assert list(told(cli, "-s", "./mine.yaml", "-p", "normal", "--", "true")) == ["mine normal"]
    assert list(told(cli, "-p", "./mine.yaml:normal", "-p", "gadi:normal", "--", "true")) == [
        "mine normal",
        "gadi normal",
    ]
    missing = cli("compare", "-s", "gadii", "--", "true")
    assert missing.exit_code == 1 and "did you mean gadi?" in missing.stderr


@pytest.mark.parametrize("columns", ["1", "40", "80", "200"])
def test_the_table_fits_the_terminal(cli, monkeypatch, columns):
    """Columns that do not fit beside the others stand below them; nothing runs over the edge."""
    monkeypatch.setenv("COLUMNS", columns)
    text = cli("compare", "-s", "jean-zay", "-t", "30h", "--", "true").stdout
    assert all(len(line) <= max(int(columns), 40) for line in text.splitlines())
    assert all(text.count(name) >= 1 for name in ("gpu_p2l", "h100"))


@pytest.mark.parametrize(
    ("name", "asked", "longest"),
    [
        ("gadi", {"nodes": 1}, 48),
        ("gadi", {"nodes": 3}, 24),
        ("gadi", {"nodes": 5}, 5),
        ("gadi", {"partition": "normal", "nodes": 14}, 48),
        ("gadi", {"partition": "normal", "nodes": 15}, 24),
        ("jean-zay", {"nodes": 4}, 100),
        ("jean-zay", {"nodes": 5}, 20),
        ("jean-zay", {"nodes": 4, "qos": "qos_gpu-dev"}, 2),
        ("jean-zay", {"partition": "prepost"}, 20),
        ("jean-zay", {"partition": "cpu_p1", "nodes": 5}, 20),
        ("pbs", {}, None),
    ],
)
def test_the_longest_walltime_is_that_of_the_size(name, asked, longest):
    """The limit is the tier's or the QoS's that a job of this size may have."""
    plan, _ = consider(search.load(name), make_request(asked))
    assert plan
    found = compare.longest(plan)
    assert found == (longest and longest * 3600)


@pytest.mark.parametrize(("tier", "longest"), [("10", 10), ("30", 20)])
def test_the_stricter_of_partition_and_qos_counts(work, tier, longest):
    """Where a partition has a limit and its QoS have theirs, a job must keep both."""
    text = f"extends: jean-zay\npartitions:\n  v100:\n    walltime: [{{max_walltime: '{tier}:00:00'}}]\n"
    (work / "mine.yaml").write_text(text)
    plan, _ = consider(search.load("./mine.yaml"), make_request({"nodes": 5}))
    assert plan and compare.longest(plan) == longest * 3600


def test_help_has_the_options_of_a_request(cli):
    """What render takes, compare takes too."""
    options = set(re.findall(r"--[a-z-]+", cli("render", "--help").stdout)) - {"--output", "--quiet", "--explain"}
    assert options <= set(re.findall(r"--[a-z-]+", cli("compare", "--help").stdout))


def test_completion_offers_the_partitions_of_all_sites(cli, monkeypatch):
    """The shell completes partitions of the sites that are named."""
    monkeypatch.setenv("COMP_WORDS", "hpclaunch compare -s gadi -s jean-zay -p gpu")
    monkeypatch.setenv("COMP_CWORD", "7")
    monkeypatch.setenv("_HPCLAUNCH_COMPLETE", "bash_complete")
    said = cli().stdout
    assert "gpuvolta" in said and "gpu_p13" in said
