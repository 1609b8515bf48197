"""What a job costs at most, how that comes about, and what a person allows it to cost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpclaunch.errors import RequestError
from hpclaunch.job.consider import consider, make_plan
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import make_request
from hpclaunch.profile import search
from hpclaunch.schedulers import walltime

FURTHER = Path(__file__).parents[1] / "sites" / "further"
PROFILES = {name: search.load(name) for name in ("gadi", "jean-zay", "local", "pbs")}
PROFILES |= {path.stem: search.load(str(path)) for path in FURTHER.glob("*.yaml")}
RENDER = ("render", "--site", "gadi", "-A", "ab12", "--nodes", "2", "--", "true")  # 288 SU


def plan(name: str, **asked) -> Plan:
    """Return the plan, whatever the site would refuse of it: also what is refused has a price."""
    made, _ = consider(PROFILES[name], make_request(asked))
    assert made
    return made


def recalculated(formula: str) -> float:
    """Do the formula's own sum."""
    text = re.sub(r"[\w. ]+ / \d+(?: GB)? = (?=\d+[,)])|\d+ GB in blocks of \d+ GB = ", "", formula)
    text = re.sub(r" (?:SU|GPU-hours|core-hours|node-hours|attempts|h|nodes?|cpus?|GPUs?|GB)\b", "", text)
    assert re.fullmatch(r"[\d.e+x/, max()]+", text), text
    return eval(re.sub(r"(?<!ma)x", "*", text))  # noqa: S307 - digits and signs alone, as the line above makes sure


# NCI's own examples ("Job costs", opus.nci.org.au pageId=236880942), five hours each.
@pytest.mark.parametrize(
    ("queue", "cpus", "gpus", "mem", "price"),
    [
        ("normal", 8, 0, 16, "80 SU = 2 SU x 5 h x max(8 cpus, 16 GB / 4 GB)"),
        ("normal", 8, 0, 128, "320 SU = 2 SU x 5 h x max(8 cpus, 128 GB / 4 GB)"),
        ("normal", 1, 0, 17, "50 SU = 2 SU x 5 h x max(1 cpu, 17 GB in blocks of 4 GB = 20 GB / 4 GB)"),
        ("normal", 8, 0, 192, "480 SU = 2 SU x 5 h x max(8 cpus, 192 GB / 4 GB)"),
        ("express", 8, 0, 16, "240 SU = 6 SU x 5 h x max(8 cpus, 16 GB / 4 GB)"),
        ("gpuvolta", 12, 1, 90, "180 SU = 3 SU x 5 h x max(12 cpus, 90 GB / 7.95833 GB)"),
        ("gpuvolta", 12, 1, 380, "716.23 SU = 3 SU x 5 h x max(12 cpus, 380 GB / 7.95833 GB)"),
    ],
)
def test_nci_examples_cost_what_nci_says(queue, cpus, gpus, mem, price):
    """A job asked for as in NCI's examples costs NCI's figure, memory by its blocks, and says how it comes about."""
    sizes = {"gpus_per_node": gpus, "tasks_per_node": gpus} if gpus else {"tasks_per_node": 1, "cpus_per_task": cpus}
    made = plan("gadi", partition=queue, mem_gb=mem, walltime="5h", **sizes)
    assert made.cpus_per_node == cpus
    assert made.cost and made.cost.explained == price


@pytest.mark.parametrize(
    ("queue", "price"),
    [("gpuvolta", "36 SU"), ("dgxa100", "72 SU"), ("gpuhopper", "90 SU")],
)
def test_an_hour_of_a_gpu_costs_its_cores(queue, price):
    """A GPU of Gadi costs for an hour what the cores do that come with it, with its share of memory."""
    assert str(plan("gadi", partition=queue, tasks_per_node=1, walltime="1h").cost) == price


