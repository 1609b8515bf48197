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
FILES = [
    "hpclaunch/__init__.py",
    "hpclaunch/__main__.py",
    "hpclaunch/allocation.py",
    "hpclaunch/causes.py",
    "hpclaunch/checks/__init__.py",
    "hpclaunch/checks/command.py",
    "hpclaunch/checks/directives.py",
    "hpclaunch/checks/downloads.py",
    "hpclaunch/checks/finding.py",
    "hpclaunch/checks/limits.py",
    "hpclaunch/checks/memory.py",
    "hpclaunch/checks/price.py",
    "hpclaunch/checks/sizes.py",
    "hpclaunch/checks/suggestions.py",
    "hpclaunch/checks/words.py",
    "hpclaunch/cli/__init__.py",
    "hpclaunch/cli/check.py",
    "hpclaunch/cli/compare.py",
    "hpclaunch/cli/check_script.py",
    "hpclaunch/cli/completion.py",
    "hpclaunch/cli/explain.py",
    "hpclaunch/cli/foreign.py",
    "hpclaunch/cli/doctor.py",
    "hpclaunch/cli/echo.py",
    "hpclaunch/cli/job.py",
    "hpclaunch/cli/options.py",
    "hpclaunch/cli/price.py",
    "hpclaunch/cli/runs.py",
    "hpclaunch/cli/site.py",
    "hpclaunch/cli/submit.py",
    "hpclaunch/cli/workload.py",
    "hpclaunch/compare.py",
    "hpclaunch/cost.py",
    "hpclaunch/detect/__init__.py",
    "hpclaunch/detect/draft.py",
    "hpclaunch/detect/machine.py",
    "hpclaunch/detect/pbs.py",
    "hpclaunch/detect/pbs_limits.py",
    "hpclaunch/detect/slurm.py",
    "hpclaunch/detect/slurm_limits.py",
    "hpclaunch/doctor/__init__.py",
    "hpclaunch/doctor/environment.py",
    "hpclaunch/doctor/folders.py",
    "hpclaunch/doctor/scheduler.py",
    "hpclaunch/errors.py",
    "hpclaunch/executors/__init__.py",
    "hpclaunch/executors/environment.py",
    "hpclaunch/executors/parameters.py",
    "hpclaunch/executors/pbs.py",
    "hpclaunch/executors/script.py",
    "hpclaunch/executors/slurm.py",
    "hpclaunch/explain/__init__.py",
    "hpclaunch/explain/fields.py",
    "hpclaunch/explain/origin.py",
    "hpclaunch/explain/said.py",
    "hpclaunch/explain/sizes.py",
    "hpclaunch/explain/trace.py",
    "hpclaunch/fold.py",
    "hpclaunch/grant.py",
    "hpclaunch/links.py",
    "hpclaunch/logs.py",
    "hpclaunch/paths.py",
    "hpclaunch/plan.py",
    "hpclaunch/program.py",
    "hpclaunch/py.typed",
    "hpclaunch/rehearsal/__init__.py",
    "hpclaunch/rehearsal/module.py",
    "hpclaunch/rehearsal/mpirun.py",
    "hpclaunch/rehearsal/pbs/__init__.py",
    "hpclaunch/rehearsal/pbs/attributes.py",
    "hpclaunch/rehearsal/pbs/demux.py",
    "hpclaunch/rehearsal/pbs/directives.py",
    "hpclaunch/rehearsal/pbs/environment.py",
    "hpclaunch/rehearsal/pbs/mom.py",
    "hpclaunch/rehearsal/pbs/nodes.py",
    "hpclaunch/rehearsal/pbs/output.py",
    "hpclaunch/rehearsal/pbs/pbsdsh.py",
    "hpclaunch/rehearsal/pbs/processes.py",
    "hpclaunch/rehearsal/pbs/qdel.py",
    "hpclaunch/rehearsal/pbs/qsig.py",
    "hpclaunch/rehearsal/pbs/qstat.py",
    "hpclaunch/rehearsal/pbs/qsub.py",
    "hpclaunch/rehearsal/pbs/refusal.py",
    "hpclaunch/rehearsal/pbs/resources.py",
    "hpclaunch/rehearsal/pbs/scheduler.py",
    "hpclaunch/rehearsal/pbs/server.py",
    "hpclaunch/rehearsal/pbs/settings.py",
    "hpclaunch/rehearsal/pbs/start.py",
    "hpclaunch/rehearsal/programs.py",
    "hpclaunch/rehearsal/slurm/__init__.py",
    "hpclaunch/rehearsal/slurm/environment.py",
    "hpclaunch/rehearsal/slurm/scontrol.py",
    "hpclaunch/rehearsal/slurm/srun.py",
    "hpclaunch/rehearse.py",
    "hpclaunch/render.py",
    "hpclaunch/request.py",
    "hpclaunch/run.py",
    "hpclaunch/runs.py",
    "hpclaunch/schedulers/__init__.py",
    "hpclaunch/schedulers/command.py",
    "hpclaunch/schedulers/local.py",
    "hpclaunch/schedulers/pbs.py",
    "hpclaunch/schedulers/slurm.py",
    "hpclaunch/script/__init__.py",
    "hpclaunch/script/around.py",
    "hpclaunch/script/asked.py",
    "hpclaunch/script/asked_pbs.py",
    "hpclaunch/script/asked_slurm.py",
    "hpclaunch/script/body_traps.py",
    "hpclaunch/script/choose.py",
    "hpclaunch/script/complete.py",
    "hpclaunch/script/directive_traps.py",
    "hpclaunch/script/directives.py",
    "hpclaunch/script/examine.py",
    "hpclaunch/script/launch.py",
    "hpclaunch/script/lexer.py",
    "hpclaunch/script/own.py",
    "hpclaunch/script/pbs_traps.py",
    "hpclaunch/script/program.py",
    "hpclaunch/script/readback.py",
    "hpclaunch/script/remark.py",
    "hpclaunch/script/rewrite.py",
    "hpclaunch/script/same.py",
    "hpclaunch/script/setup.py",
    "hpclaunch/script/shell.py",
    "hpclaunch/script/tables.py",
    "hpclaunch/script/traps.py",
    "hpclaunch/script/values.py",
    "hpclaunch/sense.py",
    "hpclaunch/site.py",
    "hpclaunch/site_profiles/gadi.yaml",
    "hpclaunch/site_profiles/jean-zay.yaml",
    "hpclaunch/site_profiles/local.yaml",
    "hpclaunch/site_profiles/pbs.yaml",
    "hpclaunch/site_profiles/site.schema.json",
    "hpclaunch/site_profiles/slurm.yaml",
    "hpclaunch/storage.py",
    "hpclaunch/submit.py",
    "hpclaunch/templates/base.sh.j2",
    "hpclaunch/templates/gadi.sh.j2",
    "hpclaunch/templates/launch/lightning.sh.j2",
    "hpclaunch/templates/launch/mpirun.sh.j2",
    "hpclaunch/templates/launch/tasks.sh.j2",
    "hpclaunch/templates/launch/torchrun.sh.j2",
    "hpclaunch/templates/local.sh.j2",
    "hpclaunch/templates/nodes.sh.j2",
    "hpclaunch/templates/pbs.sh.j2",
    "hpclaunch/templates/slurm.sh.j2",
    "hpclaunch/walltime.py",
    "hpclaunch/watch.py",
    "hpclaunch/why.py",
    "hpclaunch/workloads/__init__.py",
    "hpclaunch/workloads/allreduce.py",
    "hpclaunch/workloads/digits.py",
    "hpclaunch/workloads/env.py",
    "hpclaunch/workloads/layout.py",
    "hpclaunch/workloads/mnist.py",
    "hpclaunch/workloads/report.py",
    "hpclaunch/yamlfile.py",
]
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
    info = f"hpclaunch-{hpclaunch.__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        assert sorted(archive.namelist()) == sorted(FILES + [f"{info}/{name}" for name in INFO])


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
