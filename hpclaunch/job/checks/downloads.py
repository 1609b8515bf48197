"""Which commands fetch something from the internet."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePath

# What fetches whatever its words, and what does by its first word or two.
_COPY = {"rsync", "scp", "sftp"}
_FETCH = {
    *("wget", "curl", "aria2c", "axel", "gdown", "kaggle", "gsutil", "rclone", "lftp", "prefetch", "fasterq-dump"),
    *_COPY,
}
_CONDA = {"install", "create", "update", "env create", "env update"}
_IMAGES = {"pull", "build", "run", "exec"}
_VERBS = {
    "pip": {"install", "download", "sync"},
    "conda": _CONDA,
    "mamba": _CONDA,
    "micromamba": _CONDA,
    "git": {"clone", "pull", "fetch", "lfs pull", "lfs fetch", "submodule update"},
    "huggingface-cli": {"download"},
    "hf": {"download"},
    "wandb": {"sync", "login"},
    "aws": {"s3"},
    "singularity": _IMAGES,
    "apptainer": _IMAGES,
    "docker": {"pull", "build"},
    "podman": {"pull", "build"},
    "nextflow": {"run", "pull"},
    "npm": {"install", "ci"},
    "datalad": {"get", "clone", "install"},
    "dvc": {"pull", "fetch"},
}
_HERE = ("localhost", "127.0.0.1", "://127.", "[::1]")
_OFFLINE = {"--no-index", "--offline", "-offline", "--version", "--help"}
# They start the command behind their options.
_STARTS = {"srun", "mpirun", "mpiexec", "time", "exec", "env", "nohup", "nice", "timeout", "command", "xargs"}


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
        if what := download(command):
            yield what
        for flag, inner in pairwise(command):  # bash -c TEXT
            if " " in inner and re.fullmatch(r"-[a-z]*c", flag):
                yield from downloads(inner)
        command = []


def download(words: Sequence[str]) -> str:
    """Return what a command fetches with (`pip install`), or "" if it fetches nothing from outside."""
    words = _started(words)
    if not words or _OFFLINE & set(words):
        return ""
    head = PurePath(words[0]).name
    rest = [word for word in words[1:] if not word.startswith("-")]
    if (head.startswith("python") and words[1:3] == ["-m", "pip"]) or (head == "uv" and rest[:1] == ["pip"]):
        head, rest = "pip", rest[1:]
    head = "pip" if re.fullmatch(r"pip[\d.]+", head) else head
    if head in _FETCH:
        return head if _far(head, rest) else ""
    verb = next((verb for verb in (" ".join(rest[:2]), *rest[:1]) if verb in _VERBS.get(head, ())), "")
    return f"{head} {verb}" if verb and _far(head, rest[len(verb.split()) :]) else ""


def _started(words: Sequence[str]) -> list[str]:
    """Return the command that others, like srun, start in `words`, without the settings before it."""
    starts = False
    for i, word in enumerate(words):
        name = PurePath(word).name
        if name in _STARTS:
            starts = True
        elif name in _FETCH or name in _VERBS or re.search(r"^(python|uv|pip)[\d.]*$|\.\w+$", name):
            return list(words[i:])
        elif not starts and not re.match(r"[A-Za-z_]\w*=", word):
            break
    return []


def _far(head: str, rest: list[str]) -> bool:
    """Tell whether a command takes anything from outside: `rest` is what it takes."""
    here = any(name in word for word in rest for name in _HERE)
    if head in _COPY:
        return not here and any(re.match(r"[\w.@-]{2,}:", word) for word in rest)
    if head in _FETCH:
        return not here
    if head == "pip":
        return not rest or not all(word.startswith((".", "/")) or word.endswith(".whl") for word in rest)
    if head == "git":
        return not any(word.startswith(("/", "./", "../")) for word in rest)
    if head in ("singularity", "apptainer"):
        return any(re.match(r"(docker|library|oras|shub)://", word) for word in rest)
    return head != "nextflow" or any(re.match(r"https?://|[\w-]+/[\w.-]+$", word) for word in rest[:1])
