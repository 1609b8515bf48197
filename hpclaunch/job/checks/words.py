"""Accounts, job names, variables and directives: words that a site or a scheduler mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpclaunch.job.checks.check import partition_key
from hpclaunch.job.checks.directives import found_in_directives
from hpclaunch.job.checks.spelling import option
from hpclaunch.job.diagnostic import Found

if TYPE_CHECKING:
    from hpclaunch.job.plan import Plan

# What the job script sets on every rank, and what PBS itself sets (G. NCPUS shadows a variable given by -v).
RESERVED = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "NODE_RANK", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}
# What bash or the job script itself reads.
SHELLS_OWN = set(
    re.findall(
        r"\w+",
        """
        BASH_ENV BASHOPTS IFS POSIXLY_CORRECT SHELLOPTS answer beat beats code command emulated end ended i job job_id
        job_number left log lost name next node nodes number pid pids running shells show silent told verdict who
        """,
    )
)


# What templates and examples leave to be filled in: anywhere, and (`named`) where a name of the user's own belongs.
_PLACEHOLDER_SIGNS = ("<", "your", "change", "xxx", "path/to/")
_PLACEHOLDER = (
    r"(?i)(?:^|[/=@:+])<[A-Za-z][\w -]*>(?:$|[/=@:.+])|<(?:your|my|insert|path)[\w /-]*>"
    r"|\byour[-_ ]?(?:project|account|email|name|user|path|venv|dir)"
    r"|change[-_]?me\b|(?:^|[/=])x{3,}(?:$|[@/])|(?:^|[=\s\"'])/?path/to/[^\s\"']*"
)
_NAME_SIGNS = (
    *_PLACEHOLDER_SIGNS,
    *[
        "you",
        "{{",
        "todo",
        "fixme",
        "fill",
        "my",
        "some",
        "project",
        "account",
        "example.",
        "insert",
        "replace",
        "hh:mm",
    ],
)
_NAME = (
    r"(?i)<[^>]*>|\byour?(?:[-_. @][\w.]*|\b)|\bhh:mm(?::ss)?\b|\bx{3,}\b|\b(?:todo|fixme|fill[-_ ]?in)\b|\{\{?\w+\}?\}"
    r"|\b(?:my|some)[-_]?(?:project|account|email)\b|\b(?:project|account)[-_]?(?:id|code|name)\b"
    r"|@?\bexample\.(?:com|org)\b|\b(?:insert|replace)[-_]\w+"
)


def placeholder(text: str, named: bool = False) -> str:
    """Return what in a text an example left to be filled in, or ""; `named`: where only a user's own name belongs."""
    small = text.lower()
    found = re.search(_PLACEHOLDER, text) if any(sign in small for sign in _PLACEHOLDER_SIGNS) else None
    if not found and named and any(sign in small for sign in _NAME_SIGNS):
        found = re.search(_NAME, text)
    return re.sub("^/(?=<)", "", found[0].strip("=@:+ \"'")) if found else ""


def account(plan: Plan) -> Iterator[Found]:
    """Refuse an account whose suffix is another partition's; warn of none."""
    suffixes, known = plan.partition.account_suffixes, plan.script.lines if plan.script else {}
    if plan.account is None:
        if plan.site.account_help and "account" not in known:
            text = f"no account to charge; use {option(plan, 'account', 'ACCOUNT')}: {plan.site.account_help}"
            yield Found(text, ("account_help",), warns=True, at=plan.script.last if plan.script else "")
    elif suffixes and not plan.account.endswith(tuple(suffixes)):
        project, own = plan.account.partition("@")[0], plan.site.partitions
        owner = next((name for name in own if plan.account.endswith(tuple(own[name].account_suffixes))), None)
        yield Found(
            f"{plan.account} cannot be charged in {plan.partition_name}, only accounts that end in "
            f"{' or '.join(suffixes)}",
            partition_key(plan, "account_suffixes"),
            suggestions=[{"account": project + suffixes[0]}, {"partition": owner} if owner else {}],
        )


# Options of directives that hold a name of the user's own.
_NAMED = {"account", "partition", "qos", "mail-user", "time", "constraint", "l.storage", "l.walltime", *"PqMA"}
_MAIL = ("mail-user", "M")


