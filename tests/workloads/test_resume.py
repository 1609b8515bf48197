"""hpclaunch.lightning: a training that is killed again and again ends with the same weights; others do so too."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import slow

from hpclaunch import paths

RESUME = paths.MODULES["resume"]
PROGRAMS = Path(__file__).parent / "programs"
CLI = ("fit", "--trainer.max_epochs=5", "--trainer.accelerator=cpu", "--seed_everything=2", "--model.width=12")
QUIET = ("--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false")


def equal_after_kills(kills: int, ranks: int, *words: object, until: int = 0, **variables: str) -> None:
    """Train once whole and once with kills; the last line, which shows the weights, must be the same."""
    path = os.pathsep.join([str(PROGRAMS), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONPATH": path} | variables
    command = [sys.executable, PROGRAMS / "attempts.py", kills, ranks, until or 80 // kills // ranks + 1, *words]
    run = subprocess.run([*map(str, command)], env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(run.stdout)
    logs = "".join(path.read_text()[-2000:] for path in Path("killed").glob("rank-*.log"))
    assert found["killed"]["last"] == found["whole"]["last"] == [0] * ranks, logs
    assert set(found["killed"]["codes"][:-1]) == {-9 if variables.get("KIND") == "slow" else 75}
    assert len(found["killed"]["codes"]) > kills * 2 // 3  # the last may have come after the end
    assert found["whole"]["end"].startswith("weights ")
    assert found["killed"]["end"] == found["whole"]["end"], logs


@pytest.mark.parametrize(
    ("kind", "ranks", "kills"), [("", 1, 3), slow("accumulate", 2, 3), slow("", 1, 20), slow("", 2, 20)]
)
def test_a_killed_training_ends_with_the_same_weights(kind, ranks, kills):
    """Shuffling, dropout, random augmentation, schedules and validations: as if nobody had killed it."""
    equal_after_kills(kills, ranks, PROGRAMS / "plain.py", KIND=kind)


@pytest.mark.slow
def test_a_kill_while_saving_leaves_the_last_save():
    """Killed hard, in the middle of slow saves too, it goes on from the last whole one."""
    equal_after_kills(10, 1, PROGRAMS / "plain.py", KIND="slow", until=12)
    assert [path.suffix for path in Path("killed").glob("resume-*")] == [".ckpt"]


KINDS = ("stream", "stateful", "sized", "combined", "workers", "manual", "reload", "max_steps", "early")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_other_trainings_go_on_too(kind):
    """Iterable data, loaders with a state or of several, two optimizers by hand, limits, and early stopping."""
    equal_after_kills(5, 1, PROGRAMS / "plain.py", KIND=kind, until=8)


STYLES = {
    "with_cli": (*CLI, *QUIET),
    "with_hydra": ("hydra.run.dir=outputs",),
    "with_fabric": (),
    "with_accelerate": (),
}


@pytest.mark.parametrize("style", ["with_fabric", slow("with_accelerate"), slow("with_cli"), slow("with_hydra")])
@pytest.mark.parametrize("kills", [3, slow(20)])
def test_programs_in_the_style_of_others(style, kills):
    """LightningCLI and Hydra need two lines; Fabric and accelerate keep the contract in their own loop."""
    library = {"with_cli": "jsonargparse", "with_hydra": "hydra", "with_accelerate": "accelerate"}
    pytest.importorskip(library.get(style, "torch"))
    preload = " ".join((library.get(style, "torch"), "lightning_fabric"))
    equal_after_kills(kills, 1, PROGRAMS / f"{style}.py", *STYLES[style], PRELOAD=preload)


@pytest.mark.parametrize(("ranks", "kills"), [(2, 3), slow(1, 20)])
def test_the_loop_of_the_docs(work, ranks, kills):
    """The plain torch program of docs/continuing.md is complete, and is as exact."""
    blocks = re.findall(r"```python\n(.*?)```", (RESUME.parents[2] / "docs" / "continuing.md").read_text(), re.DOTALL)
    (work / "loop.py").write_text(blocks[-1])
    equal_after_kills(kills, ranks, "loop.py", until=30)


WRONG = """
import os
from pytorch_lightning import LightningModule, Trainer
from hpclaunch.lightning import SaveAndLeave, trainer_places
class Model(LightningModule):
    training_step = configure_optimizers = lambda *_: None
for places in {}, {"devices": 2}, {"devices": 2, "num_nodes": 3}:
    try:
        Trainer(accelerator="cpu", logger=False, callbacks=[SaveAndLeave()], **places).fit(Model(), [1])
    except SystemExit as error:
        print(error)
print("WORLD_SIZE" in os.environ, trainer_places())  # Lightning deletes it after a fit
"""


def test_a_trainer_that_contradicts_its_launcher_is_stopped():
    """Rather than to train four separate copies, or to wait for ranks that nobody has started."""
    places = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "NODE_RANK": "0"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WRONG],
        env=os.environ | places, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    says = "the launcher has started 2 nodes with 2 ranks each; use Trainer(**trainer_places())"
    assert run.stdout.splitlines() == [
        f"Trainer(devices=1, num_nodes=1), but {says}",
        f"Trainer(devices=2, num_nodes=1), but {says}",
        f"Trainer(devices=2, num_nodes=3), but {says}",
        "False {'devices': 2, 'num_nodes': 2}",
    ], run.stderr


def test_the_file_stands_by_itself():
    """Anyone can read and copy it: 250 lines that import torch, Lightning and the standard library."""
    text = RESUME.read_text()
    assert len(text.splitlines()) <= 250
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name if isinstance(node, ast.Import) else node.module for node in imports for alias in node.names}
    assert {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) == {"torch"}
    assert '"lightning.pytorch" if' in text
