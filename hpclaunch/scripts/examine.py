"""A script against a site: read into a request, checked like one, its diagnostics placed at its lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct, structs

from hpclaunch.errors import printable
from hpclaunch.job.checks import CHECKS, Diagnostic, Found, Script
from hpclaunch.job.checks.check import Check, judged
from hpclaunch.job.checks.directives import output_folders
from hpclaunch.job.consider import consider
from hpclaunch.job.diagnostic import Edit
from hpclaunch.job.directives import read as directives
from hpclaunch.job.directives.asked import Asked
from hpclaunch.job.directives.options import Directives
from hpclaunch.job.directives.read import PREFIX
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request, make_request
from hpclaunch.profile.model import Site
from hpclaunch.profile.search import Profile
from hpclaunch.scripts import commands, shell
from hpclaunch.scripts.checks import SCRIPT_CHECKS
from hpclaunch.scripts.launch import Program, modules, understand
from hpclaunch.scripts.ranks import complete

_SHELLS = re.compile(r"#!.*?\b(ba|z|k|da|)sh\b")


class Report(Struct):
    """A script as it was understood, and its diagnostics in the order of its lines."""

    text: str
    profile: Profile
    diagnostics: list[Diagnostic]
    asked: Asked | None = None
    program: Program | None = None
    request: Request | None = None
    plan: Plan | None = None

    @property
    def lines(self) -> list[str]:
        """Return the script's lines without their ends."""
        return split_lines(self.text)

    @property
    def refused(self) -> bool:
        """Tell whether the script would be refused, or go wrong."""
        return any(one.refuses for one in self.diagnostics)