def placeholders(plan: Plan) -> Iterator[Found]:
    """Refuse what an example left to be filled in: your_project, <account>, changeme, xxx, /path/to/."""
    for what, text, at, named in _texts(plan):
        if found := placeholder(text, named):
            shown = plan.request.hidden().env.get(what.removeprefix("--env "), text)
            value, part = (repr(text), found) if shown == text else (shown, "a part of it")
            yield Found(f"{what} {value}: {part} is left from an example; fill it in".lstrip(), at=at,
                        warns=what.endswith(_MAIL))  # fmt: skip


def _texts(plan: Plan) -> Iterator[tuple[str, str, str | int, bool]]:
    """Yield what users write themselves: its option, the text, its place, and whether a name of their own belongs."""
    request = plan.request
    if plan.script:
        for one in plan.script.directives.options:
            yield one.written, one.value, one.line, one.name in _NAMED
        yield from (("", line, line, False) for line in request.setup)
        return
    for name, value in (("--account", plan.account), ("--job-name", request.job_name), ("--venv", request.venv)):
        yield name, value or "", "", name == "--account"
    yield from ((f"--env {name}", value, "", False) for name, value in request.env.items())
    repeatable = {
        "--storage": request.storage, "--module": request.module, "COMMAND": request.command,
        "--directive": request.directive, "--setup": request.setup, "--teardown": request.teardown,
    }  # fmt: skip
    for name, values in repeatable.items():
        yield from ((name, value, "", name == "--storage") for value in values)


def modules(plan: Plan) -> Iterator[Found]:
    """Refuse a module of another partition's hardware; in a script also the partition's own, missing or too late."""
    needed = plan.partition.modules
    loaded = plan.script.modules if plan.script else [(0, name) for name in plan.request.module]
    for name, other in plan.site.partitions.items():
        for line, module in loaded:
            if module in set(other.modules) - set(needed) and (plan.gpus_per_node or not plan.script):
                own = f"; use {' '.join(needed)}" if plan.script and needed else "; leave it out"
                text = f"{module} is for {name}, not for {plan.partition_name}{own}"
                yield Found(text, ("partitions", name, "modules"), at=line)
                return
    families = {module.partition("/")[0] for module in plan.site.modules}
    first = next((i for i, (_, module) in enumerate(loaded) if module.partition("/")[0] in families), None)
    if not plan.script or first is None:
        return
    line, family = loaded[first]
    before = [module for _, module in loaded[:first]]
    for module in needed:
        kind = module.partition("/")[0]  # another module of this kind is its older name: cpuarch/amd for arch/a100
        if module not in before and not any(name.partition("/")[0].endswith(kind) for name in before):
            late = next((number for number, name in loaded if name == module), line)
            text = f"{family} on {plan.partition_name} needs {module}, loaded before it"
            yield Found(text, partition_key(plan, "modules"), at=late)


def job_name(plan: Plan) -> Iterator[Found]:
    """Refuse a job name under which Lightning takes a Slurm job for an interactive shell."""
    if plan.job_name in plan.scheduler.interactive_names:
        yield Found(f"under the name {plan.job_name} Lightning ignores Slurm; use another")


def env(plan: Plan) -> Iterator[Found]:
    """Refuse a variable that the job, its shell or the scheduler sets itself."""
    yield from found_in_directives(plan, "env")
    names = sorted({*plan.request.env, *plan.request.pass_env, *plan.site.env})
    for own in sorted(plan.scheduler.own_variables):
        text = f"{own}: the scheduler sets it itself, on each node; use another name"
        yield from (Found(text, warns=True) for name in names if name == own and plan.script is None)
        pattern = rf"\s*(?:export\s+)?{own}="
        yield from (Found(text, warns=True, at=line) for line in plan.request.setup if re.match(pattern, line))
    for name in names if plan.script is None else ():
        if name in RESERVED or name.startswith("HPCLAUNCH_"):
            yield Found(f"--env {name}: the job sets it itself, on each rank; leave it out")
        elif name in SHELLS_OWN:
            yield Found(f"--env {name}: the job script's own shell uses it; set it inside your command")
