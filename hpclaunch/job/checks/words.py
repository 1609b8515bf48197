"""Accounts, job names, variables and directives: words that a site or a scheduler mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpclaunch.job.checks.check import partition_key
from hpclaunch.job.checks.directives import found_in_directives
from hpclaunch.job.checks.suggestions import option
from hpclaunch.job.diagnostic import Found
from hpclaunch.job.directives.read import words
from hpclaunch.job.plan import Plan

# What the job script sets on every rank, and what PBS itself sets (G. NCPUS shadows a variable given by -v).
RESERVED = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "NODE_RANK", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}
# What bash or the job script itself reads.
SHELLS_OWN = words(
    """
    BASH_ENV BASHOPTS IFS POSIXLY_CORRECT SHELLOPTS answer beat beats code command cores emulated end ended fast hosts i
    job job_id job_number left log lost name next node nodes number pid pids running shells show silent told verdict who
    """
)

# What templates and examples leave to be filled in: anywhere, and where a name of the user's own belongs.
_PLACEHOLDER = (
    r"(?i)(?<![^/=@:+])<[A-Za-z][\w -]*>(?![^/=@:.+])|<(?:your|my|insert|path)[\w /-]*>"
    r"|\byour[-_ ]?(?:project|account|email|name|user|path|venv|dir)"
    r"|change[-_]?me\b|(?:^|[/=])x{3,}(?:$|[@/])|(?:^|[=\s\"'])/?path/to/[^\s\"']*"
)
_NAME = (
    r"(?i)<[^>]*>|\byour?(?:[-_. @][\w.]*|\b)|\bhh:mm(?::ss)?\b|\bx{3,}\b|\b(?:todo|fixme|fill[-_ ]?in)\b|\{\{?\w+\}?\}"
    r"|\b(?:my|some)[-_]?(?:project|account|email)\b|\b(?:project|account)[-_]?(?:id|code|name)\b"
    r"|(?-i:\bABC\b)|@?\bexample\.(?:com|org)\b|\b(?:insert|replace)[-_]\w+"
)
# One of these stands in all that either finds; most texts have none, and to compile the patterns takes a millisecond.
_PARTS = words("< { you my some change xxx abc path/to hh:mm todo fixme fill project account example insert replace")
# Options that hold a name of the user's own.
_OWN = words("account partition qos mail-user mail time constraint storage P q M A l.storage l.walltime")


def account(plan: Plan) -> Iterator[Found]:
    """Refuse an account of another form than the site's, or whose suffix is another partition's; warn of none."""
    pattern = plan.site.account_pattern
    if plan.account and pattern and not re.fullmatch(pattern, plan.account):
        use = f"; use {plan.site.account_help}" if plan.site.account_help else ""
        text = f"{plan.account} is no account of {plan.name}, which have the form {pattern}{use}"
        yield Found(text, ("account_pattern",))
    suffixes, own, script = plan.partition.account_suffixes, plan.site.partitions, plan.script
    if plan.account is None:
        if plan.site.account_help and not (plan.partition.free or (script and "account" in script.lines)):
            text = f"no account to charge; use {option(plan, 'account', 'ACCOUNT')}: {plan.site.account_help}"
            yield Found(text, ("account_help",), warns=True, at=script.last if script else "")
    elif suffixes and not plan.account.endswith(tuple(suffixes)):
        owners = [name for name in own if plan.account.endswith(tuple(own[name].account_suffixes))][:1]
        right = [{"account": plan.account.partition("@")[0] + suffixes[0]}, *({"partition": name} for name in owners)]
        text = f"{plan.account} cannot be charged in {plan.partition_name}, only accounts that end in "
        yield Found(text + " or ".join(suffixes), partition_key(plan, "account_suffixes"), suggestions=right)


def placeholders(plan: Plan) -> Iterator[Found]:
    """Refuse what an example left to be filled in: your_project, <account>, changeme, xxx, /path/to/."""
    secrets = plan.request.hidden().env
    for what, name, text, at in _texts(plan):
        if not any(part in text.lower() for part in _PARTS):
            continue
        own = name in _OWN and not what.startswith("--env ")
        found = re.search(_PLACEHOLDER, text) or (re.search(_NAME, text) if own else None)
        if found:
            hidden = secrets.get(name, text) != text
            part = "a part of it" if hidden else found[0].strip("=@:+ \"'")
            message = f"{what} {secrets[name] if hidden else text!r}: {part} is left from an example; fill it in"
            yield Found(message.lstrip(), at=at, warns=own and name in ("mail-user", "mail", "M"))


def _texts(plan: Plan) -> Iterator[tuple[str, str, str, str | int]]:
    """Yield what users write themselves: its option as written, the option's name, the text, its place."""
    request = plan.request
    if plan.script:
        yield from ((one.written, one.name, one.value, one.line) for one in plan.script.directives.options)
        yield from (("", "", line, line) for line in request.setup)
        return
    yield "--account", "account", plan.account or "", ""
    yield from ((f"--env {name}", name, value, "") for name, value in request.env.items())
    for key in ("job_name", "venv", "storage", "module", "directive", "setup", "teardown", "mail", "command"):
        value = getattr(request, key) or []
        for text in [value] if isinstance(value, str) else value:
            yield f"--{key.replace('_', '-')}" if key != "command" else "COMMAND", key, text, ""


