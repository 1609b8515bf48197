"""The `hpclaunch render` command that asks for a script's job, on its own site or on another."""

from typing import Any

from hpclaunch.errors import RequestError
from hpclaunch.job.checks.words import RESERVED
from hpclaunch.job.directives.read import PREFIX, words
from hpclaunch.job.request import make_request
from hpclaunch.profile.search import Profile
from hpclaunch.scripts.examine import Report
from hpclaunch.scripts.launch import Program
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
    own, alike = report.profile, target.site.scheduler == report.profile.site.scheduler
    same = target.name == own.name
    left = [f"line {line}: {text}: {why}" for line, text, why in asked.left]
    values: dict[str, Any] = {"site": target.name}
    for key, value in complete(asked, program.main[0]).items():
        if key in _KEPT or (same and key in _OF_A_SITE):
            values[key] = value
        elif key in _OF_A_SITE:
            text = " ".join(map(str, value)) if isinstance(value, list) else value
            left.append(f"{key.replace('_', ' ')} {text}: {own.name}'s own; choose {target.name}'s")
    directives = [text for _, text in asked.carried if not alike or text not in target.site.directives]
    values["directive"] = directives if alike else []
    left += [] if alike else [f"{PREFIX[own.site.scheduler]} {text}: no counterpart is known" for text in directives]
    if problems := _prepare(program, values, left, same):
        return "", left, problems
    try:
        return make_request(values).command_line(), left, []
    except RequestError as error:
        return "", left, str(error).splitlines()


def _prepare(program: Program, values: dict[str, Any], left: list[str], same: bool) -> list[str]:
    """Put the command and what stands around it into `values`; return what a request cannot hold."""
    start = program.main[0]
    at = f"line {start.line}:"
    if around := start.command.inside - {"shell", "list"}:
        return [f"{at} the command stands in a block ({', '.join(sorted(around))}), a request's by itself"]
    if unknown := next((word for word in start.words if word.expands), None):
        return [f"{at} {unknown} in the command has a variable, and a request's words are taken as they are"]
    values |= {name: [] for name in ("module", "setup", "teardown")}
    values["env"] = values.get("env", {}) | {one.name: str(one.value) for one in start.command.settings}
    values["command"] = [str(word) for word in start.words]
    problems = []
    for command in program.body.commands:
        if (
            command in (start.command, start.command.within)
            or command.name in _DONE
            or "substitution" in command.inside
        ):
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
    rest, head, settings = command.words[1:], command.name, command.settings
    if head == "module" and rest[:1] and rest[0] in ("load", "add"):
        values["module"] += map(str, rest[1:]) if same else []
        left += [] if same else [f"{where}: modules differ from site to site"]
    elif head in ("source", ".") and rest and rest[0].endswith("/bin/activate") and "venv" not in values:
        values["venv"] = rest[0].removesuffix("/bin/activate")
    elif head == "export" and settings and not any(one.value.expands or one.name in RESERVED for one in settings):
        values["env"] |= {one.name: str(one.value) for one in settings}
    # `module purge` and `use` are the profile's, the job sets RESERVED and starts in the folder of its submission.
    elif not (
        head == "module"
        or (head == "cd" and rest and rest[0].raw.strip('"') in _HOME)
        or (settings and {one.name for one in settings} <= RESERVED)
    ):
        values["setup"].append(_raw(command))


def _raw(command: Command) -> str:
    """Return a command as it stands in the script, on one line."""
    words, settings = [word.raw for word in command.words], [f"{one.name}={one.value.raw}" for one in command.settings]
    return " ".join([*words[:1], *settings, *words[1:]])
