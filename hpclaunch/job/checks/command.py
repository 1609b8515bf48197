"""What a command says about its nodes, its GPUs and its files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING

from hpclaunch.job.checks.downloads import download as fetches
from hpclaunch.job.checks.downloads import downloads
from hpclaunch.job.checks.finding import Found, partition_key

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan

# They start a node's ranks; these start those of all nodes, or a job of their own.
_NODE_LAUNCHERS = {"torchrun", "accelerate", "deepspeed"}
_LAUNCHERS = {"srun", "mpirun", "mpiexec", "pbsdsh", "horovodrun", "sbatch", "qsub"}
_NODE_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
# Patterns are compiled where a plain look says that they may match: compiling all takes longer than all the rest.
_DOWNLOAD_SIGNS = (
    *("wget", "curl", "aria2c", "gdown", "kaggle", "gsutil", "rclone", "clone", "pull", "fetch", "install", "create"),
    *("update", "env", "download", "sync", "login", "s3", "build", "scp", "sftp", "://"),
)
_ADDRESS = r"(?:https?|ftp|s3|gs)://(?!localhost\b|127\.|\[::1\])[\w.-]+|^--download\b"
_ONLINE = {"WANDB_MODE": "online", "HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0"}
# What a GPU older than 8.0 cannot do: a sign, a pattern, its name, what to use instead.
_NEW_GPUS = (
    ("bf", r"(?i)(?<![a-z])(?:bf16|bfloat16)(?![a-z])", "bf16", "16-mixed"),
    ("flash", r"(?i)flash[-_]?attn|flash[-_]attention", "FlashAttention-2", "sdpa"),
)
# Words of a name, whole ones between _, - and dots: --timeout is no `out`. The second is of what is large besides.
_PARTS = r"(?i)(?:^|[_.-])(?:(?:{})(?:dir|file|folder|path|root)?(?=[_.-]|$){})"
_RESULTS = "out|outputs?|logs?|save|saved|ckpts?|checkpoints?|root"
_WRITTEN = _PARTS.format(_RESULTS, "")
_HOMES = ("~/", "$HOME/", "${HOME}/", "/home/")
_LARGE = _PARTS.format(rf"{_RESULTS}|caches?|data|datasets?|venvs?", "|(?<=[_.-])home$")


def options(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each --name of a command with its value, which may be the next word."""
    for i, word in enumerate(words):
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            following = words[i + 1] if i + 1 < len(words) else ""
            yield name, value if equals else "" if following.startswith("-") else following


