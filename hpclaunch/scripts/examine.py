"""A script against a site: read into a request, checked like one, its diagnostics placed at its lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct, structs

from hpclaunch.errors import printable
from hpclaunch.job.checks import CHECKS, Diagnostic, Found, Script
from hpclaunch.job.checks.diagnostic import Check, Edit, judged
from hpclaunch.job.checks.directives import output_folders
from hpclaunch.job.plan import Plan, consider
from hpclaunch.job.request import Request, make_request
from hpclaunch.profile.model import Site
from hpclaunch.profile.search import Profile
from hpclaunch.scripts import body_traps, directives, pbs_traps, shell
from hpclaunch.scripts.asked import Asked
from hpclaunch.scripts.checks import SCRIPT_CHECKS
from hpclaunch.scripts.directives import PREFIX, Directives
from hpclaunch.scripts.launch import name_of
from hpclaunch.scripts.program import Program, modules, understand
from hpclaunch.scripts.ranks import complete

_SHELLS = re.compile(r"#!.*?\b(ba|z|k|da|)sh\b")
_SAYS = {"echo", "printf"}  # what they print is no path, and nothing that is left to be filled in


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
    body = shell.read("\n".join(lines)) if is_shell(lines[0]) else shell.Body([], set())
    report = Report(text, profile, [])
    found: list[tuple[str, Found]] = []
    if "\r\n" in text:
        what = "lines end as on Windows, which qsub and sbatch refuse; use dos2unix"
        found.append(("crlf", Found(what, at=text[: text.index("\r\n")].count("\n") + 1, edits=[Edit(0, "\r", "")])))
    if body.error:
        found.append(("shell", Found(str(body.error), at=body.error.line)))
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
    body: shell.Body,
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
    found += [(check, one) for check, one in given.found if check != "directives"]
    looks = body_traps.Script(program, asked, lines)
    found += body_traps.look(looks)
    if scheduler == "pbs":
        found += pbs_traps.look(looks)
    main, texts = program.main, list(_texts(lines, body))
    values = complete(asked, main[-1].launch if main else None) | typed
    values |= {"directive": [text for _, text in asked.carried], "setup": [text for _, text in texts]}
    if "qos" not in values and (default := next((qos.name for qos in asked.partition.qos if qos.default), None)):
        values["qos"] = default
    values["force"] = [name for name in typed.get("force", []) if name in CHECKS or name not in SCRIPT_CHECKS]
    lines_of = {text: line for line, text in reversed([*texts, *asked.carried])} | asked.lines
    if main:
        lines_of["command"] = main[-1].launch.line
    script = Script(
        given,
        lines_of,
        asked.total,
        steps=any(start.launch.layer("srun") for start in program.starts),
        traps=any(command.words[:1] == ["trap"] for command in body.commands()),
        modules=list(modules(body)),
    )
    values["missing"] = missing(output_folders(given))
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
    no_queue = scheduler == "pbs" and "partition" not in asked.values and not site.any_partition
    if no_queue:
        text = f"no queue requested, so {profile.name} chooses one; use -q QUEUE"
        found.append(("partition", Found(text, at=script.last, warns=True)))
    for one in diagnostics:
        if not (no_queue and _of_partition(one)):  # of a restricted one nothing can be rendered, but the script may run
            report.diagnostics.append(structs.replace(one, refuses=one.refuses and one.key != "restricted"))
    return script


def _texts(lines: list[str], body: shell.Body) -> Iterator[tuple[int, str]]:
    """Yield the commands of a script, and what else it has in lines of shell, each with the number of its line."""
    taken = set(body.heredocs)
    for command in body.commands():
        text = " ".join([*command.words, *command.redirects])
        taken |= set(range(command.line, command.line + text.count("\n") + 1))
        if text.isprintable() and text and name_of(command.words[0] if command.words else "") not in _SAYS:
            yield command.line, text
    for number, line in enumerate(lines, 1):
        if number not in taken and line.isprintable() and line.strip() and not line.lstrip().startswith("#"):
            yield number, line


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