@pytest.mark.parametrize(
    ("queue", "rate"),
    [
        *(("normal", 2), ("express", 6), ("normalbw", 1.25), ("expressbw", 3.75), ("normalsl", 1.5), ("normalsr", 2)),
        *(("expresssr", 6), ("hugemem", 3), ("hugemembw", 1.25), ("megamem", 5), ("megamembw", 1.25)),
        *(("gpuvolta", 3), ("dgxa100", 4.5), ("gpuhopper", 7.5)),
    ],
)
def test_a_whole_node_costs_its_cores(queue, rate):
    """A node of a Gadi queue, as it is asked for by default, costs its rate for each core and hour."""
    made = plan("gadi", partition=queue, walltime="1h")
    assert made.cost and made.cost.amount == rate * (made.partition.cores_per_node or 0)


JEAN_ZAY = [
    # partition, what is asked for, the price of two hours
    ("v100", {"gpus_per_node": 1, "cpus_per_task": 10}, "2 GPU-hours = 2 h x max(1 GPU, 10 cpus / 10)"),
    ("v100", {"gpus_per_node": 1, "cpus_per_task": 11}, "4 GPU-hours = 2 h x max(1 GPU, 11 cpus / 10 = 2)"),
    ("v100", {"gpus_per_node": 1, "cpus_per_task": 20}, "4 GPU-hours = 2 h x max(1 GPU, 20 cpus / 10)"),
    ("v100", {"gpus_per_node": 1, "cpus_per_task": 30}, "6 GPU-hours = 2 h x max(1 GPU, 30 cpus / 10)"),
    ("gpu_p2", {"gpus_per_node": 1, "cpus_per_task": 3}, "2 GPU-hours = 2 h x max(1 GPU, 3 cpus / 3)"),
    ("gpu_p2", {"gpus_per_node": 1, "cpus_per_task": 12}, "8 GPU-hours = 2 h x max(1 GPU, 12 cpus / 3)"),
    ("a100", {"gpus_per_node": 1, "cpus_per_task": 32}, "8 GPU-hours = 2 h x max(1 GPU, 32 cpus / 8)"),
    ("h100", {"gpus_per_node": 1, "cpus_per_task": 24}, "2 GPU-hours = 2 h x max(1 GPU, 24 cpus / 24)"),
    ("h100", {"gpus_per_node": 1, "cpus_per_task": 48}, "4 GPU-hours = 2 h x max(1 GPU, 48 cpus / 24)"),
    ("v100", {"nodes": 2}, "16 GPU-hours = 2 h x max(8 GPUs, 80 cpus / 10)"),
    ("v100", {"nodes": 2, "gpus_per_node": 1}, "16 GPU-hours = 2 h x max(8 GPUs, 80 cpus / 10)"),
    ("gpu_p2", {"nodes": 2, "gpus_per_node": 2}, "32 GPU-hours = 2 h x max(16 GPUs, 48 cpus / 3)"),
    ("a100", {"nodes": 2, "gpus_per_node": 4}, "32 GPU-hours = 2 h x max(16 GPUs, 128 cpus / 8)"),
    ("h100", {"nodes": 3}, "24 GPU-hours = 2 h x max(12 GPUs, 288 cpus / 24)"),
    ("cpu_p1", {"tasks_per_node": 1, "cpus_per_task": 4}, "8 core-hours = 2 h x 4 cpus"),
    ("cpu_p1", {"nodes": 2, "tasks_per_node": 1, "cpus_per_task": 4}, "160 core-hours = 2 h x 80 cpus"),
    ("v100", {"max_attempts": 5}, "40 GPU-hours = 5 attempts x 2 h x max(4 GPUs, 40 cpus / 10)"),
]


@pytest.mark.parametrize(("partition", "asked", "price"), JEAN_ZAY)
def test_jean_zay_counts_gpus_as_idris_does(partition, asked, price):
    """A surplus of cores counts as GPUs, half the cores as 2 of 4 or 4 of 8; several nodes are charged whole."""
    sizes = {"tasks_per_node": 1} if asked.get("gpus_per_node") == 1 and "nodes" not in asked else {}
    made = plan("jean-zay", partition=partition, walltime="2h", **sizes, **asked)
    assert made.cost and made.cost.explained == price