def settings(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield what a request says of folders: the venv, variables, the command's options."""
    if plan.request.venv:
        yield "--venv", plan.request.venv
    yield from plan.request.env.items()
    for line in plan.request.setup:
        found = re.match(r"\s*(?:export\s+)?([A-Za-z_]\w*)=([^\s;&|]+)", line) if "=" in line else None
        if found and found[1] not in plan.request.env:
            yield found[1], found[2].strip("\"'")
    yield from ((f"--{name}", value) for name, value in options(plan.request.command))


def launcher(plan: Plan) -> Iterator[Found]:
    """Refuse a command that starts ranks itself where the job starts several already, and one without a name."""
    words = plan.request.command
    if words and not words[0].strip():
        yield Found(
            "the command's first word is empty, and no program has that name; give COMMAND, or nothing behind --"
        )
        return
    if not words or plan.world_size == 1:
        return
    program = PurePath(words[0]).name
    module = words[words.index("-m") + 1] if "-m" in words[:-1] and program.startswith("python") else ""
    by_node = (program in _NODE_LAUNCHERS and (program != "accelerate" or words[1:2] == ["launch"])) or (
        module in _NODE_MODULES
    )
    once_a_node = plan.launcher == "lightning" or plan.tasks_per_node == 1
    if program in _LAUNCHERS or (by_node and not once_a_node):
        yield Found(
            f"{module or program} is a launcher of its own, the job would start it {plan.world_size} times; "
            "give the program alone, hpclaunch starts its ranks (--launcher says how)"
        )


def program(plan: Plan) -> Iterator[Found]:
    """Refuse a command whose program is not there; warn of it where the job may see another folder."""
    machine = plan.request.machine
    if machine.program_problem:
        yield Found(machine.program_problem, warns=not machine.program_is_final)


def trainer(plan: Plan) -> Iterator[Found]:
    """Refuse --devices and --num_nodes of a command that are not the job's: Lightning would."""
    own = {"devices": {plan.tasks_per_node, plan.gpus_per_node}, "num_nodes": {plan.nodes}}
    for name, value in options(plan.request.command):
        key = name.rpartition(".")[2].replace("-", "_").lower()
        if key in own and re.fullmatch(r"\d{1,9}", value) and int(value) not in own[key]:
            job = max(own[key])
            yield Found(f"--{name} {value} in the command, the job has {job}; use --{name} {job}, or leave it out")


def literal(plan: Plan) -> Iterator[Found]:
    """Warn of a $NAME in the command, which no shell expands: each word arrives as it is given."""
    words = plan.request.command
    if not words or PurePath(words[0]).name in ("bash", "sh", "zsh", "env", "awk", "perl") or "-c" in words:
        return
    for word in words:
        if "$" in word and (found := re.search(r"\$\{?[A-Za-z_]\w*}?", word)):
            yield Found(
                f"{found[0]} in {word!r} is not expanded, words arrive as they are given; use bash -c '...' around it",
                warns=True,
            )


def dtype(plan: Plan) -> Iterator[Found]:
    """Warn of bf16 or FlashAttention-2 on a GPU that is too old for them."""
    has = plan.partition.compute_capability
    if has and has < 8 and plan.gpus_per_node:
        for sign, pattern, name, instead in _NEW_GPUS:
            if any(sign in word.lower() and re.search(pattern, word) for word in plan.request.command):
                yield Found(
                    f"{name} asked wants compute capability 8.0, {plan.partition.gpu or 'the GPU'} has {has:g}; "
                    f"use {instead}",
                    partition_key(plan, "compute_capability"),
                    warns=True,
                )


def download(plan: Plan) -> Iterator[Found]:
    """Warn of a download, or of a library set online, on nodes without internet."""
    own = plan.partition.internet
    if (plan.site.internet if own is None else own) is not False:
        return
    words = plan.request.command
    found = [fetches(words)]
    for text in [*words[1:], *plan.request.setup]:
        if any(sign in text for sign in _DOWNLOAD_SIGNS):
            match = re.search(_ADDRESS, text)
            fetched = [] if " " not in text else list(downloads(text))
            found += fetched or ([match[0]] if match else [])
    found = [what for what in found if what]
    found += [f"{name}={value}" for name, value in plan.request.env.items() if _ONLINE.get(name) == value]
    with_internet = [name for name, other in plan.site.partitions.items() if other.internet]
    stage = f"; do it before, on {' or '.join(with_internet)} or a login node" if with_internet else "; do it before"
    key = partition_key(plan, "internet") if own is not None else ("internet",)
    for what in dict.fromkeys(found):
        yield Found(f"{what} asked, the nodes of {plan.partition_name} have no internet{stage}", key, warns=True)


def home(plan: Plan) -> Iterator[Found]:
    """Warn of an environment, a cache, data or logs in a home folder that holds little."""
    if plan.site.home_gb is None:
        return
    for name, value in settings(plan):
        real = plan.request.machine.links.get(value, value)
        if real.startswith(_HOMES) and re.search(_LARGE, name):
            yield Found(
                f"{name} {value} lies in the home folder, which holds {plan.site.home_gb:g} GB on {plan.name}; "
                "use a larger file system",
                ("home_gb",),
                warns=True,
            )


def expiring(plan: Plan) -> Iterator[Found]:
    """Warn of results in a folder whose unused files are removed."""
    for name, value in settings(plan):
        for root, days in plan.site.expiring.items():
            if _below(value, root) and re.search(_WRITTEN, name):
                yield Found(
                    f"{name} {value}: below {root} files unused for {days} days are removed; copy what you keep",
                    ("expiring", root),
                    warns=True,
                )


def reach(plan: Plan) -> Iterator[Found]:
    """Warn of a folder that only other partitions see."""
    texts = [*plan.request.command, *plan.request.setup, *plan.request.env.values(), plan.request.venv or ""]
    for root, names in plan.site.only_on.items():
        if plan.partition_name not in names and any(_below(text, root) for text in texts):
            yield Found(
                f"{root} asked, only {', '.join(names)} see it and not {plan.partition_name}; copy it before",
                ("only_on", root),
                warns=True,
            )


def _below(text: str, root: str) -> bool:
    if root.removeprefix("$") not in text:
        return False
    name = re.escape(root.removeprefix("$"))
    pattern = rf"\$(?:{name}|\{{{name}\}})(?!\w)" if root.startswith("$") else rf"(?<![\w.~}}-]){name}(?![\w-])"
    return re.search(pattern, text) is not None


def removed_commands(plan: Plan) -> Iterator[Found]:
    """Refuse a command that a site has taken away."""
    texts = [*plan.request.setup, " ".join(plan.request.command)]
    for name, instead in plan.site.removed_commands.items():
        pattern = rf"(?<![\w./-]){re.escape(name)}(?![\w./=-])"
        if any(name in text and re.search(pattern, text) for text in texts):
            yield Found(f"{name} is gone from {plan.name}; use {instead}", ("removed_commands", name))


def storage(plan: Plan) -> Iterator[Found]:
    """Refuse a --storage that names no file system; warn where none need be named, and of a path in a variable."""
    roots = plan.site.storage_roots
    if plan.request.storage and not roots and not plan.site.storage:
        yield Found(
            f"{' '.join(plan.request.storage)} asked, jobs on {plan.name} see everything unnamed; leave it out",
            warns=True,
        )
    prefixes = tuple(f"{name}/" for name in roots.values())
    for name in plan.storage if roots else ():
        if not name.startswith(prefixes):
            forms = ", ".join(f"{prefix}PROJECT" for prefix in dict.fromkeys(prefixes))
            yield Found(f"{name!r} names no file system of {plan.name}; use {forms}", ("storage_roots",))
    for text in (*plan.request.setup, *plan.request.env.values(), plan.request.venv or ""):
        for root in roots if "$" in text else ():
            if found := re.search(rf"(?<![\w.}}~-]){re.escape(root)}/+\$\{{?\w+\}}?", text):
                yield Found(
                    f"{found[0]}: which one that is shows in the job alone; add --storage {roots[root]}/...",
                    ("storage_roots", root),
                    warns=True,
                )
