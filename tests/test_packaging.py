"""What is installed, and that it works away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import hpclaunch

ROOT = Path(__file__).parents[1]
INFO = ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT], check=True, capture_output=True
    )
    (path,) = folder.glob("*.whl")
    return path


def test_wheel_holds_exactly_these_files(wheel):
    """The package, the templates, the profiles: nothing is missing and nothing is along by accident."""
    folders = ("hpclaunch", "templates", "site_profiles")
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [name if name.startswith("hpclaunch/") else f"hpclaunch/{name}" for name in listed.stdout.splitlines()]
    info = f"hpclaunch-{hpclaunch.__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        assert sorted(archive.namelist()) == sorted(files + [f"{info}/{name}" for name in INFO])


def test_installed_wheel_renders_outside_the_checkout(wheel, tmp_path):
    """An installed hpclaunch finds its templates and profiles, and names its own workload."""
    place = tmp_path / "installed"
    install = ["install", "--quiet", "--no-deps", "--no-index", "--target", place, wheel]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, capture_output=True)
    run = subprocess.run(
        [sys.executable, "-m", "hpclaunch", "render", "--site", "gadi", "--nodes", "2"],
        env=os.environ | {"PYTHONPATH": str(place)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "#PBS -l ncpus=96" in run.stdout
    assert f"command=(python {place}/hpclaunch/workloads/mnist.py)" in run.stdout


def test_editable_install_uses_the_checkouts_files():
    """In the checkout, templates and profiles are the ones at its top, with no copy inside the package."""
    assert not (ROOT / "hpclaunch" / "templates").exists()
    assert not (ROOT / "hpclaunch" / "site_profiles").exists()


def test_run_time_dependencies_are_few():
    """Installing the command line takes seconds: five small packages, torch and Lightning only on demand."""
    from importlib.metadata import requires

    needed = {line.split(">")[0] for line in requires("hpclaunch") or [] if "extra" not in line}
    assert needed == {"click", "jinja2", "msgspec", "pyyaml", "submitit"}
