"""Scaling studies, as users make and read them."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest
from conftest import call

from hpclaunch.runs import groups

pytestmark = pytest.mark.usefixtures("plots")
# Its throughput follows Amdahl's law with a serial fraction of 0.1; FAIL names a world size that fails.
TRAIN = """
import json, os, sys
n = int(os.environ["WORLD_SIZE"])
if str(n) == os.environ.get("FAIL"):
    sys.exit(3)
if os.environ["RANK"] == "0":
    rate = 100 / (0.1 + 0.9 / n)
    print("step 1: 1 img/s", f"step 2: {2 * rate} img/s", sep="\\n", flush=True)
    with open(os.environ["HPCLAUNCH_RUN_DIR"] + "/metrics.json", "w") as file:
        json.dump({"samples_per_second": rate, "samples_per_epoch": 1000}, file)
"""
LOCAL = ("scale", "-s", "local", "--tasks-per-node", "1", "--quiet")
GADI = ("scale", "-s", "gadi", "-P", "ab12", "--storage", "scratch/ab12", "-t", "1h")
COMMAND = ("--", "python", "train.py")


@pytest.fixture(autouse=True)
def train(work):
    (work / "train.py").write_text(TRAIN)


@pytest.mark.job
def test_a_study_on_this_machine(cli, monkeypatch):
    """Its jobs run one after the other; a table, a CSV and the picture come of it, of several studies one picture."""
    study = call(*LOCAL, "-N", "4,1,2", *COMMAND).strip()
    assert [one.values for one in groups.find(study)[0].elements] == [{"nodes": n} for n in (1, 2, 4)]
    call("wait", study)
    (found,) = json.loads(call("scale", study, "--json"))
    assert [size["nodes"] for size in found["sizes"]] == [1, 2, 4]
    assert found["serial_fraction"] == pytest.approx(0.1)
    assert (found["left_out"], found["cheapest"], found["fastest"]) == ({}, 1, 2)
    with Path("scaling.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["study"], row["nodes"], float(row["epoch_seconds"])) for row in rows] == [
        (study, "1", 10), (study, "2", 5.5), (study, "4", 3.25)
    ]  # fmt: skip
    assert Path("scaling.png").read_bytes().startswith(b"\x89PNG")
    assert "local here, strong scaling, Amdahl's law with a serial fraction of 10 %" in Path("scaling.svg").read_text()

    monkeypatch.setenv("FAIL", "2")
    metric = r"(\S+) img/s"
    weak = json.loads(call(*LOCAL, "--json", "-N", "1,2", "--weak", "--metric", metric, *COMMAND))
    assert [one["values"] for one in weak["elements"]] == [{"nodes": 1}, {"nodes": 2}]
    call("wait", weak["id"], code=3)
    Path("scaling.png").unlink()
    result = cli("scale", study, weak["id"])
    assert (result.exit_code, "2 nodes: FAILED" in result.stderr) == (0, True)
    table = [line.split() for line in result.stdout.splitlines()]
    assert ["2", "2", "181.8", "1.82", "91", "%", "5.5", "s", "-"] in [line[:-1] for line in table]
    assert ["1", "1", "200.0", "1.00", "100", "%", "5.0", "s", "-"] in [line[:-1] for line in table]
    assert "local here, weak scaling, " in Path("scaling.svg").read_text()
    Path("scaling.png").unlink()
    for module in ("matplotlib", "matplotlib.figure", "hpclaunch.runs.scaling.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    result = cli("scale", "--metric", "step (2)")
    assert (result.exit_code, "pip install 'hpclaunch[plot]'" in result.stderr) == (0, True)
    assert " 2.0 " in result.stdout and not Path("scaling.png").exists()
    assert "weak scaling" in result.stdout
    assert "strong scaling" in cli("scale", "--strong", weak["id"]).stdout


def test_all_sizes_are_priced_and_checked_first(cli):
    """The price of all is shown, --max-cost is for all, and nothing is submitted if the site refuses a size."""
    result = cli(*GADI, "-N", "1,2", "--dry-run", *COMMAND)
    assert (result.exit_code, result.stdout.count("#PBS -l ncpus=48")) == (0, 1)
    prices = [line.split("at most ")[1] for line in result.stderr.splitlines() if "at most" in line]
    assert prices == ["144 SU", "288 SU", "432 SU"]
    result = cli(*GADI, "-N", "1,2", "--max-cost", "400", *COMMAND)
    assert (result.exit_code, "432 SU = 144 SU + 288 SU, above the limit of 400" in result.stderr) == (1, True)
    result = cli(*GADI, "-N", "1,2000", *COMMAND)
    assert (result.exit_code, "nodes" in result.stderr) == (1, True)
    assert groups.newest_first() == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-N", "1,x", "--", "true"), "'1,x' is no list of numbers; use 1,2,4"),
        (("-N", "0", "--", "true"), "use 1,2,4"),
        (("-N", "1,", "--", "true"), "use 1,2,4"),
        (("-N", "1", "--metric", "(", "--", "true"), "'(' is no regular expression"),
        (("nothing", "--json"), "no scaling study nothing; use: hpclaunch scale --nodes 1,2,4 -- COMMAND"),
        ((), "use: hpclaunch scale --nodes 1,2,4 -- COMMAND"),
        (("python", "train.py"), "no scaling study python or train.py"),
    ],
)
def test_mistakes_are_named(cli, words, message):
    """What is wrong is said before anything is submitted."""
    result = cli("scale", *words)
    assert result.exit_code in (1, 2)
    assert message in result.stderr


def test_the_command_needs_no_matplotlib_and_no_torch(cli, monkeypatch):
    """Only a picture does: the options are there without."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "--weak / --strong" in cli("scale", "--help").stdout


def test_a_study_on_pbs(qsub):
    """It is a job for each size, and an epoch has its price."""
    qsub()
    words = ("-s", "gadi-here", "-q", "normal", "-t", "1h", "--cpus-per-task", "48", "--launcher", "tasks")
    study = call("scale", *words, "-N", "1,2,4", *COMMAND).strip()
    call("wait", study)
    (found,) = json.loads(call("scale", "--json"))
    assert (found["id"], found["place"], found["unit"]) == (study, "gadi-here normal", "SU")
    # 48 cores of each node at 2 SU an hour, for 10 s of which a tenth is serial.
    prices = [pytest.approx(2 * 48 * n * (1 + 9 / n) / 3600) for n in (1, 2, 4)]
    assert [size["epoch_price"] for size in found["sizes"]] == prices
