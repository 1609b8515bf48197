"""`hpclaunch site test`: a profile does what it says, a shipped one and anybody's own."""

from __future__ import annotations

import json

import pytest
from conftest import SHIPPED

from hpclaunch.doctor.conformance import conform, rehearse
from hpclaunch.profile import search

FILES = sorted(SHIPPED.glob("*.yaml"))


@pytest.mark.job
@pytest.mark.shipped
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_shipped_profile_does_what_it_says(path, work):
    """Its numbers have sources, each partition renders with each launcher, limits hold, documented prices are right."""
    results = list(conform(search.load(str(path))))
    assert [str(result) for result in results if result.verdict != "ok"] == []
    assert len(results) > len(search.load(str(path)).site.partitions)


@pytest.mark.slow
@pytest.mark.shipped
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_two_nodes_of_every_shipped_site_train(path, work):
    """The site's own script, rehearsed here, trains on two nodes."""
    result = rehearse(search.load(str(path)))
    assert (result.verdict, result.message) == ("ok", "two nodes trained")


@pytest.mark.slow
def test_a_rehearsal_is_one_line_more(cli, work):
    """With --rehearse the command says last whether two nodes trained."""
    result = cli("site", "test", "slurm", "--rehearse")
    assert result.exit_code == 0, result.stdout
    assert result.stdout.splitlines()[-1].split() == ["ok", "rehearsal", "two", "nodes", "trained"]


@pytest.mark.job
def test_what_is_wrong_with_a_profile_is_a_line_and_an_exit_code(cli, work):
    """Setup that is no shell, a wrong price, a partition that no job fits; a missing source is only a warning."""
    (work / "mine.yaml").write_text("""\
extends: gadi
title: Mine
setup: ["if true"]
home_gb: 5
default_partition: small
examples:
  - {request: {partition: small, walltime: 1h}, price: 17}
  - {request: {partition: small, cpus_per_task: 1, walltime: 2h}, price: 6}
partitions:
  small: {cores_per_node: 8, walltime: [{max_walltime: "04:00:00"}], charge: {unit: SU, per: core, rate: 3}}
  never: {cores_per_node: 8, min_cores: 16, max_cores: 17, core_step: 5}
""")
    result = cli("site", "test", "./mine.yaml", "--json")
    assert result.exit_code == 1
    found = [(row["verdict"], row["check"], row["message"]) for row in json.loads(result.stdout)]

    def said(verdict: str, check: str, text: str) -> bool:
        return any(row[:2] == (verdict, check) and text in row[2] for row in found)

    assert said("warning", "sources", "none for home_gb (line 4), examples (line 6), small (line 10), never (line 11)")
    assert said("problem", "partition gpuvolta", "syntax error")  # the first of those with the same program
    assert said("problem", "price", "24 SU = 3 SU x 1 h x 8 cpus; documented: 17")
    assert said("ok", "price", "6 SU = 3 SU x 2 h x 1 cpu; documented: 6")
    assert said("problem", "partition never", "size: ")
    assert "problem  partition never" in cli("site", "test", "./mine.yaml").stdout


@pytest.mark.job
def test_a_template_that_drops_a_directive_is_found(cli, work):
    """What a template of one's own does not ask for is named with the number."""
    (work / "templates").mkdir()
    (work / "templates" / "gadi.sh.j2").write_text(
        '{% extends "builtin/gadi.sh.j2" %}{% block resources %}\n#PBS -l ncpus=48{% endblock %}'
    )
    result = cli("site", "test", "gadi")
    assert result.exit_code == 1
    assert "GPUs: none in the script, 4 in the plan" in result.stdout
