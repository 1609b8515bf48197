"""A script against a site: read into a request, checked like one, its diagnostics placed at its lines."""

from collections.abc import Callable, Iterator, Sequence
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
from hpclaunch.job.request import Request, make_request
from hpclaunch.profile.model import Site
from hpclaunch.profile.search import Profile
from hpclaunch.scripts import commands, shell
from hpclaunch.scripts.checks import SCRIPT_CHECKS
from hpclaunch.scripts.launch import Program, modules, understand
from hpclaunch.scripts.lines import is_shell, split_lines
from hpclaunch.scripts.ranks import complete

_OUR_OWN = ("hpclaunch render", "the job script")  # sources of rules for our own scripts


class Report(Struct):
    """A script as it was understood, and its diagnostics in the order of its lines."""

    text: str
    profile: Profile
    diagnostics: list[Diagnostic] = []
    asked: Asked | None = None
    program: Program | None = None
    request: Request | None = None

    @property
    def lines(self) -> list[str]:
        """Return the script's lines without their ends."""
        return split_lines(self.text)

    @property
    def refused(self) -> bool:
        """Tell whether the script would be refused, or go wrong."""
        return any(one.refuses for one in self.diagnostics)


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
    report = Report(text, profile)
    if wrong := _no_job(report.lines, profile):
        return _placed(report, Script(Directives(profile.site.scheduler)), [("scheduler", wrong)])
    typed, site = typed or {}, profile.site
    body = shell.read("\n".join(report.lines)) if is_shell(report.lines[0]) else shell.Script()
    given = directives.read(report.lines, site.scheduler, body.heredocs)
    report.program = program = understand(body, site)
    report.asked = asked = directives.dialect(site.scheduler).ask(profile, given, typed)
    found = [
        *_unread(text, body),
        *(one for one in given.found if one[0] not in ("directives", "env")),
        *commands.look(program, asked),
    ]
    main, texts = program.main, list(commands.texts(program, asked))
    values = complete(asked, main[-1] if main else None) | typed
    values |= {"directive": [text for _, text in asked.carried], "setup": [text for _, text in texts]}
    values.setdefault("qos", next((qos.name for qos in asked.partition.qos if qos.default), None))
    force = typed.get("force", [])
    values["force"] = [name for name in force if name in CHECKS or name not in SCRIPT_CHECKS]
    values["machine"] = {"missing_folders": missing(output_folders(given))}
    lines_of = {text: line for line, text in reversed([*texts, *asked.carried])} | asked.lines
    script = Script(
        given,
        lines_of | ({"command": main[-1].line} if main else {}),
        asked.total,
        steps=not texts or any(word in text for _, text in texts for word in ("srun", "mpirun", "mpiexec")),
        parallel=not main or main[-1].parallel,
        threads=asked.threads,
        traps=any(command.name == "trap" for command in body.commands),
        modules=_modules(program, asked),
    )
    mistaken: list[tuple[str, str]] = []
    request = make_request(values, mistaken)
    report.request = structs.replace(follow(site, request), storage=request.storage)  # what the script itself names
    plan, diagnostics = consider(profile, report.request, script)
    for name, rule in SCRIPT_CHECKS.items():
        found += [(name, one) for one in rule.function(plan)] if rule.function and plan else []
    # Of a restricted partition nothing can be rendered, but the script may run.
    report.diagnostics = [
        structs.replace(one, refuses=one.refuses and one.key != "restricted")
        for one in diagnostics
        if not (asked.open_queue and _of_partition(one))
    ]
    said = {one.at for _, one in [*given.found, *found] if not one.warns}
    said |= {one.at for one in diagnostics if one.check == "placeholders"}
    for key, message in mistaken:
        if (line := asked.lines.get(key, 0)) not in said:
            check = "job-name" if key == "job_name" else "directives"
            found.append((check, Found(f"{asked.values.get(key, '')!r}: {message}", at=line)))
    return _placed(report, script, found, force)


def _unread(text: str, body: shell.Script) -> Iterator[tuple[str, Found]]:
    """Yield why the scheduler or the shell does not read all of a file."""
    if "\r\n" in text:
        what = "lines end as on Windows, which qsub and sbatch refuse; use dos2unix"
        yield "crlf", Found(what, at=text[: text.index("\r\n")].count("\n") + 1, edits=[Edit(0, "\r", "")])
    for number, line in enumerate(split_lines(text), 1):
        if line != line.rstrip() and line.rstrip().endswith("\\") and "#" not in line and number not in body.heredocs:
            yield "shell", Found("a blank after the last \\: the command ends here", at=number, warns=True)
    if body.error:
        yield "shell", Found(body.error[1], at=body.error[0])
    elif body.unread:
        what = "this line could not be read: the commands from here on are checked in part"
        yield "shell", Found(what, at=body.unread, warns=True)


def _no_job(lines: list[str], profile: Profile) -> Found | None:
    """Say why a file is no job script of a site: no directives, another scheduler's, or only after its commands."""
    scheduler = profile.site.scheduler
    own, prefix, end = directives.scheduler_of(lines, scheduler), PREFIX[scheduler], directives.first_command(lines)
    if own is None:
        return Found(f"no {prefix} line, so the script requests nothing of {profile.name}", at=0, warns=True)
    first = next(i for i, line in enumerate(lines, 1) if directives.DIRECTIVE[own].match(line))
    if own != scheduler:
        return Found(f"{PREFIX[own]} lines, but {profile.name} reads {prefix} lines and ignores them", at=first)
    if first <= end:
        return None
    text = f"no {prefix} line before line {end + 1}, the first command: this is not a job script"
    return Found(f"{text} as it is, the lines from {first} on are ignored or another file's", at=end + 1, warns=True)


def _modules(program: Program, asked: Asked) -> list[tuple[int, str]]:
    """Return the modules that the script loads, with their lines; none if only some of its jobs load them."""
    loaded = list(modules(program.body))
    sure = not asked.partition.free and not any(command.inside & {"if", "function"} for command, _ in loaded)
    return [(command.line, str(module)) for command, module in loaded] if sure else []


def _of_partition(one: Diagnostic) -> bool:
    """Tell whether a diagnostic rests on the partition, which a script without a queue leaves open."""
    check = CHECKS.get(one.check)
    return one.key.startswith("partitions.") or (check is not None and "tasks_per_node" in check.options)


def _placed(report: Report, script: Script, found: list[tuple[str, Found]], force: Sequence[str] = ()) -> Report:
    """Return the report with what was found too: each diagnostic once, at its line; of a forced check it only warns."""
    different = {}
    for check, each in found:
        report.diagnostics.append(judged(report.profile, check, SCRIPT_CHECKS.get(check) or CHECKS[check], each))
    for one in report.diagnostics:
        line = min(script.place(one, CHECKS.get(one.check, Check()).options.split()), 10**9)
        text, refuses = printable(one.message, kept=""), one.refuses and one.check not in force
        source = "" if one.source.startswith(_OUR_OWN) else one.source
        placed = structs.replace(one, line=line, at="", message=text, refuses=refuses, source=source)
        different[line, one.check, text] = placed
    report.diagnostics = sorted(different.values(), key=lambda one: (one.line, not one.refuses))
    return report
