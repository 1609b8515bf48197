"""The `hpclaunch render` command that asks for a script's job, on its own site or on another."""

import re
from collections.abc import Iterator
from typing import Any

from hpclaunch.job.checks.words import RESERVED
from hpclaunch.job.consider import consider
from hpclaunch.job.directives.read import PREFIX, dialect, words
from hpclaunch.job.request import NONE, make_request
from hpclaunch.profile.model import Site
from hpclaunch.profile.search import Profile
from hpclaunch.scripts.examine import Report
from hpclaunch.scripts.launch import Program, opened
from hpclaunch.scripts.ranks import complete

# What a request has in its own words, what only one site knows, and what its job script does by itself.
_KEPT = words("walltime nodes tasks_per_node gpus_per_node job_name launcher env mail mail_on command")
_OF_A_SITE = words("account partition qos storage cpus_per_task mem_gb jobfs_gb")
_DONE = words("wait exit echo printf date deactivate")
_RISKY = words("rm rmdir mv unlink find sbatch qsub")  # after a failure, or when the walltime ends
_HOME = re.compile(r'cd "?\$\{?(PBS_O_WORKDIR|SLURM_SUBMIT_DIR)\}?"?')
_VENV = re.compile(r"(~|\$\w+|\$\{\w+\})?/[^$~*`]+/bin/activate")


def as_request(report: Report, target: Profile) -> tuple[str, list[str], list[str]]:
    """Return the command, what it leaves out, and why there is no command; lines are named as `line N`."""
    asked, program = report.asked, report.program
    if asked is None or program is None:
        return "", [], ["the script's directives were not read"]
    if len(program.main) != 1:
        where = f", lines {', '.join(str(start.line) for start in program.main)}" if program.main else ""
        return "", [], [f"the script has {len(program.main)} main commands{where}; a request has one"]
    own, alike = report.profile, target.site.scheduler == report.profile.site.scheduler
    same = target.name == own.name
    left = [f"line {line}: {text}: {why}" for line, text, why in asked.left]
    values: dict[str, Any] = {"site": target.name, "module": [], "env": {}, "setup": [], "teardown": []}
    for key, value in complete(asked, program.main[0]).items():
        if key in _KEPT or (same and key in _OF_A_SITE):
            values[key] = value
        elif key in _OF_A_SITE:
            text = " ".join(map(str, value)) if isinstance(value, list) else value
            left.append(f"{key.replace('_', ' ')} {text}: {own.name}'s own; choose {target.name}'s")
    directives = [text for _, text in asked.carried if not alike or text not in target.site.directives]
    values["directive"] = directives if alike else []
    left += [] if alike else [f"{PREFIX[own.site.scheduler]} {text}: no counterpart is known" for text in directives]
    if asked.mixed:
        return "", [], [f"{asked.mixed}, and all nodes of a request are alike"]
    problems = _start(report, program, values, left) or [*_around(program, values, left, own.site if same else None)]
    if same and "partition" not in values and not own.site.any_partition and asked.partition.directives != []:
        problems.append(f"no queue requested, so {own.name} chooses one; name one in the script")
    if same:  # nothing of the profile's where the script has nothing
        values["module"] = values["module"] or NONE
        values["storage"] = [*(NONE if own.site.storage else ()), *values.get("storage", [])]
        values.setdefault("jobfs_gb", 1 if own.site.ask_jobfs else None)
    mistaken: list[tuple[str, str]] = []
    request = make_request(values, mistaken)
    problems += [f"{name}: {what}" for name, what in mistaken]
    plan, found = consider(target, request)
    against = [text for text in request.directive for one in found if one.check == "repeated" and text in one.message]
    left += [f"{text}: the command's own options stand for it" for text in against]
    added = [text for text in own.site.directives if same and text not in [one for _, one in asked.carried]]
    left += [f"{text}: the command's job has it, the script's not" for text in added]
    of, given = dialect(own.site.scheduler), asked.directives
    for name, (key, value, text) in of.planned(plan).items() if plan and same else ():
        option = given.first(name) if of.TOGETHER else given.last(name)
        sign = own.site.storage_join if key == "storage" else None
        if option and value and key != "partition" and {*of.same(option).split(sign)} != {*value.split(sign)}:
            left.append(f"line {option.line}: {option.directive}: the command asks for {text}")
        elif value and key in words("walltime mem_gb jobfs_gb storage") - asked.lines.keys():
            left.append(f"{text}: the command asks for it, the script for none")
    values["directive"] = [text for text in request.directive if text not in against]
    return ("", [], problems) if problems else (make_request(values).command_line(), left, [])


