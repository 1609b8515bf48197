"""Accounts, job names, variables and directives: words that a site or a scheduler takes amiss."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpclaunch.job.checks.finding import Found, partition_key

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan

# What the job script sets on every rank, and what PBS itself sets (G. NCPUS shadows a variable given by -v).
RESERVED = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "NODE_RANK", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}
RESERVED_PBS = {"NCPUS"}
# What bash or the job script itself reads.
SHELLS_OWN = {
    "BASH_ENV",
    "BASHOPTS",
    "IFS",
    "POSIXLY_CORRECT",
    "SHELLOPTS",
    "answer",
    "beat",
    "beats",
    "code",
    "command",
    "emulated",
    "end",
    "ended",
    "i",
    "job",
    "job_id",
    "job_number",
    "left",
    "log",
    "lost",
    "name",
    "next",
    "node",
    "nodes",
    "number",
    "pid",
    "pids",
    "running",
    "shells",
    "show",
    "silent",
    "told",
    "verdict",
    "who",
}

# What templates and examples leave for a person to fill in: anywhere, and (`named`) where a name of one's own belongs.
_PLACEHOLDER_SIGNS = ("<", "your", "change", "xxx", "path/to/")
_PLACEHOLDER = (
    r"(?i)(?:^|[/=@:+])<[A-Za-z][\w -]*>(?:$|[/=@:.+])|<(?:your|my|insert|path)[\w /-]*>"
    r"|\byour[-_ ]?(?:project|account|email|name|user|path|venv|dir)"
    r"|change[-_]?me\b|(?:^|[/=])x{3,}(?:$|[@/])|(?:^|[=\s\"'])/?path/to/[^\s\"']*"
)
_NAME_SIGNS = (
    *_PLACEHOLDER_SIGNS,
    *["you", "{{", "todo", "fixme", "fill", "my", "some", "project", "account", "example.", "insert", "replace"],
)
_NAME = (
    r"(?i)<[^>]*>|\byour?(?:[-_ @]\w*|\b)|\bx{3,}\b|\b(?:todo|fixme|fill[-_ ]?in)\b|\{\{?\w+\}?\}"
    r"|\b(?:my|some)[-_]?(?:project|account|email)\b|\b(?:project|account)[-_]?(?:id|code|name)\b"
    r"|@?\bexample\.(?:com|org)\b|\b(?:insert|replace)[-_]\w+"
)


def placeholder(text: str, named: bool = False) -> str:
    """Return what in a text an example left to be filled in, or ""; `named`: where only a name of one's own belongs."""
    small = text.lower()
    found = re.search(_PLACEHOLDER, text) if any(sign in small for sign in _PLACEHOLDER_SIGNS) else None
    if not found and named and any(sign in small for sign in _NAME_SIGNS):
        found = re.search(_NAME, text)
    return found[0].strip("=@:+ \"'") if found else ""


def account(plan: Plan) -> Iterator[Found]:
    """Refuse an account whose suffix is another partition's; warn of none."""
    suffixes = plan.partition.account_suffixes
    if plan.account is None:
        if plan.site.account_help:
            yield Found(f"none given; {plan.site.account_help}", ("account_help",), warns=True)
    elif suffixes and not plan.account.endswith(tuple(suffixes)):
        project = plan.account.partition("@")[0]
        owner = next(
            (
                name
                for name, other in plan.site.partitions.items()
                if plan.account.endswith(tuple(other.account_suffixes))
            ),
            None,
        )
        yield Found(
            f"{plan.account} asked, {plan.partition_name} charges accounts that end in {' or '.join(suffixes)}",
            partition_key(plan, "account_suffixes"),
            suggestions=[{"account": project + suffixes[0]}, {"partition": owner} if owner else {}],
        )


def placeholders(plan: Plan) -> Iterator[Found]:
    """Refuse what an example left to be filled in: your_project, <account>, changeme, xxx, /path/to/."""
    request = plan.request
    words = [
        *((f"--env {name}", value) for name, value in request.env.items()),
        *(("--storage", name) for name in request.storage),
        *(("--module", name) for name in request.module),
        *(("--directive", line) for line in request.directive),
        *(("--setup", line) for line in request.setup),
        *(("--teardown", line) for line in request.teardown),
        *(("COMMAND", word) for word in request.command),
    ]
    for option, text in (("--account", plan.account), ("--job-name", request.job_name), ("--venv", request.venv)):
        if text:
            words.insert(0, (option, text))
    shown = {f"--env {name}": value for name, value in request.hidden().env.items()}
    for option, text in words:
        if found := placeholder(text, option in ("--account", "--storage")):
            value, what = (repr(text), found) if shown.get(option, text) == text else (shown[option], "a part of it")
            yield Found(f"{option} {value}: {what} is left from an example; fill it in")


def modules(plan: Plan) -> Iterator[Found]:
    """Refuse a module that belongs to another partition's hardware."""
    for name, other in plan.site.partitions.items():
        for module in set(other.modules) - set(plan.partition.modules):
            if module in plan.request.module:
                own = f", which loads {' '.join(plan.partition.modules)} by itself" if plan.partition.modules else ""
                yield Found(
                    f"{module} asked is for {name}, not for {plan.partition_name}{own}; leave it out",
                    ("partitions", name, "modules"),
                )


def job_name(plan: Plan) -> Iterator[Found]:
    """Refuse a job name under which Lightning takes a Slurm job for an interactive shell."""
    if plan.job_name in plan.scheduler.interactive_names:
        yield Found(f"{plan.job_name} asked, Lightning ignores Slurm under that name; choose another")


def env(plan: Plan) -> Iterator[Found]:
    """Refuse a variable that the job, its shell or the scheduler sets itself."""
    reserved = RESERVED | (RESERVED_PBS if plan.site.scheduler == "pbs" else set())
    for name in sorted({*plan.request.env, *plan.request.pass_env, *plan.site.env}):
        if name in reserved or name.startswith("HPCLAUNCH_"):
            yield Found(f"--env {name}: the job sets it itself, on each rank; leave it out")
        elif name in SHELLS_OWN:
            yield Found(f"--env {name}: the job script's shell has its own use for it; set it inside your command")
