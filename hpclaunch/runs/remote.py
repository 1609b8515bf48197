"""Submit on another host, exactly once: what is to be submitted is noted here first, and what was is noted there.

A submission is a folder of the user's state folder, named as the one there, until its end with submission.json in it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from hpclaunch.errors import HpclaunchError, did_you_mean
from hpclaunch.job.request import Request
from hpclaunch.paths import write_whole
from hpclaunch.runs import registry, upload
from hpclaunch.runs.registry import SUBMISSION, Run
from hpclaunch.runs.submit import at_once, blame, note
from hpclaunch.schedulers import run_folder, scheduler, ssh

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan


def root(host: str, folder: str | None) -> tuple[str, str]:
    """Return the folder on `host` below which each run has its own, and where its links lead. Raises SchedulerError."""
    if not re.fullmatch(r"~?[\w./${}@+-]*", folder or ""):  # what a shell would run
        raise HpclaunchError(f"--remote-folder {folder}: no folder; use letters, digits, _ . / - and $NAME")
    found, real = ssh.answer(host, "root", folder or "").splitlines()[-2:]
    if not re.fullmatch(r"/[\w./@+-]*", found):
        raise HpclaunchError(f"{host}: the folder {found} has other characters than letters, digits and _./@+-")
    return found.rstrip("/"), real


def prepare(plan: Plan, script: str, host: str, below: str, after: Sequence[str], name: str) -> Path:
    """Note what is to be submitted; return the submission. Raises RequestError for a variable that is not set here."""
    plan.request.check_passed(os.environ)
    project = re.sub(r"[^\w.]+|^[.]+", "_", Path.cwd().name, flags=re.ASCII)[:40] or "project"
    folder = registry.submissions(run_folder.new_name(project))
    there = f"{below}/{folder.name}"
    noted = {"host": host, "remote": there, "project": str(Path.cwd()), "attempts": at_once(plan), "after": after}
    noted |= {"script": upload.there(there, script), "name": name, "pass_env": plan.request.pass_env}
    folder.mkdir(mode=0o700, parents=True)
    write_whole(folder / SUBMISSION, registry.encode(noted | {"about": plan.about, "plan": plan.hidden()}))
    return folder


def finish(folder: Path, submitted: Callable[[str], None], plan: Plan | None = None) -> Run:
    """Upload and submit what is noted, as far as that was not done before; return the run.

    `submitted` gets the id at once. Raises SchedulerError; after LostError this may be called again.
    """
    noted = json.loads((folder / SUBMISSION).read_bytes())
    Request(pass_env=noted["pass_env"]).check_passed(os.environ)
    variables = {name: os.environ[name] for name in noted["pass_env"]}
    host, remote, text, about = (noted[key] for key in ("host", "remote", "script", "about"))
    runs = Path(remote, run_folder.RUNS)
    try:
        upload.send(host, remote, noted["project"], text)
        with ssh.there(host, remote, once=True, variables=variables):
            kind = scheduler(about["scheduler"])
            ids = kind.submit_all(text, noted["attempts"], runs, noted["after"], noted["name"])
    except ssh.LostError as error:
        raise ssh.LostError(str(error), *resume(folder)) from None
    except HpclaunchError as error:
        shutil.rmtree(folder)
        raise type(error)(*str(error).splitlines(), *(blame(plan, str(error)) if plan else [])) from None
    submitted(ids[0])
    about |= {"host": host, "remote": str(runs / ids[0])}
    run = note(about, noted["plan"], text, ids, folder / run_folder.RUNS)
    (folder / SUBMISSION).unlink()
    return run


def resume(folder: Path) -> tuple[str, str]:
    """Return what to say of a submission that was interrupted."""
    return "whether the job is submitted is not known", f"use: hpclaunch submit --resume {folder.name}"


def find(name: str) -> Path:
    """Return the submission of this name. Raises HpclaunchError."""
    if name not in (known := registry.unfinished()):
        raise HpclaunchError(f"--resume {name}: no such submission, or it is finished{did_you_mean(name, known)}")
    return registry.submissions(name)


def results(run: Run, patterns: Sequence[str]) -> dict[str, int]:
    """Return the files that a run made or changed and that fit one of `patterns`, with their sizes.

    Raises SchedulerError.
    """
    lines = ssh.answer(run.host, "results", str(PurePosixPath(run.remote).parents[1]), *patterns).split("\0")[:-1]
    return {name: int(size) for size, name in sorted((line.split(" ", 1) for line in lines), key=lambda line: line[1])}


def fetch(run: Run, names: Sequence[str], shown: bool) -> None:
    """Bring files of a run into the current folder, but for those that are newer here. Raises SchedulerError."""
    options = ["-ltEu", "--partial-dir=.hpclaunch-partial", "--from0", "--files-from=-"]
    options += ["--info=progress2"] if shown else []
    source = f"{run.host}:{PurePosixPath(run.remote).parents[1]}/"
    ssh.rsync(run.host, *options, source, "./", stdin="\0".join(names), shown=shown)
