"""Which commands fetch something from the internet."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePath

_FETCH = {"wget", "curl", "aria2c", "gdown", "kaggle", "gsutil", "rclone"}
_VERBS = {
    "pip": {"install", "download", "sync"},
    "pip3": {"install", "download"},
    "conda": {"install", "create", "update", "env"},
    "mamba": {"install", "create", "update", "env"},
    "micromamba": {"install", "create", "update", "env"},
    "git": {"clone", "pull", "fetch"},
    "huggingface-cli": {"download"},
    "hf": {"download"},
    "wandb": {"sync", "login"},
    "aws": {"s3"},
    "singularity": {"pull", "build"},
    "apptainer": {"pull", "build"},
    "docker": {"pull", "build"},
    "podman": {"pull", "build"},
}
_HERE = ("localhost", "127.0.0.1", "://127.", "[::1]")


def downloads(text: str) -> Iterator[str]:
    """Yield what the commands in a line of shell fetch with."""
    for part in re.split(r"&&|\|\|?|\$\(|[;\n&()`]", text):
        try:
            words = shlex.split(part)
        except ValueError:
            words = part.split()
        while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.DOTALL):
            words = words[1:]
        if what := download(words):
            yield what
        if words and PurePath(words[0]).name in ("bash", "sh"):
            for word in words[1:]:
                if " " in word:
                    yield from downloads(word)


def download(words: list[str]) -> str:
    """Return what a command fetches with (`pip install`), or "" where it fetches nothing from outside."""
    while words and (words[0] in ("srun", "time", "exec") or words[0].startswith("-")):
        words = words[1:]
    if not words:
        return ""
    head, rest = PurePath(words[0]).name, [word for word in words[1:] if not word.startswith("-")]
    if head.startswith("python") and words[1:3] == ["-m", "pip"]:
        head, rest = "pip", rest[1:]
    if head == "uv" and rest[:1] == ["pip"]:
        head, rest = "pip", rest[1:]
    if head in ("rsync", "scp", "sftp"):
        far = any(re.match(r"[\w.@-]{2,}:", word) and not any(here in word for here in _HERE) for word in rest)
        return head if far else ""
    verb = rest[0] if rest else ""
    if head in _FETCH:
        return "" if any(here in word for word in rest for here in _HERE) else head
    near = verb not in _VERBS.get(head, ()) or _near(head, words, rest[1:])
    return "" if near else f"{head} {verb}"


def _near(head: str, words: list[str], rest: list[str]) -> bool:
    """Tell whether pip, conda, git or a container's command takes what is here already."""
    if head in ("pip", "pip3"):
        local = [word for word in rest if word.startswith((".", "/")) or word.endswith(".whl")]
        return "--no-index" in words or (bool(rest) and local == rest)
    if head in ("conda", "mamba", "micromamba"):
        return "--offline" in words or rest[:1] == ["list"]
    if head == "git":
        return any(word.startswith(("/", "./", "../")) for word in rest)
    return head in ("singularity", "apptainer") and not any("://" in word for word in rest)
