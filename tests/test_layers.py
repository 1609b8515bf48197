"""The package's order: imports point downwards only, without a cycle; no file grows too long."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import hpclaunch

PACKAGE = Path(hpclaunch.__file__).parent
# From the top down. Each room imports only from itself and from those below it.
LAYERS = (
    ("cli", "lightning"),
    ("doctor", "scripts", "rehearsal", "executors", "studies"),
    ("runs",),
    ("job",),
    ("profile",),
    ("schedulers",),
    ("errors", "paths"),
)


FILES = {path.relative_to(PACKAGE): path for path in sorted(PACKAGE.rglob("*.py"))}


def name_of(path: Path) -> str:
    """Return the module of a file, without the package: `job.plan`."""
    return ".".join(path.with_suffix("").parts).removesuffix("__init__").removesuffix(".")


NAMES = {name_of(path): path for path in FILES}


@cache
def tree_of(path: Path) -> ast.AST:
    """Return what a file of FILES says."""
    return ast.parse(FILES[path].read_text())


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a module imports: at its top, in functions, and for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("hpclaunch.") for alias in node.names if "hpclaunch" in alias.name)
        elif isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("hpclaunch."):
            where = str(node.module).removeprefix("hpclaunch").removeprefix(".")
            for alias in node.names:
                name = f"{where}.{alias.name}".removeprefix(".")
                yield name if name in NAMES else where


@cache
def imports() -> dict[str, set[str]]:
    """Return what each module imports: not the package's own __init__, which imports its public names on demand."""
    return {name: {other for other in imported(tree_of(path)) if other} for name, path in NAMES.items() if name}


def layer_of(module: str) -> int | None:
    """Return the layer of a module, or None for what is in none: the workloads, which are files of their own."""
    return next((i for i, rooms in enumerate(LAYERS) if module.split(".", maxsplit=1)[0] in rooms), None)


def test_every_room_has_a_layer():
    """What is added at the top of the package gets its place in the order."""
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    known = {room for rooms in LAYERS for room in rooms}
    assert rooms - known == {"__init__", "__main__", "__pycache__", "workloads"} - ({"__pycache__"} - rooms)


def test_imports_point_downwards():
    """No module imports from a layer above its own."""
    upwards = {
        (name, other.split(".")[0])
        for name, others in imports().items()
        for other in others
        if None not in (mine := layer_of(name), theirs := layer_of(other)) and theirs < mine
    }
    assert upwards == set()


def test_workloads_import_nothing_of_the_package():
    """A workload runs where hpclaunch is not installed; it may import the files beside it."""
    for name, others in imports().items():
        if name.startswith("workloads."):
            assert {other.split(".")[0] for other in others} <= {"workloads", "lightning"}, name


def test_no_module_imports_itself_by_way_of_others():
    """There is no cycle of imports, those in functions and those for types included."""
    left = {name: set(others) & imports().keys() - {name} for name, others in imports().items()}
    while free := {name for name, others in left.items() if not others & left.keys()}:
        left = {name: others for name, others in left.items() if name not in free}
    while unused := left.keys() - {other for others in left.values() for other in others}:
        left = {name: others for name, others in left.items() if name not in unused}
    assert left.keys() == set()


def test_the_top_of_the_package_is_small():
    """A newcomer finds at most 16 entries."""
    assert len([path for path in PACKAGE.iterdir() if path.name != "__pycache__"]) <= 16


@pytest.mark.parametrize("path", FILES, ids=str)
def test_no_file_is_long(path):
    """No file has more than 300 lines but those that are listed with a reason."""
    assert len(FILES[path].read_text().splitlines()) <= 300


def test_schedulers_are_not_told_apart_by_name():
    """What differs between schedulers is in their folders: nobody else compares with their names."""
    found = set()
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Compare) and path.parts[0] != "schedulers":
                constants = [one for part in (node.left, *node.comparators) for one in ast.walk(part)]
                if any(isinstance(one, ast.Constant) and one.value in ("pbs", "slurm", "local") for one in constants):
                    found.add(str(path))
    assert found == set()
