"""Whether the job's environment works: its modules and lines of setup, its python, torch, Lightning, its data.

The lines are those of the job script itself, run here, on the login node.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any

from hpclaunch.doctor.result import RUN_SECONDS, Patient, Result, ok, problem, warning
from hpclaunch.errors import HpclaunchError
from hpclaunch.job.plan import Plan
from hpclaunch.paths import shown, user_config

_BEGIN, _END = "\n# ---------- Your job ----------\n", "\ncommand=("  # templates/base.sh.j2
_REMEDY = "give --venv, or name the modules in the profile or with --module"
_LOOK = """
import sys
sys.path[:] = filter(None, sys.path)  # not from the current folder
import importlib, json, platform
found = {"python": platform.python_version(), "executable": sys.executable}
for name in ("torch", "lightning", "pytorch_lightning"):
    short = name.removeprefix("pytorch_")
    try:
        found[short] = f"{name} {importlib.import_module(name).__version__}"
    except BaseException as error:
        found[short + " error"] = f"{type(error).__name__}: {error}"
if "torch" in found:
    import torch
    built = {kind: getattr(torch.version, kind, None) for kind in ("cuda", "hip", "xpu")}
    found["gpu"] = "".join(f", {kind.upper()} {version}" for kind, version in built.items() if version)
    found["torch"] += found["gpu"]
print("\\n" + json.dumps(found))
"""


def probe(patient: Patient) -> Iterator[Result]:
    """Run the job's lines of environment, then look at its python and its data in what they made."""
    if patient.plan is None:
        return
    variables = {**os.environ, "PWD": str(patient.folder)}
    if patient.foreign:
        found = f"not tried: {', '.join(patient.foreign)} may be anybody's, and would be run"
        remedy = f"read what `hpclaunch render` prints; move what is yours to {shown(user_config())}"
        yield warning("environment", found, remedy)
    else:
        variables, complaint = _variables(patient.script, variables)
        if complaint:
            remedy = "see `Your job` in what `hpclaunch render` prints: modules, venv and setup"
            yield problem("environment", complaint, remedy)
        else:
            yield ok("environment", "modules, venv and lines of setup work here")
        yield from _python(patient.plan, variables)
    yield from _data(patient, variables)


def _variables(script: str, variables: dict[str, str]) -> tuple[dict[str, str], str]:
    """Run the lines with these variables; return the environment that they leave, and what went wrong."""
    lines, end, _ = script.partition(_BEGIN)[2].partition(_END)
    if not end:
        raise HpclaunchError("the template's script has no part `Your job`")
    try:
        done = _run(["bash", "-c", f"exec 9>&1 >/dev/null\n{lines}\nenv -0 >&9"], variables)
    except subprocess.TimeoutExpired:
        return variables, f"not done after {RUN_SECONDS:g} s"
    if not done.stdout:  # an `exit 1`
        return variables, " ".join(done.stderr.split()[-60:]) or f"its lines end with exit code {done.returncode}"
    return dict(pair.split("=", 1) for pair in done.stdout.split("\0") if "=" in pair), ""


def _run(words: list[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        env=variables,
        cwd=variables.get("PWD") or None,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
        timeout=RUN_SECONDS,
    )


def _python(plan: Plan, variables: Mapping[str, str]) -> Iterator[Result]:
    path = shutil.which(plan.python, path=variables.get("PATH", os.defpath))
    if path is None:
        yield problem("python", f"{plan.python} is not on the job's PATH", _REMEDY)
        return
    try:
        found = json.loads(_run([path, "-c", _LOOK], variables).stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        slow = "many small files on a slow file system: put the environment on a faster one, or into a container"
        yield warning("python", f"{path}: torch is not imported after {RUN_SECONDS:g} s", slow)
    except (OSError, ValueError, IndexError):
        yield problem("python", f"{path} does not run", _REMEDY)
    else:
        yield ok("python", f"{found['executable']}, Python {found['python']}")
        yield from _torch(plan, found)


def _torch(plan: Plan, found: Mapping[str, Any]) -> Iterator[Result]:
    """Judge what the job's python could import."""
    lightning = plan.workload in ("mnist", "resnet") or plan.launcher == "lightning"
    for name, needed in {"torch": plan.workload != "env", "lightning": lightning}.items():
        if name not in found and needed:
            yield problem(name, found[f"{name} error"], _REMEDY)
        elif name not in found:
            yield warning(name, found[f"{name} error"], "nothing to do, if your command does not use it")
        elif name == "torch" and plan.gpus_per_node and not found["gpu"]:
            text = f"{found[name]} is built for no GPU, and the job asks for some"
            yield problem(name, text, "install torch's build for the site's GPUs")
        else:
            yield ok(name, found[name])


def _data(patient: Patient, variables: Mapping[str, str]) -> Iterator[Result]:
    """Look for the profile's datasets, and for the paths in the command."""
    words = patient.request.command[1:]  # the first is the program
    paths = [word.partition("=")[2] if word.startswith("-") else word for word in words]
    own = {path: path for path in paths if path.startswith(("/", "~")) or path.endswith(".py")}
    datasets = patient.profile.site.datasets
    for name, word in {**datasets, **own}.items():
        text = os.path.expanduser(Template(word).safe_substitute(variables))  # noqa: PTH111 - pathlib's wants a home
        path = Path(variables.get("PWD", ""), text)
        if path.exists():
            yield ok("data", f"{path} is there")
            continue
        remedy = "correct the command, or `datasets` in the profile, unless the job makes it or only nodes see it"
        yield warning("data", f"{name}: {path} is not there" if name in datasets else f"{path} is not there", remedy)
