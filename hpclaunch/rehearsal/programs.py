"""The programs of a rehearsal: modules that are first on PATH as the programs of a cluster."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from hpclaunch.rehearsal.processes import MARK


def command(module: str, *paths: Path) -> list[str]:
    """Return the command that runs a module's `main`; `paths` are where it is imported from besides this package.

    Python runs it without site packages and settings of the environment: it starts sooner, and anywhere.
    """
    known = [str(path) for path in (Path(__file__).parents[2], *paths)]
    return [
        sys.executable,
        "-IS",
        "-c",
        f"import sys; sys.path += {known}; from {module} import main; sys.exit(main())",
    ]


def write_programs(folder: Path, modules: Sequence[str], *paths: Path) -> dict[str, str]:
    """Write programs that run `modules` to `folder`/bin; return the variables with which a shell finds them.

    The python that runs this comes right after them on PATH, so that it is a job's `python`.
    """
    programs = folder / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    for module in modules:  # run by bash, since dash drops the functions that bash exports
        program = programs / module.rpartition(".")[2]
        words = shlex.join(command(module, *paths))
        program.write_text(f'#!/usr/bin/env bash\n{MARK}={shlex.quote(str(folder))} exec {words} "$@"\n')
        program.chmod(0o755)
    (programs / "module").write_text('#!/bin/sh\necho "rehearsal: module $*" >&2\n')  # the software is this machine's
    (programs / "module").chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, MARK: str(folder)}
