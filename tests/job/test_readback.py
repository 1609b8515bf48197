"""Templates that people wrote: their scripts are read back, and ask for what the plan says."""

from __future__ import annotations

import pytest

from hpclaunch.job.consider import consider
from hpclaunch.job.plan import Plan
from hpclaunch.job.readback import differences
from hpclaunch.job.render import render
from hpclaunch.job.request import make_request
from hpclaunch.profile import search

PARTITIONS = [(name, own) for name in ("gadi", "jean-zay", "pbs", "slurm") for own in search.load(name).site.partitions]
ASKED = [
    {},
    {"nodes": 2, "launcher": "torchrun"},
    {"nodes": 2, "cpus_per_task": 3, "mem_gb": 7},
    {"gpus_per_node": 1, "max_attempts": 3},
]
# What a script may do without: names, the job's own output, and folders that the script itself goes to.
IDLE = ("#PBS -N ", "#PBS -l wd", "#PBS -l place", "#PBS -r ", "#SBATCH --job-name", "#SBATCH --output")


def planned(name: str, **asked: object) -> Plan:
    plan, _ = consider(search.load(name), make_request({"site": name, "command": ["true"], **asked}))
    assert plan
    return plan


@pytest.mark.parametrize(("name", "partition"), PARTITIONS)
def test_every_shipped_script_asks_for_its_plan(name, partition):
    """Read back, a script of the shipped templates asks for every number of its plan, on one node and on two."""
    for asked in ASKED:
        plan = planned(name, partition=partition, account="ab12", **asked)
        assert list(differences(plan, render(plan)[0])) == []


@pytest.mark.parametrize(("name", "partition"), [("gadi", "gpuvolta"), ("jean-zay", "h100"), ("pbs", "workq")])
def test_a_directive_that_is_missing_is_noticed(name, partition):
    """Whichever directive a script loses, but for its names and output, reading it back tells what is missing."""
    asked = {"qos": "qos_gpu_h100-t4"} if name == "jean-zay" else {"directive": ["-m abe"]}
    plan = planned(name, partition=partition, nodes=2, gpus_per_node=4, account="ab12", mem_gb=100, **asked)
    script, _ = render(plan)
    lines = [line for line in script.splitlines() if line.startswith(("#PBS", "#SBATCH")) and not line.startswith(IDLE)]
    assert len(lines) >= 5
    for line in lines:
        assert list(differences(plan, script.replace(f"{line}\n", ""))), line


def test_a_template_of_ones_own_is_read_back(cli, work):
    """A template that drops a line of the shipped one refuses with the number, the plan's and the file."""
    words = ("--site", "gadi", "-A", "ab12", "--nodes", "2", "--", "true")
    (work / "templates").mkdir()
    path = work / "templates" / "gadi.sh.j2"
    path.write_text('{% extends "builtin/gadi.sh.j2" %}{% block resources %}{{ super() }}\n#PBS -m e{% endblock %}')
    assert "\n#PBS -m e\n" in cli("render", *words).stdout
    path.write_text('{% extends "builtin/gadi.sh.j2" %}{% block resources %}\n#PBS -l ncpus=48,mem=760GB{% endblock %}')
    result = cli("submit", *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[:2] == [
        "hpclaunch: templates/gadi.sh.j2: cpus: 48 in the script, 96 in the plan",
        "hpclaunch: templates/gadi.sh.j2: GPUs: none in the script, 8 in the plan",
    ]
    assert "#PBS -l ncpus=48,mem=760GB\n" in cli("render", "--force", "repeated", *words).stdout