def test_attempts_are_all_paid_for():
    """A job that may go on five times costs at most five walltimes."""
    made = plan("gadi", nodes=2, walltime="24h", max_attempts=5)
    assert made.cost and made.cost.explained == (
        "34,560 SU = 3 SU x 5 attempts x 24 h x max(96 cpus, 760 GB / 7.95833 GB)"
    )


SIZES = st.fixed_dictionaries(
    {"nodes": st.integers(1, 30), "walltime": st.integers(60, 400_000).map(lambda seconds: f"{seconds}s")},
    optional={
        "gpus_per_node": st.integers(0, 8),
        "tasks_per_node": st.integers(1, 16),
        "cpus_per_task": st.integers(1, 96),
        "mem_gb": st.integers(1, 3000),
        "max_attempts": st.integers(1, 9),
    },
)
PLACES = st.sampled_from([(name, partition) for name, p in PROFILES.items() for partition in p.site.partitions])


@given(place=PLACES, sizes=SIZES)
def test_the_formula_gives_the_price(place, sizes):
    """Whoever does the formula's sum by hand gets the price that is named."""
    name, partition = place
    cost = plan(name, partition=partition, **sizes).cost
    if cost:
        assert recalculated(cost.formula) == pytest.approx(cost.amount, rel=1e-4, abs=0.01)


@given(place=PLACES, sizes=SIZES, share=st.floats(0.0001, 1.5))
def test_what_a_refusal_advises_is_allowed(place, sizes, share):
    """The walltime and the --max-cost that a refusal names are accepted, and neither was before."""
    name, partition = place
    made = plan(name, partition=partition, **sizes)
    most = round((made.cost.amount if made.cost else 1) * share, 2)
    asked = {"partition": partition, **sizes, "max_cost": most}
    found = max_cost_findings(name, **asked)
    assert bool(found) == (made.cost is not None and made.cost.amount > most)
    for message in found:
        advice = dict(re.findall(r"--(walltime|max-cost) ([\d.:]+)", message))
        for option, value in advice.items():
            better = asked | {option.replace("-", "_"): float(value) if option == "max-cost" else value}
            assert not max_cost_findings(name, **better)


def max_cost_findings(name: str, **asked) -> list[str]:
    """Return what --max-cost refuses."""
    _, findings = consider(PROFILES[name], make_request(asked))
    return [str(finding) for finding in findings if finding.check == "max-cost" and finding.refuses]


def test_price_is_told_on_stderr_and_in_the_script(cli):
    """The price stands in the summary and in the script's second line; a partition that is free says so."""
    result = cli(*RENDER)
    assert ", walltime 01:00:00, at most 288 SU\n" in result.stderr
    assert result.stdout.splitlines()[1].endswith(", walltime 01:00:00, at most 288 SU")
    free = cli("render", "--site", "jean-zay", "-p", "prepost", "-A", "abc@cpu", "--", "true")
    assert free.stdout.splitlines()[1].endswith(", walltime 01:00:00, free of charge")
    assert "free" not in cli("render", "--site", "local", "--", "true").stderr
    unsure = cli("render", "--site", "gadi", "-q", "copyq", "-A", "ab12", "--", "true")
    assert unsure.stdout.splitlines()[1].endswith(", walltime 01:00:00, at most 2 SU (not confirmed)")
    assert "at most" not in cli("render", "--site", "pbs", "--", "true").stderr


