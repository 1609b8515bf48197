"""Site packs: profiles and templates that an installed package brings."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpclaunch import paths

PROFILE = """\
title: My University
scheduler: slurm
template: university
hostnames: [uni-login*]
checked: 2026-11-22
default_partition: gpu
allocation: {command: [echo, "left: 5 GPU-hours"], remaining: left}
partitions:
  gpu: {cores_per_node: 64, gpus_per_node: 4, max_cores: 128, unconfirmed: [max_cores]}
"""
TEMPLATE = (
    '{% extends "builtin/slurm.sh.j2" %}{% block before_environment %}\n# As the university wants it.\n{% endblock %}'
)
PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "my-university-hpclaunch"
version = "1"
[project.entry-points."hpclaunch.sites"]
university = "university_pack"
[tool.hatch.build.targets.wheel]
packages = ["university_pack"]
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """Build the distribution of a university and install it into a folder."""
    source, folder = tmp_path_factory.mktemp("pack"), tmp_path_factory.mktemp("site-packages")
    package = source / "university_pack"
    files = {
        source / "pyproject.toml": PROJECT,
        package / "__init__.py": "raise SystemExit('a pack is never imported')\n",
        package / "site_profiles" / "university.yaml": PROFILE,
        package / "site_profiles" / "gadi.yaml": "title: not the shipped one\n",
        package / "templates" / "university.sh.j2": TEMPLATE,
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    install = ("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", folder, source)
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, capture_output=True)
    return folder


@pytest.fixture
def pack(installed, work, monkeypatch):
    """Make the installed distribution importable."""
    monkeypatch.syspath_prepend(str(installed))
    paths.packs.cache_clear()
    yield installed
    paths.packs.cache_clear()


def test_a_pack_brings_profiles_and_templates(cli, pack):
    """Its site is listed with its distribution, renders with its template, and is named as not shipped."""
    rows = {row["name"]: row for row in json.loads(cli("site", "list", "--json").stdout)}
    assert rows["university"]["pack"] == "my-university-hpclaunch"
    assert rows["gadi"]["pack"] is None and rows["gadi"]["title"] == "NCI Gadi"
    line = next(line for line in cli("site", "list").stdout.splitlines() if line.startswith("university"))
    assert re.search("slurm +1 +2026-11-22 +93 % +My University; my-university-hpclaunch, ", line)
    result = cli("render", "--site", "university", "--nodes", "2", "--", "true")
    assert result.exit_code == 0, result.stderr
    assert "# As the university wants it.\n" in result.stdout
    assert "not shipped with hpclaunch: " in result.stderr and "university.yaml" in result.stderr


def test_a_pack_knows_its_login_nodes_and_is_trusted(cli, pack, monkeypatch):
    """On its login node --site need not be given; what its profile names may run, as with a profile of one's own."""
    monkeypatch.setattr("socket.gethostname", lambda: "uni-login1")
    assert "university gpu: 1 node" in cli("render", "--", "true").stderr
    assert paths.is_trusted(pack / "university_pack" / "site_profiles" / "university.yaml")


def test_a_shipped_site_is_found_without_looking_for_packs(cli, work, monkeypatch):
    """Start-up does not pay for packs: what is nearer is found first, with its template."""
    monkeypatch.setattr(paths, "packs", lambda: pytest.fail("looked for packs"))
    assert cli("render", "--site", "gadi", "-A", "ab12", "--", "true").exit_code == 0
    monkeypatch.setattr("socket.gethostname", lambda: "gadi-login-01")
    assert cli("render", "-A", "ab12", "--", "true").exit_code == 0


def test_a_broken_entry_point_breaks_nothing(cli, work, tmp_path, monkeypatch):
    """An entry point whose package is gone is left out."""
    metadata = tmp_path / "gone-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: gone\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[hpclaunch.sites]\na = not.there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    paths.packs.cache_clear()
    assert cli("site", "list").exit_code == 0
    paths.packs.cache_clear()
