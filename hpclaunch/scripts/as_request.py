"""The `hpclaunch render` command that asks for a script's job, on its own site or on another."""

from __future__ import annotations

from typing import Any

from hpclaunch.errors import RequestError
from hpclaunch.job.checks.words import RESERVED
from hpclaunch.job.directives.read import PREFIX, words
from hpclaunch.job.request import make_request
from hpclaunch.profile.search import Profile
from hpclaunch.scripts.examine import Report
from hpclaunch.scripts.launch import Launch
from hpclaunch.scripts.ranks import complete
from hpclaunch.scripts.shell import Command

# What a request has in its own words, what only one site knows, and what its job script does by itself.
_KEPT = words("walltime nodes tasks_per_node gpus_per_node job_name launcher")
_OF_A_SITE = words("account partition qos storage cpus_per_task mem_gb jobfs_gb")
_DONE = words("set wait exit echo printf date")
_HOME = {"$PBS_O_WORKDIR", "${PBS_O_WORKDIR}", "$SLURM_SUBMIT_DIR", "${SLURM_SUBMIT_DIR}"}


def as_request(report: Report, target: Profile) -> tuple[str, list[str], list[str]]:
    """Return the command, what it leaves out, and why there is no command; lines are named as `line N`."""
    asked, program = report.asked, report.program
    if asked is None or program is None:
        return "", [], ["the script's directives were not read"]
    if len(program.main) != 1:
        where = f", lines {', '.join(str(start.line) for start in program.main)}" if program.main else ""
        return "", [], [f"the script has {len(program.main)} main commands{where}; a request has one"]
    start = program.main[0]
    left = [f"line {line}: {text}: {why}" for line, text, why in asked.left]
    same = target.name == report.profile.name
    values: dict[str, Any] = {"site": target.name}
    for key, value in complete(asked, start).items():
        if key in _KEPT or (same and key in _OF_A_SITE):
            values[key] = value
        elif key in _OF_A_SITE:
            left.append(f"{key.replace('_', ' ')} {_text(value)}: {report.profile.name}'s own; choose {target.name}'s")
    directives = [text for _, text in asked.carried]
    alike = target.site.scheduler == report.profile.site.scheduler
    prefix = PREFIX[report.profile.site.scheduler]
    values["directive"] = [text for text in directives if text not in target.site.directives] if alike else []
    left += [] if alike else [f"{prefix} {text}: no counterpart is known" for text in directives]
    problems = _prepare(report, start, values, left, same)
    try:
        command = make_request(values).command_line()
    except RequestError as error:
        return "", left, str(error).splitlines()
    return ("" if problems else command), left, problems


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _prepare(report: Report, start: Launch, values: dict[str, Any], left: list[str], same: bool) -> list[str]:
    """Put what comes before the command into `values`; return what a request cannot hold."""
    assert report.program is not None  # noqa: S101 - as_request has seen to it
    problems: list[str] = []
    values |= {"module": [], "setup": [], "teardown": [], "env": dict(values.get("env", {}))}
    values["env"] |= {one.name: str(one.value) for one in start.command.settings}
    outer = start.command.within
    if around := start.command.inside - {"shell", "list"}:
        return [
            f"line {start.line}: the command stands in a block ({', '.join(sorted(around))}), a request's by itself"
        ]
    if unknown := next((word for word in start.words if word.expands), None):
        return [
            f"line {start.line}: {unknown} in the command has a variable, and a request's words are taken as they are"
        ]
    values["command"] = [str(word) for word in start.words]
    for command in report.program.body.commands:
        if command in (start.command, outer) or command.name in _DONE or "substitution" in command.inside:
            continue
        where = f"line {command.line}: `{' '.join(word.raw for word in command.words)[:60]}`"
        if command.line > start.line and not command.inside:
            values["teardown"].append(_raw(command))
        elif command.inside or command.heredocs or command.files:
            problems.append(f"{where}: a request cannot hold what stands in a block, a function or a redirection")
        else:
            _line(command, values, where, left, same)
    return problems


def _line(command: Command, values: dict[str, Any], where: str, left: list[str], same: bool) -> None:
    """Put one command into `values`, in a request's own words if it has some."""
    rest, head = command.words[1:], command.name
    if head == "module" and rest[:1] and rest[0] in ("load", "add"):
        values["module"] += map(str, rest[1:]) if same else []
        left += [] if same else [f"{where}: modules differ from site to site"]
    elif head == "module" or (head == "cd" and rest and rest[0].raw.strip('"') in _HOME):
        return  # purge and use are the profile's; the job starts in the folder of its submission
    elif head in ("source", ".") and rest and rest[0].endswith("/bin/activate") and "venv" not in values:
        values["venv"] = rest[0].removesuffix("/bin/activate")
    elif command.settings and {one.name for one in command.settings} <= RESERVED:
        return  # the job script sets them
    elif head == "export" and command.settings and not any(one.value.expands for one in command.settings):
        values["env"] |= {one.name: str(one.value) for one in command.settings}
    else:
        values["setup"].append(_raw(command))


def _raw(command: Command) -> str:
    """Return a command as it stands in the script, on one line."""
    settings = [f"{one.name}={one.value.raw}" for one in command.settings]
    return " ".join([*(word.raw for word in command.words[:1]), *settings, *(word.raw for word in command.words[1:])])