def modules(plan: Plan) -> Iterator[Found]:
    """Refuse a module of another partition's hardware; in a script also the partition's own, missing or too late."""
    needed, script = plan.partition.modules, plan.script
    loaded = script.modules if script else [(0, name) for name in plan.request.module]
    others = {name: part.modules for name, part in plan.site.partitions.items() if plan.gpus_per_node or not script}
    wrong = ((name, *one) for name, own in others.items() for one in loaded if one[1] in own and one[1] not in needed)
    for name, line, module in [*wrong][:1]:
        own = f"use {' '.join(needed)}" if script and needed else "leave it out"
        text = f"{module} is for {name}, not for {plan.partition_name}; {own}"
        yield Found(text, ("partitions", name, "modules"), at=line)
        return
    families = tuple(f"{name.partition('/')[0]}/" for name in plan.site.modules)
    first = next((i for i, (_, name) in enumerate(loaded) if f"{name}/".startswith(families)), None)
    for module in needed if script else ():
        kind = module.partition("/")[0]  # another module of this kind is its older name: cpuarch/amd for arch/a100
        older = next((one for one in loaded[:first] if one[1].partition("/")[0].endswith(kind)), None)
        if older and older[1] != module:
            yield Found(f"{older[1]} is an older name; use {module}", partition_key(plan, "modules"), True, at=older[0])
        elif not older and first is not None:
            line, _ = next((one for one in loaded if one[1] == module), loaded[first])
            text = f"{loaded[first][1]} on {plan.partition_name} needs {module}, loaded before it"
            yield Found(text, partition_key(plan, "modules"), at=line)


def job_name(plan: Plan) -> Iterator[Found]:
    """Refuse a job name under which Lightning takes a Slurm job for an interactive shell."""
    if plan.job_name in plan.scheduler.interactive_names:
        yield Found(f"under the name {plan.job_name} Lightning ignores Slurm; use another")


def mail(plan: Plan) -> Iterator[Found]:
    """Refuse mail where the scheduler sends none, and events without an address."""
    address, on = plan.request.mail, plan.request.mail_on
    if address and not plan.scheduler.mail(address, "end"):
        yield Found(f"--mail {address}: the scheduler {plan.scheduler.name} sends no mail; leave it out")
    elif on and not address:
        yield Found(f"--mail-on {on}: no address to mail to; use --mail ADDRESS", at="mail_on")


def env(plan: Plan) -> Iterator[Found]:
    """Refuse a variable that the job, its shell or the scheduler sets itself."""
    yield from found_in_directives(plan, "env")
    names = [] if plan.script else sorted({*plan.request.env, *plan.request.pass_env, *plan.site.env})
    for own in sorted(plan.scheduler.own_variables):
        set_in = [line for line in plan.request.setup if re.match(rf"\s*(?:export\s+)?{own}=", line)]
        for at in [*set_in, *([""] if own in names else [])]:
            yield Found(f"{own}: the scheduler sets it itself, on each node; use another name", warns=True, at=at)
    for name in names:
        if name in RESERVED or name.startswith("HPCLAUNCH_"):
            yield Found(f"--env {name}: the job sets it itself, on each rank; leave it out")
        elif name in SHELLS_OWN:
            yield Found(f"--env {name}: the job script's own shell uses it; set it inside your command")