def split_lines(text: str) -> list[str]:
    """Return a script's lines without their ends."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def is_shell(first_line: str) -> bool:
    """Tell whether a script is one that bash, or a shell like it, would run."""
    return not first_line.startswith("#!") or _SHELLS.match(first_line) is not None


def examine(
    text: str,
    profile: Profile,
    typed: dict[str, Any] | None = None,
    missing: Callable[[set[str]], dict[str, bool]] = lambda _folders: {},
    follow: Callable[[Site, Request], Request] = lambda _site, request: request,
) -> Report:
    """Return what is wrong with a script at this site.

    `typed` are options of the command line, which win over the script's as those of qsub and sbatch do. `missing` tells
    which folders are not there, and whether that is sure, `follow` where a request's links lead.
    """
    typed, lines, scheduler = typed or {}, split_lines(text), profile.site.scheduler
    force = typed.get("force", [])
    body = shell.read("\n".join(lines)) if is_shell(lines[0]) else shell.Script()
    report = Report(text, profile, [])
    found: list[tuple[str, Found]] = []
    if "\r\n" in text:
        what = "lines end as on Windows, which qsub and sbatch refuse; use dos2unix"
        found.append(("crlf", Found(what, at=text[: text.index("\r\n")].count("\n") + 1, edits=[Edit(0, "\r", "")])))
    if body.error:
        found.append(("shell", Found(body.error[1], at=body.error[0])))
    elif body.unread:
        what = "this line could not be read: the commands from here on are checked in part"
        found.append(("shell", Found(what, at=body.unread, warns=True)))
    script = Script(Directives(scheduler))
    own = directives.scheduler_of(lines, scheduler)
    if own != scheduler:
        found.append(("scheduler", _foreign(lines, own, profile)))
    elif wrong := _no_job(lines, PREFIX[scheduler]):
        found.append(("scheduler", wrong))
    else:
        script = _look(report, typed, body, found, missing, follow)
    for check, one in found:
        report.diagnostics.append(judged(profile, check, SCRIPT_CHECKS.get(check) or CHECKS[check], one))
    placed = (_placed(one, script, force) for one in report.diagnostics)
    different = {(one.line, one.check, one.message): one for one in placed}
    report.diagnostics = sorted(different.values(), key=lambda one: (one.line, not one.refuses))
    return report


def _look(
    report: Report,
    typed: dict[str, Any],
    body: shell.Script,
    found: list[tuple[str, Found]],
    missing: Callable[[set[str]], dict[str, bool]],
    follow: Callable[[Site, Request], Request],
) -> Script:
    """Read the script into a request and check that; add what only a script can have wrong to `found`."""
    profile, lines = report.profile, report.lines
    site, scheduler = profile.site, profile.site.scheduler
    given = directives.read(lines, scheduler, body.heredocs)
    report.program = program = understand(body, site)
    report.asked = asked = directives.dialect(scheduler).ask(profile, given, typed)
    found += [(check, one) for check, one in given.found if check not in ("directives", "env")]
    found += commands.look(program, asked)
    main, texts = program.main, list(commands.texts(program, asked))
    values = complete(asked, main[-1] if main else None) | typed
    values |= {"directive": [text for _, text in asked.carried], "setup": [text for _, text in texts]}
    if "qos" not in values and (default := next((qos.name for qos in asked.partition.qos if qos.default), None)):
        values["qos"] = default
    values["force"] = [name for name in typed.get("force", []) if name in CHECKS or name not in SCRIPT_CHECKS]
    lines_of = {text: line for line, text in reversed([*texts, *asked.carried])} | asked.lines
    if main:
        lines_of["command"] = main[-1].line
    script = Script(
        given,
        lines_of,
        asked.total,
        steps=not program.starts or any(start.layer("srun", "mpirun") for start in program.starts),
        traps=any(command.name == "trap" for command in body.commands),
        modules=_modules(program, asked),
    )
    values["machine"] = {"missing_folders": missing(output_folders(given))}
    mistaken: list[tuple[str, str]] = []
    request = make_request(values, mistaken)
    report.request = structs.replace(follow(site, request), storage=request.storage)  # what the script itself names
    wrong = {one.at for _, one in given.found if not one.warns}
    wrong |= {option.line for option in given.options if "<" in option.value}
    for key, message in mistaken:
        if asked.lines.get(key, 0) not in wrong:
            check = "job-name" if key == "job_name" else "directives"
            found.append((check, Found(f"{asked.values.get(key, '')!r}: {message}", at=asked.lines.get(key, 0))))
    report.plan, diagnostics = consider(profile, report.request, script)
    for name, rule in SCRIPT_CHECKS.items():
        found += [(name, one) for one in rule.function(report.plan)] if rule.function and report.plan else []
    for one in diagnostics:
        if not (
            asked.open_queue and _of_partition(one)
        ):  # of a restricted one nothing can be rendered, but the script may run
            report.diagnostics.append(structs.replace(one, refuses=one.refuses and one.key != "restricted"))
    return script


def _modules(program: Program, asked: Asked) -> list[tuple[int, str]]:
    """Return the modules that the script loads, with their lines; none if only some of its jobs load them."""
    loaded = list(modules(program.body))
    sure = not asked.partition.free and not any(command.inside & {"if", "function"} for command, _ in loaded)
    return [(command.line, str(module)) for command, module in loaded] if sure else []


def _of_partition(one: Diagnostic) -> bool:
    """Tell whether a diagnostic rests on the partition, which a script without a queue leaves open."""
    check = CHECKS.get(one.check)
    return one.key.startswith("partitions.") or (check is not None and "tasks_per_node" in check.options)


def _placed(one: Diagnostic, script: Script, force: list[str]) -> Diagnostic:
    """Return a diagnostic at its line; one of a check that is forced only warns."""
    check = CHECKS.get(one.check, Check())
    line = min(script.place(one, check.options.split()), 10**9)
    text = printable(one.message, kept="")
    return structs.replace(one, line=line, at="", message=text, refuses=one.refuses and one.check not in force)


def _foreign(lines: list[str], own: str | None, profile: Profile) -> Found:
    prefix = PREFIX[profile.site.scheduler]
    if own is None:
        return Found(f"no {prefix} line, so it asks {profile.name} for nothing", at=0, warns=True)
    line = next(i for i, line in enumerate(lines, 1) if line.startswith(PREFIX[own]))
    return Found(f"{PREFIX[own]} lines, but {profile.name} reads {prefix} lines and ignores them", at=line)


def _no_job(lines: list[str], prefix: str) -> Found | None:
    """Say why a file is no job script: a program that writes some, or one whose directives come too late."""
    end = directives.first_command(lines)
    if any(line.startswith(prefix) for line in lines[:end]):
        return None
    first = next(i for i, line in enumerate(lines, 1) if line.startswith(prefix))
    text = f"no {prefix} line before line {end + 1}, the first command: this is not a job script"
    return Found(f"{text} as it is, the lines from {first} on are ignored or another file's", at=end + 1, warns=True)
