"""The scripts that sites get, byte for byte; `make golden` writes them anew, and somebody reads the diff."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from conftest import SHIPPED

from hpclaunch.errors import RequestError
from hpclaunch.job.consider import make_plan
from hpclaunch.job.render import render
from hpclaunch.job.request import make_request
from hpclaunch.profile import search
from hpclaunch.profile.types import LAUNCHERS

GOLDEN = Path(__file__).parents[1] / "golden"
GADI = "--site gadi --partition gpuvolta --account ab12"
JEAN_ZAY = "--site jean-zay --partition v100 --account abc@v100"
LOCAL = "--site local --partition here --tasks-per-node 2"
ENVIRONMENT = "--venv '~/my torch' --env A='b c' --env WANDB_API_KEY --setup 'ulimit -c 0'"
STAGE = "--stage-in data/train.tar --stage-out checkpoints"

# From every launcher the partition that a site is known by; then, once, whatever else changes a script.
SCRIPTS = {
    f"{name}-{nodes}-{launcher}": f"{words} --nodes {nodes} --launcher {launcher}"
    for name, words in (("gadi-gpuvolta", GADI), ("jean-zay-v100", JEAN_ZAY), ("local-here", LOCAL))
    for nodes in (1, 2)
    for launcher in LAUNCHERS
} | {
    "gadi-attempts": f"{GADI} --nodes 2 --max-attempts 3",
    "gadi-environment": f"{GADI} {ENVIRONMENT}",
    "gadi-container": f"{GADI} --nodes 2 --launcher torchrun --container /g/data/cd34/torch.sif {STAGE}",
    "gadi-spares": f"{GADI} --nodes 2 --launcher torchrun --spares 1 --max-attempts 3",
    "jean-zay-array": f"{JEAN_ZAY} --directive=--array=1-10%2",
    "jean-zay-attempts": f"{JEAN_ZAY} --nodes 2 --max-attempts 3",
    "jean-zay-container": f"{JEAN_ZAY} --nodes 2 --container '$SINGULARITY_ALLOWED_DIR/torch.sif' {STAGE}",
    "jean-zay-environment": f"{JEAN_ZAY} {ENVIRONMENT}",
    "jean-zay-range": f"{JEAN_ZAY} --nodes 2:4 --launcher torchrun --max-restarts 3 --min-nodes 2",
    "pbs": "--site pbs --nodes 2 --gpus-per-node 4 --cpus-per-task 12",
    "slurm": "--site slurm --nodes 2 --gpus-per-node 4 --cpus-per-task 12",
}
SITES = ("gadi", "jean-zay")


def as_reviewed(made: str, name: str, request) -> None:
    """Compare with the golden file, or write it."""
    if request.config.getoption("--update-golden"):
        (GOLDEN / name).write_text(made)
    assert made == (GOLDEN / name).read_text()


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_is_as_reviewed(cli, request, name):
    """Users get the very script that was reviewed."""
    result = cli("render", "--quiet", *shlex.split(SCRIPTS[name]), "--", "python", "train.py", "--epochs", "3")
    assert result.exit_code == 0, result.stderr
    as_reviewed(result.stdout, f"{name}.sh", request)


@pytest.mark.shipped
@pytest.mark.parametrize("site", SITES)
def test_directives_of_every_partition_are_as_reviewed(request, site):
    """Two nodes of each partition of a shipped site: the summary with the price, directives and modules."""
    profile = search.load(str(SHIPPED / f"{site}.yaml"))
    made = ""
    for name, partition in profile.site.partitions.items():
        account = f"abc{(partition.account_suffixes or [''])[0]}"
        asked = {"partition": name, "account": account, "command": ["true"]}
        try:
            plan = make_plan(profile, make_request(asked | {"nodes": 2}))
        except RequestError:  # it has one node
            plan = make_plan(profile, make_request(asked))
        lines = render(plan)[0].splitlines()
        made += "\n".join([lines[1], *(line for line in lines if re.match("#PBS|#SBATCH|module ", line))]) + "\n\n"
    as_reviewed(made, f"{site}.txt", request)


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("*.sh")), ids=lambda path: path.stem)
def test_script_is_sound_shell(golden):
    """Each script is bash without a mistake, and its directives precede the first command."""
    checked = subprocess.run(["bash", "-n", golden], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    lines = golden.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.strip() and not line.startswith("#"))
    directives = [i for i, line in enumerate(lines) if re.match("#(PBS|SBATCH|LOCAL) ", line)]
    assert all(i < first for i in directives)
    assert bool(directives) != golden.stem.startswith("local")


def test_no_golden_is_left_over():
    """Every golden file belongs to a case."""
    assert {path.name for path in GOLDEN.iterdir()} == {f"{name}.sh" for name in SCRIPTS} | {f"{s}.txt" for s in SITES}
