"""The folders of a job: file systems that it must name, and those that are small, emptied, or not seen."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpclaunch.job.checks.command import options
from hpclaunch.job.diagnostic import Found, Suggestion
from hpclaunch.job.plan import Plan
from hpclaunch.job.storage import as_named, named_by

# Words of a name, whole ones between _, - and dots: --timeout is no `out`. The second is of what is large besides.
_PARTS = r"(?i)(?:^|[_.-])(?:(?:{})(?:dir|file|folder|path|root)?(?=[_.-]|$){})"
_RESULTS = "out|outputs?|logs?|save|saved|ckpts?|checkpoints?|root"
_WRITTEN = _PARTS.format(_RESULTS, "")
_LARGE = _PARTS.format(rf"{_RESULTS}|caches?|data|datasets?|venvs?", "|(?<=[_.-])home$|>$|o$|source$")
_FILES = r"((?<!\S)>|^-o|^--output|^source(?= \S+/bin/activate))[ =]?(\S+)"
_HOMES = ("~/", "$HOME/", "${HOME}/", "/home/")


def _settings(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield what a request says of folders: the venv, variables, the command's options."""
    yield "--venv", plan.request.venv or ""
    yield from plan.request.env.items()
    for line in plan.request.setup:
        found = re.match(r"\s*(?:export\s+)?([A-Za-z_]\w*)=([^\s;&|]+)", line)
        if found and found[1] not in plan.request.env:
            yield found[1], found[2].strip("\"'")
    for line in [*plan.request.setup, *plan.request.directive]:
        yield from re.findall(_FILES, line)
    yield from options(plan.request.command)


def home(plan: Plan) -> Iterator[Found]:
    """Warn of an environment, a cache, data or logs in a home folder that holds little."""
    for name, value in _settings(plan) if plan.site.home_gb is not None else ():
        if plan.request.machine.links.get(value, value).startswith(_HOMES) and re.search(_LARGE, name):
            text = f"{name} {value} is in the home folder, which holds {plan.site.home_gb:g} GB on {plan.name}; "
            yield Found(f"{text}use a larger file system", ("home_gb",), warns=True, at=_first(plan, value))


def expiring(plan: Plan) -> Iterator[Found]:
    """Warn of results in a folder whose unused files are removed."""
    for root, days in plan.site.expiring.items():
        for name, value in _settings(plan):
            if _below(value, root) and re.search(_WRITTEN, name):
                text = f"{name} {value}: files unused for {days} days are removed from {root}; copy what you keep"
                yield Found(text, ("expiring", root), warns=True, at=_first(plan, value))


def reach(plan: Plan) -> Iterator[Found]:
    """Warn of a folder that only other partitions see."""
    texts = [*plan.request.command, *plan.request.setup, *plan.request.env.values(), plan.request.venv or ""]
    for root, names in plan.site.only_on.items():
        if plan.partition_name not in names and any(_below(text, root) for text in texts):
            text = f"{root} is seen by {', '.join(names)} only, not by {plan.partition_name}; copy it beforehand"
            yield Found(text, ("only_on", root), warns=True, at=_first(plan, root))


def _below(text: str, root: str) -> bool:
    name = re.escape(root.removeprefix("$"))
    pattern = rf"\$(?:{name}|\{{{name}\}})(?!\w)" if root.startswith("$") else rf"(?<![\w.~}}-]){name}(?![\w-])"
    return root.removeprefix("$") in text and re.search(pattern, text) is not None


def _first(plan: Plan, word: str) -> str:
    """Return the first line of setup, or directive, with a word in it."""
    return next((line for line in [*plan.request.setup, *plan.request.directive] if word.removeprefix("$") in line), "")


def storage(plan: Plan) -> Iterator[Found]:
    """Refuse a --storage that is no file system, and a script's path in one not requested; warn of needless ones."""
    roots, request = plan.site.storage_roots, plan.request
    if request.storage and not roots and not plan.site.storage:
        text = f"{' '.join(request.storage)}: jobs on {plan.name} see every file system unnamed; leave it out"
        yield Found(text, warns=True)
    own = [as_named(plan.site, name) for name in request.storage]
    if plan.script:
        yield from _unseen(plan, own)
        if roots and not (own or plan.site.storage_given):
            text = f"no file systems requested, and a job on {plan.name} must name some"
            right: list[Suggestion] = [{"storage": plan.storage}] if plan.storage else []
            yield Found(text, ("storage_roots",), suggestions=right, at=plan.script.last)
    whole = plan.site.storage_whole
    prefixes = tuple(name if whole else f"{name}/" for name in roots.values())
    for name in own if plan.script else plan.storage if roots else ():
        if not (name in prefixes if whole else name.startswith(prefixes)):
            forms = ", ".join(prefix if whole else f"{prefix}PROJECT" for prefix in dict.fromkeys(prefixes))
            yield Found(f"{name!r} names no file system of {plan.name}; use {forms}", ("storage_roots",))
    text = "\n".join(() if plan.script else (*request.setup, *request.env.values(), request.venv or ""))
    for root, name in roots.items() if "$" in text else ():
        for found in re.findall(rf"(?<![\w.}}~-]){re.escape(root)}/+\$\{{?\w+\}}?", text):
            use = f"{found}: its file system is known in the job only; add --storage {name}/..."
            yield Found(use, ("storage_roots", root), warns=True)


def _unseen(plan: Plan, own: list[str]) -> Iterator[Found]:
    """Yield the file systems of a script's paths, and those behind its links, that its job does not see."""
    account = plan.request.account or plan.site.account
    links, needed = plan.request.machine.links, dict[str, tuple[str, str]]()
    for line in plan.request.setup:
        behind = {real: f"{word} leads to " for word, real in links.items() if len(word) > 1 and word in line}
        for text, link in {line: "", **behind}.items():
            for name in named_by(plan.site, account, [text]):
                needed.setdefault(name, (line, link))
    missing = sorted(needed.keys() - set(own))
    for name in missing:
        line, link = needed[name]
        maybe = not account and name.partition("/")[0] + "/{account}" in plan.site.storage_given
        text = f"{link}a path in {name}, which the job {'sees only if charged to it' if maybe else 'does not see'}"
        key, right = "storage_given" if maybe else "storage_roots", {"storage": [*own, *missing]}
        yield Found(text, (key,), warns=maybe, suggestions=[right], at=line, certain=not maybe)
