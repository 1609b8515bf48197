"""Whether the job's environment works: its modules and lines of setup, its python, torch, Lightning, its data.

The lines are those of the job script itself, run here, on the login node.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from hpclaunch.doctor.result import RUN_SECONDS, Patient, Result, Verdict, ok, problem, warning
from hpclaunch.errors import HpclaunchError
from hpclaunch.paths import shown, user_config

_BEGIN, _END = "\n# ---------- Your job ----------\n", "\ncommand=("  # templates/base.sh.j2
_LOOK = """
import sys
sys.path[:] = filter(None, sys.path)  # not from the current folder
import importlib, json, platform
found = {"python": platform.python_version(), "executable": sys.executable}
for name in ("torch", "pytorch_lightning", "lightning"):
    try:
        found[name] = importlib.import_module(name).__version__
    except BaseException as error:
        found[name + " error"] = f"{type(error).__name__}: {error}"
if "torch" in found:
    import torch
    found["cuda"] = torch.version.cuda or torch.version.hip
print("\\n" + json.dumps(found))
"""


def environment(patient: Patient) -> Iterator[Result]:
    """Run the job's lines of environment, then look at its python and its data in what they made."""
    if patient.plan is None:
        return
    if patient.strange:
        found = f"not tried: {', '.join(patient.strange)} may be anybody's, and would be run"
        remedy = f"read what `hpclaunch render` prints; move what is yours to {shown(user_config())}"
        yield warning("environment", found, remedy)
        yield from _data(patient, os.environ)
        return
    variables, complaint = _variables(patient.script)
    if complaint:
        remedy = "see `Your job` in what `hpclaunch render` prints: modules, venv and setup"
        yield problem("environment", complaint, remedy)
    else:
        yield ok("environment", "modules, venv and lines of setup work here")
    yield from _python(patient, variables)
    yield from _data(patient, variables)


def _variables(script: str) -> tuple[dict[str, str], str]:
    """Run the lines here; return the environment that they leave, and what went wrong."""
    lines = script.partition(_BEGIN)[2].partition(_END)[0]
    if _BEGIN not in script or _END not in script:
        raise HpclaunchError("the template's script has no part `Your job`")
    with tempfile.TemporaryDirectory(prefix="hpclaunch-doctor-") as name:
        kept = Path(name, "env")
        try:
            done = subprocess.run(
                ["bash", "-c", f'{lines}\nenv -0 >"$1"', "doctor", str(kept)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                check=False,
                timeout=RUN_SECONDS,
                errors="replace",
                text=True,
            )
        except subprocess.TimeoutExpired:
            return dict(os.environ), f"not done after {RUN_SECONDS:g} s"
        if not kept.exists():  # an `exit 1`
            said = " ".join(done.stderr.split()[-60:])
            return dict(os.environ), said or f"its lines end with exit code {done.returncode}"
        pairs = (pair.partition("=") for pair in kept.read_text(errors="surrogateescape").split("\0") if pair)
        return {key: value for key, _, value in pairs}, ""


def _python(patient: Patient, variables: Mapping[str, str]) -> Iterator[Result]:
    assert patient.plan is not None  # noqa: S101 - see environment()
    name = patient.plan.python
    path = shutil.which(name, path=variables.get("PATH", os.defpath))
    remedy = "give --venv, or name the modules in the profile or with --module"
    if path is None:
        yield problem("python", f"{name} is not on the job's PATH", remedy)
        return
    try:
        done = subprocess.run(
            [path, "-c", _LOOK],
            env=dict(variables),
            cwd=variables.get("PWD") or None,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=RUN_SECONDS,
        )
        found = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        slow = "many small files on a slow file system: put the environment on a faster one, or into a container"
        yield warning("python", f"{path}: torch is not imported after {RUN_SECONDS:g} s", slow)
        return
    except (OSError, ValueError, IndexError):
        yield problem("python", f"{path} does not run", remedy)
        return
    yield ok("python", f"{found['executable']}, Python {found['python']}")
    yield _torch(patient, found, remedy)
    yield _lightning(patient, found, remedy)


def _torch(patient: Patient, found: Mapping[str, str], remedy: str) -> Result:
    assert patient.plan is not None  # noqa: S101
    if "torch" not in found:
        verdict: Verdict = "warning" if patient.plan.workload == "env" else "problem"
        return Result("torch", verdict, found["torch error"], remedy)
    if patient.plan.gpus_per_node and not found["cuda"]:
        text = f"{found['torch']} is built without CUDA, and the job asks for GPUs"
        return problem("torch", text, "install torch's build for the site's CUDA")
    return ok("torch", f"{found['torch']}, CUDA {found['cuda'] or 'none'}")


def _lightning(patient: Patient, found: Mapping[str, str], remedy: str) -> Result:
    assert patient.plan is not None  # noqa: S101
    for name in ("pytorch_lightning", "lightning"):
        if name in found:
            return ok("lightning", f"{name} {found[name]}")
    if patient.plan.workload == "mnist" or patient.plan.launcher == "lightning":
        return problem("lightning", found["pytorch_lightning error"], remedy)
    return warning("lightning", found["pytorch_lightning error"], "nothing to do, if your command does not use it")


def _data(patient: Patient, variables: Mapping[str, str]) -> Iterator[Result]:
    """Look for the profile's datasets, and for the paths in the command."""
    assert patient.plan is not None  # noqa: S101
    words = patient.request.command[1:]  # the first is the program
    own = {word: word.partition("=")[2] if word.startswith("-") else word for word in words}
    given = {word: path for word, path in own.items() if path.startswith(("/", "~")) or path.endswith(".py")}
    for name, text in {**patient.profile.site.datasets, **given}.items():
        path = _expand(text, variables)
        if path.exists():
            yield ok("data", f"{path} is there")
        elif name in patient.profile.site.datasets:
            remedy = "correct `datasets` in the profile; the bundled training draws its own digits meanwhile"
            yield warning("data", f"{name}: {path} is not there", remedy)
        else:
            remedy = "correct the command, unless the job itself makes it, or only compute nodes see it"
            yield warning("data", f"{path} is not there", remedy)


def _expand(text: str, variables: Mapping[str, str]) -> Path:
    for name in sorted(variables, key=len, reverse=True):
        text = text.replace(f"${{{name}}}", variables[name]).replace(f"${name}", variables[name])
    return Path(variables.get("PWD", ""), os.path.expanduser(text))  # noqa: PTH111 - pathlib's wants a home


PROBES = {"environment": environment}
