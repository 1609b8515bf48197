"""Submit on another host, exactly once: what is to be submitted is noted here first, and what was is noted there.

A submission is a folder of the user's state folder, named as the one there, until its end with submission.json in it.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import TYPE_CHECKING, Any

import msgspec

from hpclaunch.errors import HpclaunchError, did_you_mean
from hpclaunch.paths import write_whole
from hpclaunch.runs import registry, upload
from hpclaunch.runs.registry import SUBMISSION, Run
from hpclaunch.runs.submit import at_once, blame, record, submit
from hpclaunch.schedulers import run_folder, scheduler, ssh
from hpclaunch.schedulers.command import ONCE, there

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan

_FOLDER = r"~?[\w./${}@+-]+"  # nothing that a shell would run


class Submission(msgspec.Struct, kw_only=True):
    """What is to be submitted: from `folder` on `host`, with the files of `project` here."""

    host: str
    folder: str
    project: str
    known: dict[str, Any]  # plan.about
    attempts: int  # that are submitted together
    after: list[str]
    name: str
    passed: list[str]  # variables of the environment here


def root(host: str, folder: str | None) -> tuple[str, str]:
    """Return the folder on `host` below which each run has its own, and where its links lead. Raises SchedulerError."""
    if folder and not re.fullmatch(_FOLDER, folder):
        raise HpclaunchError(f"--remote-folder {folder}: no folder; use letters, digits, _ . / - and $NAME")
    own = re.sub("^~(?=/|$)", "$HOME", folder or "") or "${SCRATCH:-$HOME}/hpclaunch"
    script = f'cd && root="{own}" && case $root in /*) ;; *) root=$PWD/$root ;; esac; echo "$root"; realpath -m "$root"'
    found, real = ssh.output(host, script).splitlines()[-2:]
    if not re.fullmatch(r"/[\w./@+-]*", found):
        raise HpclaunchError(f"{host}: the folder {found} cannot be used; use --remote-folder")
    return found.rstrip("/"), real


def prepare(plan: Plan, script: str, host: str, below: str, after: Sequence[str], name: str) -> Path:
    """Note what is to be submitted; return the submission."""
    project = Path.cwd()
    short = re.sub(r"[^\w.-]+|^[.-]+", "_", project.name, flags=re.ASCII)[:40] or "project"
    token = f"{short}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    noted = Submission(
        host=host,
        folder=f"{below}/{token}",
        project=str(project),
        known=plan.about,
        attempts=at_once(plan),
        after=list(after),
        name=name,
        passed=plan.request.pass_env,
    )
    folder = registry.submissions(token)
    folder.mkdir(mode=0o700, parents=True)
    write_whole(folder / run_folder.PLAN, registry.encode(plan.hidden(), indent=2))
    text = upload.with_programs(noted.folder, script)
    write_whole(folder / run_folder.SCRIPT, text.encode(errors="surrogateescape"))
    write_whole(folder / SUBMISSION, registry.encode(noted))
    return folder


def finish(folder: Path, submitted: Callable[[str], None], plan: Plan | None = None) -> Run:
    """Upload and submit what is noted, as far as that was not done before; return the run.

    `submitted` gets the id at once. Raises SchedulerError, and LostError if it is to be tried again; then nothing is
    submitted twice.
    """
    noted = msgspec.json.decode((folder / SUBMISSION).read_bytes(), type=Submission)
    script = (folder / run_folder.SCRIPT).read_text(errors="surrogateescape")
    if missing := [name for name in noted.passed if name not in os.environ]:
        raise HpclaunchError(f"--env {missing[0]}: not set here; export {missing[0]} first")
    variables = {name: os.environ[name] for name in noted.passed}
    runs = PurePosixPath(noted.folder, run_folder.RUNS)
    try:
        upload.send(noted.host, noted.folder, Path(noted.project), script)
        with there(noted.host, noted.folder, once=True, variables=variables):
            kind = scheduler(str(noted.known["scheduler"]))
            ids = submit(kind, script, noted.attempts, Path(runs), noted.after, noted.name)
    except ssh.LostError as error:
        raise ssh.LostError(str(error), *resume(folder)) from None
    except HpclaunchError as error:
        shutil.rmtree(folder)
        raise type(error)(*str(error).splitlines(), *(blame(plan, str(error)) if plan else [])) from None
    submitted(ids[0])
    known = noted.known | {"host": noted.host, "remote": str(runs / ids[0])}
    run = record(known, (folder / run_folder.PLAN).read_bytes(), script, ids, folder / run_folder.RUNS)
    for name in (SUBMISSION, run_folder.SCRIPT, run_folder.PLAN):
        (folder / name).unlink()
    return run


def resume(folder: Path) -> tuple[str, str]:
    """Return what to say of a submission that was interrupted."""
    return "whether the job is submitted is not known yet", f"use: hpclaunch submit --resume {folder.name}"


def find(name: str) -> Path:
    """Return the submission of this name. Raises HpclaunchError."""
    if name not in (known := registry.unfinished()):
        raise HpclaunchError(f"--resume {name}: no such submission, or it is finished{did_you_mean(name, known)}")
    return registry.submissions(name)


def stays(project: Path, names: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the files and folders of a project that a command names and that are not among those that travel."""
    inside = [os.path.normpath(part) for word in words for part in (word, word.partition("=")[2]) if part]
    found = []
    for path in dict.fromkeys(path for path in inside if not path.startswith(("/", "..")) and path != "."):
        with suppress(OSError, ValueError):
            if (project / path).exists() and not any(name == path or name.startswith(f"{path}/") for name in names):
                found.append(path)
    return found


def results(run: Run, patterns: Sequence[str]) -> dict[str, int]:
    """Return the files that a run made or changed, of those that fit one of `patterns`, with their sizes.

    A pattern fits a file's path below the folder of submission, its name, or a folder above it. Raises SchedulerError.
    """
    hidden = (run_folder.NODE_SCRIPT, run_folder.RANK_SCRIPT)  # these hold the job's environment
    find = f"find . -path ./{ONCE} -prune -o -cnewer {upload.UPLOADED} ! -type d -printf '%s %P\\0'"
    answer = ssh.output(run.host, f"cd {quote(str(PurePosixPath(run.remote).parent.parent))} && {find}")
    found = {name: int(size) for size, _, name in (line.partition(" ") for line in answer.split("\0")[:-1])}
    return {
        name: size
        for name, size in sorted(found.items())
        if PurePosixPath(name).name not in hidden and (not patterns or _fits(PurePosixPath(name), patterns))
    }


def _fits(path: PurePosixPath, patterns: Sequence[str]) -> bool:
    whole = [path.name, *(str(part) for part in (path, *path.parents) if part.name)]
    return any(fnmatch(text, pattern.rstrip("/")) for pattern in patterns for text in whole)


def fetch(run: Run, names: Sequence[str], shown: bool) -> None:
    """Bring files of a run into the current folder, but for those that are newer here. Raises SchedulerError."""
    options = ["-ltEu", "--partial-dir=.hpclaunch-partial", "--from0", "--files-from=-", "--info=progress2"]
    source = f"{run.host}:{PurePosixPath(run.remote).parent.parent}/"
    ssh.rsync(run.host, *options, source, "./", stdin="".join(f"{name}\0" for name in names), shown=shown)
