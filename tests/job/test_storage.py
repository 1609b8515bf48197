"""The file systems that a job on Gadi must name are found by themselves."""

from __future__ import annotations

import re
import shlex

import pytest

from hpclaunch.job.consider import make_plan
from hpclaunch.job.machine import follow_links
from hpclaunch.job.request import make_request
from hpclaunch.job.storage import named_by
from hpclaunch.profile import search


def storage(**asked: object) -> list[str]:
    return make_plan(search.load("gadi"), make_request({"site": "gadi", "account": "ab12", **asked})).storage


def test_a_job_names_what_its_profile_needs():
    """The modules' own file system is named once, though path and profile both lead there."""
    assert storage() == ["gdata/dk92"]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"command": ["python", "/g/data/cd34/train.py"]}, ["gdata/cd34"]),
        ({"command": ["python", "t.py", "--data=/g/data/wb00/x"]}, ["gdata/wb00"]),
        ({"command": ["python", "t.py", "--out", "/scratch/cd34/x"]}, ["scratch/cd34"]),
        ({"command": ["python", "t.py", "--out", "/scratch/ab12/x"]}, []),
        ({"command": ["bash", "-c", "cd /g/data/cd34 && python /g/data/ef56/t.py"]}, ["gdata/cd34", "gdata/ef56"]),
        ({"venv": "/g/data/cd34/envs/x"}, ["gdata/cd34"]),
        ({"env": {"PYTHONPATH": "/g/data/cd34/lib:/scratch/ef56/lib"}}, ["gdata/cd34", "scratch/ef56"]),
        ({"env": {"MNIST_DIR": "/g/data/wb00/mnist"}}, ["gdata/wb00"]),
        ({"setup": ["source /g/data/cd34/setup.sh"]}, ["gdata/cd34"]),
        ({"storage": ["gdata/cd34", "/g/data/ef56"]}, ["gdata/cd34", "gdata/ef56"]),
        ({"storage": ["gdata/cd34"], "command": ["cat", "/g/data/cd34/x"]}, ["gdata/cd34"]),
        ({"command": ["python", "t.py", "data/g/data/cd34", "/home/x/scratch/y", "~/scratch/z", "../g/data/x"]}, []),
    ],
)
def test_every_path_names_its_file_system(asked, named):
    """A path below /g/data or /scratch is found wherever it stands, and the charged project's own scratch is not."""
    assert storage(**({"command": ["python", "t.py"]} | asked)) == ["gdata/dk92", *named]


def test_the_profiles_own_paths_count():
    """Data folders, module folders and lines of shell of a profile are paths that the job touches."""
    gadi = search.load("gadi").site
    assert named_by(gadi, "ab12", gadi.module_paths) == ["gdata/dk92"]


def test_a_site_without_roots_names_none():
    """Where nothing need be named, nothing is."""
    assert named_by(search.load("jean-zay").site, None, ["/g/data/cd34"]) == []


@pytest.fixture
def on_gadi(tmp_path, work):
    """A site whose /g/data and /scratch are folders of this test, with data behind a link."""
    for name in ("g/data/cd34/set", "scratch/ef56/run", "scratch/ab12"):
        (tmp_path / name).mkdir(parents=True)
    (work / "data").symlink_to(tmp_path / "g/data/cd34/set")
    (work / "site_profiles").mkdir()
    (work / "site_profiles" / "here.yaml").write_text(
        f"extends: gadi\ntitle: Here\nstorage_roots: {{/g/data: null, /scratch: null, {tmp_path}/g/data: gdata, "
        f"{tmp_path}/scratch: scratch}}\n"
    )
    return ("--site", "here", "-A", "ab12")


def named(script: str) -> str:
    found = re.search(r"^#PBS -l storage=(.*)$", script, re.MULTILINE)
    assert found
    return found[1]


@pytest.mark.parametrize(
    "words", [("--data", "data"), ("--data=data/train",), ("./data/new/file",), ("x", "--p=a:data")]
)
def test_a_link_is_followed(cli, on_gadi, words):
    """A path is named by where it leads, however the command spells it."""
    assert named(cli("render", *on_gadi, "--", "python", *words).stdout) == "gdata/dk92+gdata/cd34"


def test_the_working_folder_counts(cli, on_gadi, work, tmp_path, monkeypatch):
    """A job starts where it was submitted, so that folder's file system is named too."""
    monkeypatch.setenv("HPCLAUNCH_PATH", str(work))
    monkeypatch.chdir(tmp_path / "scratch/ef56/run")
    assert named(cli("render", *on_gadi, "--", "true").stdout) == "gdata/dk92+scratch/ef56"
    monkeypatch.chdir(tmp_path / "scratch/ab12")
    assert named(cli("render", *on_gadi, "--", "true").stdout) == "gdata/dk92"


def test_the_script_is_the_same_where_there_is_no_link(cli, on_gadi, work):
    """The command in the script's head names what was found behind links, so it makes the same bytes anywhere."""
    first = cli("render", *on_gadi, "--", "python", "data/x.py").stdout
    assert "--storage gdata/cd34" in first
    (work / "data").unlink()
    line = next(line for line in first.splitlines() if line.startswith("#   hpclaunch render "))
    assert cli(*shlex.split(line.removeprefix("#   hpclaunch "))).stdout == first


def test_a_link_out_of_the_home_folder_is_no_home(cli, tmp_path):
    """An environment behind a link in the home folder is not said to fill it; one that lies there is."""
    (tmp_path / "large").mkdir()
    (tmp_path / "home" / "envs").symlink_to(tmp_path / "large")
    words = ("check", "--site", "jean-zay", "-A", "abc@v100", "--venv")
    assert "home:" not in cli(*words, "~/envs", "--", "true").stdout
    assert "warning  home: --venv ~/other lies in the home folder" in cli(*words, "~/other", "--", "true").stdout
    inside = str(tmp_path / "home" / "other")
    assert f"warning  home: --venv {inside} lies in" in cli(*words, inside, "--", "true").stdout


@pytest.mark.parametrize(("name", "links"), [("local", {}), ("pbs", {}), ("gadi", {".": "~/project"})])
def test_paths_are_looked_up_only_where_a_site_wants_to_know(tmp_path, monkeypatch, name, links):
    """Whoever plans a job, the command line or a program, no path is followed for a site that asks for none."""
    (tmp_path / "home" / "project").mkdir()
    monkeypatch.chdir(tmp_path / "home" / "project")
    assert follow_links(search.load(name).site, make_request({"site": name})).machine.links == links


def test_odd_words_are_no_trouble(cli, on_gadi):
    """Words that are no paths, or paths in a loop, are passed on as they are."""
    from pathlib import Path

    Path("loop").symlink_to("loop")
    words = ("loop/x", "~nobody/x", "a" * 5000, "https://x/g/data/y", "a\nb/c", "=", "::", "data\x01")
    assert cli("render", *on_gadi, "--", "python", *words).exit_code == 0