def test_max_cost_refuses_what_may_cost_more(cli):
    """Above --max-cost nothing is rendered: the message has the numbers, the unit, and what would be right."""
    result = cli(*RENDER[:-2], "--max-cost", "287.99", "--", "true")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(
        "hpclaunch: max-cost: the job may cost "
        "288 SU = 3 SU x 1 h x max(96 cpus, 760 GB / 7.95833 GB), "
        "above the limit of 287.99 SU; use --walltime 00:59:00 or --max-cost 288 ["
    )
    assert re.search(r"gadi\.yaml:\d+\]\n$", result.stderr)
    assert "use --max-cost 288" in cli(*RENDER[:-2], "--max-cost", "1", "--", "true").stderr
    fits = cli(*RENDER[:-2], "--max-cost", "288", "--", "true")
    assert (fits.exit_code, fits.stdout) == (0, cli(*RENDER).stdout)


def test_max_cost_comes_from_the_environment_and_the_config_file_too(cli, work, monkeypatch):
    """HPCLAUNCH_MAX_COST and `max_cost:` limit every job; the command line wins."""
    (work / "hpclaunch.yaml").write_text("max_cost: 100\n")
    assert cli(*RENDER).exit_code == 1
    monkeypatch.setenv("HPCLAUNCH_MAX_COST", "1000")
    assert cli(*RENDER).exit_code == 0
    assert cli(*RENDER[:-2], "--max-cost", "200", "--", "true").exit_code == 1
    assert cli(*RENDER[:-2], "--max-cost", "200", "--force", "max-cost", "--", "true").exit_code == 0


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "x", "1e400"])
def test_max_cost_is_a_price(cli, value):
    """What is no price is refused, and does not allow everything."""
    result = cli(*RENDER[:-2], "--max-cost", value, "--", "true")
    assert result.exit_code in (1, 2) and "--max-cost" in result.stderr


def test_a_price_that_is_not_sure_is_limited_all_the_same(cli):
    """A person's limit holds where the price itself is unconfirmed; below it they are told that it is."""
    words = ("render", "--site", "gadi", "-A", "ab12", "-q", "normalbw", "--max-cost")
    above = cli(*words, "30", "--", "true")
    assert above.exit_code == 1 and "35 SU" in above.stderr and "a price that is not confirmed" in above.stderr
    below = cli(*words, "40", "--", "true")
    assert below.exit_code == 0 and "35 SU fits the limit of 40 SU, but the price is not confirmed" in below.stderr


def test_max_cost_promises_nothing_where_the_price_is_not_known(cli):
    """A site without prices is warned of in words; one that is free is not."""
    unknown = cli("render", "--site", "pbs", "--max-cost", "10", "--", "true")
    assert unknown.exit_code == 0
    assert "warning: max-cost: the limit of 10 cannot be checked: the price of partition workq of pbs" in unknown.stderr
    for words in (("jean-zay", "-p", "prepost", "-A", "abc@cpu"), ("local",)):
        assert "warning" not in cli("render", "--site", *words, "--max-cost", "0", "--", "true").stderr


def test_nothing_but_what_is_free_costs_nothing(cli):
    """--max-cost 0 lets through what is free and nothing else."""
    assert cli(*RENDER[:-2], "--max-cost", "0", "--", "true").exit_code == 1
    with pytest.raises(RequestError, match="--max-cost 4"):
        make_plan(PROFILES["jean-zay"], make_request({"account": "abc@v100", "max_cost": 0}))


def test_a_partition_is_free_or_has_a_charge(cli, work):
    """A profile that says both is told where."""
    (work / "mine.yaml").write_text("extends: gadi\npartitions:\n  normal:\n    free: true\n")
    result = cli("site", "check", "mine.yaml")
    assert result.exit_code == 1
    assert result.stderr == "hpclaunch: mine.yaml:4: partitions.normal.free: has a charge: leave one of them out\n"


def test_walltimes_of_the_formula_are_hours():
    """An hour and a half is 1.5 h; 20 minutes are 0.333333 h."""
    assert "x 1.5 h x" in plan("gadi", walltime="90m").cost.formula
    assert "x 0.333333 h x" in plan("gadi", walltime=walltime.clock(1200)).cost.formula
