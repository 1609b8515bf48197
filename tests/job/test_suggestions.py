"""What refusals suggest: anyone who follows a suggestion is not refused for it, nor for anything else in its turn."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpclaunch.job.checks import Diagnostic
from hpclaunch.job.consider import consider
from hpclaunch.job.request import make_request
from hpclaunch.profile import search

# Limits that the shipped sites do not have: a least size, and hours that grow with the job's size.
ODD = """
title: Odd
scheduler: slurm
default_partition: many
multi_node: whole
partitions:
  many: {cores_per_node: 40, min_cores: 400}
  large: {cores_per_node: 40, max_cores: 3200, walltime: [{max_cores: 799, max_walltime: "01:00:00"},
    {max_cores: 3199, max_walltime: "10:00:00"}, {max_walltime: "02:00:00"}]}
  small: {cores_per_node: 16, max_cores: 24, core_step: 4, qos: [{name: short, max_walltime: "02:00:00", max_cores: 8}]}
  part: {cores_per_node: 8, gpus_per_node: 2, cpus_per_gpu: 4, min_cores: 12, core_step: 6}
"""


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    path = Path(tmp_path_factory.mktemp("sites"), "odd.yaml")
    path.write_text(ODD)
    return {name: search.load(name) for name in ("gadi", "jean-zay")} | {"odd": search.load(str(path))}


def followed(message: str) -> list[dict[str, Any]]:
    """Return what a message suggests, as a user reads it: `use --nodes 1 --gpus-per-node 3 or --qos x`."""
    suggestions = []
    for text in (
        message.rpartition("; use ")[2].split(" or ") if "; use -" in message or "; use no -" in message else ()
    ):
        words = re.findall(r"(no )?(--[a-z-]+|-A)(?: (\S+))?", text)
        names = {option: "account" if option == "-A" else option[2:].replace("-", "_") for _, option, _ in words}
        suggestions.append({names[option]: None if no else typed(value) for no, option, value in words})
    return suggestions


def typed(value: str) -> float | str:
    return float(value) if "." in value else int(value) if value.isdigit() else value


def findings(profile: search.Profile, asked: dict[str, Any]) -> list[Diagnostic]:
    return consider(profile, make_request({"command": ["true"], "account": "abc@v100", **asked}))[1]


def refused(found: list[Diagnostic]) -> set[tuple[str, str]]:
    return {(finding.check, finding.key) for finding in found if finding.refuses}


def follow_all(profile: search.Profile, asked: dict[str, Any]) -> int:
    """Follow every suggestion for a request; return how many there are."""
    found = findings(profile, asked)
    suggestions = [(finding, suggestion) for finding in found for suggestion in followed(finding.message)]
    for finding, suggestion in suggestions:
        after = findings(profile, asked | suggestion)
        assert (finding.check, finding.key) not in {(other.check, other.key) for other in after}, (
            asked,
            finding,
            suggestion,
        )
        new = {check for check, _ in refused(after) - refused(found)} - {check for check, _ in refused(found)}
        assert not new, (asked, finding, suggestion)
    return len(suggestions)


PLACES = [
    *(("odd", name) for name in ("many", "large", "small", "part")),
    *(("gadi", name) for name in ("gpuvolta", "dgxa100", "normal", "hugemembw", "megamembw", "copyq")),
    *(("jean-zay", name) for name in ("v100", "a100", "h100", "cpu_p1", "prepost")),
]
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "nodes": st.integers(1, 140),
        "walltime": st.sampled_from(["30m", "3h", "15h", "30h", "90h", "200h"]),
        "gpus_per_node": st.integers(0, 9),
        "tasks_per_node": st.integers(1, 12),
        "cpus_per_task": st.integers(1, 120),
        "mem_gb": st.integers(1, 4000),
        "jobfs_gb": st.integers(1, 3000),
        "max_cost": st.integers(0, 5000),
        "max_attempts": st.integers(1, 3),
        "qos": st.sampled_from(["qos_gpu-t4", "qos_gpu-dev", "qos_cpu-dev", "short"]),
        "account": st.sampled_from(["abc@a100", "abc@cpu"]),
    },
)


@given(place=st.sampled_from(PLACES), asked=REQUESTS)
def test_no_suggestion_is_refused_in_its_turn(profiles, place, asked):
    """Each option that a message says to use is taken: what it was said of is gone, and nothing else is refused."""
    follow_all(profiles[place[0]], asked | {"partition": place[1]})


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"partition": "many", "tasks_per_node": 20}, "minimum of 400 cores; use --nodes 10"),
        ({"partition": "large", "nodes": 10, "walltime": "9h"}, "use --walltime 01:00:00"),
        ({"partition": "large", "nodes": 80, "walltime": "9h"}, "use --walltime 02:00:00 or --nodes 79"),
        ({"partition": "small", "cpus_per_task": 10}, "multiples of 4; use --cpus-per-task 12"),
        ({"partition": "small", "nodes": 3, "walltime": "1h"}, "limit of 24 cores; use --nodes 1"),
        ({"partition": "part", "gpus_per_node": 1}, "minimum of 12"),
    ],
)
def test_the_suggestion_is_the_one_that_is_meant(profiles, asked, said):
    """A size that a node cannot have becomes nodes, and hours that only larger jobs get become a larger job."""
    found = findings(profiles["odd"], asked)
    assert [finding for finding in found if said in finding.message], found
    assert follow_all(profiles["odd"], asked) or "use" not in said
