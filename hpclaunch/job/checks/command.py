"""What a command says about its ranks and its GPUs, and what a site says of its commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import PurePath

from hpclaunch.job.checks.check import partition_key
from hpclaunch.job.diagnostic import Found
from hpclaunch.job.plan import Plan

# They start all ranks or a job of their own; the second only those of a node.
_LAUNCHERS = {"srun", "mpirun", "mpiexec", "pbsdsh", "horovodrun", "sbatch", "qsub"}
_NODE_LAUNCHERS = {"torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch",
                   "accelerate.commands.launch"}  # fmt: skip
# What a GPU older than 8.0 cannot do: a pattern, its name, what to use instead.
_NEW_GPUS = (
    (r"(?i)(?<![a-z])(?:bf16|bfloat16)(?![a-z])", "bf16", "16-mixed"),
    (r"(?i)flash[-_]?attn|flash[-_]attention", "FlashAttention-2", "sdpa"),
)


def options(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each option of a command with its value: of --name=value, --name value, and name=value."""
    for word, following in pairwise([*words, "-"]):
        name, equals, value = word.partition("=")
        if equals:
            yield name, value
        elif name.startswith("--") and not following.startswith("-"):
            yield name, following


def launcher(plan: Plan) -> Iterator[Found]:
    """Refuse a command that starts ranks itself where the job starts several already, and one without a name."""
    words = [] if plan.script else plan.request.command
    if not words or not words[0].strip():
        yield from [Found("the command's first word is empty; give COMMAND, or nothing behind --")] if words else []
        return
    program = PurePath(words[0]).name
    if program.startswith("python") and "-m" in words[:-1]:
        program = words[words.index("-m") + 1]
    by_rank = plan.launcher != "lightning" and plan.tasks_per_node > 1
    if plan.world_size > 1 and (program in _LAUNCHERS or (by_rank and program in _NODE_LAUNCHERS)):
        yield Found(
            f"{program} is a launcher of its own, which the job would start {plan.world_size} times; "
            "give the program only, hpclaunch starts its ranks (--launcher chooses how)"
        )


def program(plan: Plan) -> Iterator[Found]:
    """Refuse a command whose program is not there; warn if the job may see another folder."""
    machine = plan.request.machine
    if machine.program_problem:
        yield Found(machine.program_problem, warns=not machine.program_is_final)


def trainer(plan: Plan) -> Iterator[Found]:
    """Refuse --devices and --num_nodes that are not the job's, as Lightning does; warn of GPUs left idle."""
    own = {"devices": {plan.tasks_per_node, plan.gpus_per_node}, "num_nodes": {plan.training_nodes}}
    for word, value in dict.fromkeys(options(plan.request.command)):
        name = re.split(r"[.]|^--", word)[-1].replace("-", "_").lower()
        fitting = own.get(name, set())
        if any(fitting) and re.fullmatch(r"[1-9]\d{0,8}", value) and int(value) not in fitting:
            job, one_process = max(fitting), plan.launcher == "lightning" and not plan.scheduler.starts_ranks
            idle = name == "devices" and one_process and int(value) < job
            rest = f"; the other {job - int(value)} idle" if idle else ""
            yield Found(f"{word} {value}, but the job has {job}{rest}; use {word} {job}, or leave it out", warns=idle)


def literal(plan: Plan) -> Iterator[Found]:
    """Warn of a $NAME in the command, which no shell expands: each word arrives as it is given."""
    words = [] if plan.script else plan.request.command
    shell = words and PurePath(words[0]).name in ("bash", "sh", "zsh", "env", "awk", "perl")
    for word in () if shell or "-c" in words else words:
        if found := re.search(r"\$\{?[A-Za-z_]\w*}?", word):
            yield Found(f"{found[0]} in {word!r} is not expanded; use bash -c '...' around it", warns=True)


def dtype(plan: Plan) -> Iterator[Found]:
    """Warn of bf16 or FlashAttention-2 on a GPU that is too old for them."""
    has, gpu = plan.partition.compute_capability, plan.partition.gpu or "the GPU"
    for pattern, name, instead in _NEW_GPUS if has and has < 8 and plan.gpus_per_node else ():
        if any(re.search(pattern, word) for word in plan.request.command):
            text = f"{name} needs compute capability 8.0, {gpu} has {has:g}; use {instead}"
            yield Found(text, partition_key(plan, "compute_capability"), warns=True)


def backend(plan: Plan) -> Iterator[Found]:
    """Warn of nccl on GPUs that torch reaches by another backend."""
    key = "backend" if plan.partition.backend else "vendor"
    has = plan.partition.backend or ("xccl" if plan.partition.vendor == "intel" else "nccl")
    words = plan.request.command if has != "nccl" and plan.gpus_per_node else []
    if any(re.search(r"(?i)\bnccl\b", word) for word in words):
        text = f"torch's backend nccl does not run on {plan.partition.gpu or 'these GPUs'}; use {has}"
        yield Found(text, partition_key(plan, key), warns=True)


def removed_commands(plan: Plan) -> Iterator[Found]:
    """Refuse a command that a site has taken away."""
    texts = [*plan.request.setup, " ".join(plan.request.command)]
    for name, instead in plan.site.removed_commands.items():
        pattern = rf"(?<![\w./-]){re.escape(name)}(?![\w./=-])"
        if at := next((text for text in texts if name in text and re.search(pattern, text)), ""):
            text = f"{name} does not exist on {plan.name} any more; use {instead}"
            yield Found(text, ("removed_commands", name), at=at)
