"""Commands that fetch something from the internet."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePath

from hpclaunch.job.checks.check import partition_key
from hpclaunch.job.diagnostic import Found
from hpclaunch.job.plan import Plan

# What the words after a program, options left out, look like where it fetches something from another machine.
_FETCHES = {
    "wget curl aria2c axel gdown kaggle gsutil rclone lftp prefetch fasterq-dump": "",
    "rsync scp sftp": r"(?=.* [\w.@-]{2,}:)",
    "pip": r" (install|download|sync)(?=.* (?![./])\S*(?<!\.whl)(?!\S))",
    "conda mamba micromamba": r" (env )?(install|create|update)\b",
    "git": r" (clone|pull|fetch|lfs pull|lfs fetch|submodule update)\b(?!.* \.{0,2}/)",
    "huggingface-cli hf": r" download\b",
    "wandb": r" (sync|login|agent)\b",
    "aws": r" s3\b",
    "singularity apptainer": r" (pull|build|run|exec)\b(?=.* (docker|library|oras|shub)://)",
    "docker podman": r" (pull|build)\b",
    "nextflow": r" (run|pull)(?= (https?://|[\w-]+/[\w.-]+( |$)))",
    "npm": r" (install|ci)\b",
    "datalad": r" (get|clone|install)\b",
    "dvc": r" (pull|fetch)\b",
}
_PROGRAMS = {name: pattern for names, pattern in _FETCHES.items() for name in names.split()}
_HERE = ("localhost", "127.0.0.1", "://127.", "[::1]")
_OFFLINE = {"--no-index", "--offline", "-offline", "--version", "--help"}
_WANDB_OFFLINE = r"\bWANDB_(MODE=\W?(offline|disabled|dryrun)|DISABLED=)|\bwandb (offline|disabled|off)\b"
_SILENT = {"nextflow": "NXF_OFFLINE=", "wandb agent": _WANDB_OFFLINE, "--report_to": _WANDB_OFFLINE}
_ONLINE = {"WANDB_MODE=online", "HF_HUB_OFFLINE=0", "TRANSFORMERS_OFFLINE=0"}
_ADDRESS = r"(?:https?|ftp|s3|gs)://(?!localhost\b|127\.|\[::1\])[\w.-]+|^--download\b"
# They start the command behind their options.
_STARTS = {"srun", "mpirun", "mpiexec", "time", "exec", "env", "nohup", "nice", "timeout", "command", "xargs"}


def download(plan: Plan) -> Iterator[Found]:
    """Warn of a download, or of a library set online, on nodes without internet."""
    own, request = plan.partition.internet, plan.request
    if (plan.site.internet if own is None else own) is not False:
        return
    found = {_fetched(request.command): ""}
    for text in [*request.command[1:], *request.setup]:
        fetched = [*downloads(text)] if " " in text else []
        for what in fetched or ([] if plan.script else re.findall(_ADDRESS, text)[:1]):
            found.setdefault(what, text)
    variables = [f"{name}={value}" for name, value in (({} if plan.script else plan.site.env) | request.env).items()]
    for line in [*variables, *request.setup]:
        if (setting := line.strip().removeprefix("export ")) in _ONLINE:
            found[setting] = line
    with_internet = [name for name, other in plan.site.partitions.items() if other.internet]
    stage = f"use {' or '.join(with_internet)} or a login node beforehand" if with_internet else "do it beforehand"
    where = plan.partition_name if request.partition or not plan.script else f"most partitions of {plan.name}"
    offline = [what for what, on in _SILENT.items() for line in [*variables, *request.setup] if re.search(on, line)]
    for what, at in found.items():
        if what and not what.startswith(tuple(offline)):
            text = f"{what}: the nodes of {where} have no internet; {stage}"
            key = ("internet",) if own is None else partition_key(plan, "internet")
            yield Found(text, key, warns=True, at=at or "command")


def downloads(text: str) -> Iterator[str]:
    """Yield what the commands in a line of shell fetch with."""
    lexer = shlex.shlex(re.sub(r"[`\n]", ";", text), posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:  # a quote that is never closed
        words = text.split()
    command: list[str] = []
    for word in [*words, ";"]:
        if not set(word) <= set(";&|()"):
            command.append(word)
            continue
        if what := _fetched(command):
            yield what
        for flag, inner in pairwise(command):  # bash -c TEXT
            if " " in inner and re.fullmatch(r"-[a-z]*c", flag):
                yield from downloads(inner)
        command = []


def _fetched(words: Sequence[str]) -> str:
    """Return what a command fetches with (`pip install`), or "" if it fetches nothing from outside."""
    if re.search("--report[-_]to[ =]wandb", " ".join(words)):
        return "--report_to wandb"
    names = [PurePath(word).name for word in words]
    known = (name in _PROGRAMS or re.search(r"^(python|uv|pip)[\d.]*$|\.\w+$", name) for name in names)
    start = next((i for i, found in enumerate(known) if found), len(words))
    starts = next((i for i, name in enumerate(names) if name in _STARTS), start)
    if not all(re.match(r"[A-Za-z_]\w*=", word) for word in words[: min(start, starts)]):
        return ""
    if any(word in _OFFLINE or any(here in word for here in _HERE) for word in words[start:]):
        return ""
    text = " ".join([*names[start : start + 1], *(word for word in words[start + 1 :] if not word.startswith("-"))])
    text = re.sub(r"^((python[\d.]*|uv) )?pip[\d.]*(?= )", "pip", text)
    program = text.partition(" ")[0]
    found = re.match(program + _PROGRAMS[program], text) if program in _PROGRAMS else None
    return found[0] if found else ""