def _start(report: Report, program: Program, values: dict[str, Any], left: list[str]) -> list[str]:
    """Put the command into `values`; return why a request cannot hold it."""
    start, command, nodes, tasks = program.main[0], program.main[0].command, values["nodes"], values["tasks_per_node"]
    values["env"] |= {one.name: str(one.value) for one in command.settings}
    at, around, launcher = f"line {start.line}:", sorted(command.inside - {"list"}), values["launcher"]
    unknown = next((word for word in [*start.words, *(one.value for one in command.settings)] if word.expands), "")
    reads = any(re.search(rf"<\s*{re.escape(file.raw)}", report.text) for file in command.files)
    once = not start.parallel and (nodes > 1 or (tasks > 1 and launcher == "tasks"))
    left += [f"{at} output to {file.raw}: the run folder has it" for file in command.files]
    before = opened(command.words, program.variables)[: -sum(word.line > 0 for word in start.words)]
    left += [f"{at} `{' '.join(word.raw for word in before)}`: --launcher {launcher} instead"] if before else []
    problems = {
        f"the command stands in a block ({', '.join(around)}), a request's by itself": around,
        f"{unknown} in the command has a variable, and a request's words are taken as they are": unknown,
        "the command reads a file or a text, which a request cannot hold": reads or command.heredocs,
        f"the script starts it once, a request {nodes * tasks} times": once or start.layer("ssh", "pbsdsh"),
    }
    return [f"{at} {text}" for text, wrong in problems.items() if wrong]


def _around(program: Program, values: dict[str, Any], left: list[str], site: Site | None) -> Iterator[str]:
    """Put the other commands into `values`, modules, venv and env only before any setup; yield what does not fit."""
    main, after = program.main[0].command, False
    for command in program.body.commands:
        after = after or command is main
        name, rest = command.name, command.words[1:]
        raw = [word.raw for word in command.words]
        line = " ".join([*raw[:1], *(f"{one.name}={one.value.raw}" for one in command.settings), *raw[1:]])
        first = all(line.startswith("set ") for line in values["setup"])
        done = (name in _DONE and not command.files) or (first and _HOME.fullmatch(line))
        if done or command is main or command.within or "substitution" in command.inside:
            continue
        where, expands = f"line {command.line}: `{line[:60]}`", {sign for word in rest for sign in word.expands}
        literal = not any(one.value.expands or one.items or one.name in RESERVED for one in command.settings)
        match [name, *rest]:
            case _ if command.inside or command.heredocs or command.files or (name == "trap" and rest[-1:] != ["EXIT"]):
                yield f"{where}: a request cannot hold a block, a function or a redirection, nor a trap"
            case _ if after and name in _RISKY:
                yield f"{where}: what a request does after its command is done after a failure too"
            case _ if after:
                values["teardown"].append(line)
                left.append(f"{where} only after the command's own end: a teardown runs after a failure or signal too")
            case ["module", *_] if site is None:
                left.append(f"{where}: modules differ from site to site")
            case ["module", "load" | "add", *names] if first and not expands:
                values["module"] += map(str, names)
            case ["module", "purge"] if first and site and site.module_purge:
                values["module"] = []  # the job purges at its beginning
            case ["source" | ".", path] if first and _VENV.fullmatch(path) and not expands & {*values["env"]}:
                values["venv"] = path.removesuffix("/bin/activate")
            case ["export"] if literal:
                values["env"] |= {one.name: str(one.value) for one in command.settings}
            case _:
                values["setup"].append(line)
