"""A script against a site: everything that is to be said of it, by line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct, structs

from hpclaunch.errors import printable
from hpclaunch.job.checks import CHECKS, Finding
from hpclaunch.job.checks.finding import is_unconfirmed
from hpclaunch.job.checks.words import RESERVED, RESERVED_PBS, SHELLS_OWN
from hpclaunch.job.consider import consider
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import Request, make_request
from hpclaunch.job.storage import as_named, named_by
from hpclaunch.profile.model import Partition, Site
from hpclaunch.profile.search import Profile
from hpclaunch.scripts import asked_pbs, asked_slurm, commands, directive_traps, directives, shell
from hpclaunch.scripts.asked import Asked, placeholders
from hpclaunch.scripts.launch import Program, assignments, understand
from hpclaunch.scripts.ranks import complete
from hpclaunch.scripts.remark import Directives, Remark, remark
from hpclaunch.scripts.tables import in_scripts_words
from hpclaunch.scripts.traps import TRAPS

# Checks of what only a request has; and those that say in other words what a trap of scripts has said.
_NOT_OF_SCRIPTS = {"literal", "launcher", "workload", "repeated", "log-folder"}
_TWINS = {
    "account": {"no-account", "placeholders", "variable"},
    "qos": {"default-qos"},
    "directives": {"variable", "export", "comma", "comment", "unknown-option", "unreadable", "malformed"},
    "refused-directives": {"select", "no-gpu-gres"},
    "env": {"ncpus-variable"},
    "job-name": {"job-name"},
}
_SHELLS = re.compile(r"#!.*?\b(ba|z|k|da|)sh\b")


class Report(Struct):
    """A script as it was understood, and what there is to say of it, in the order of its lines."""

    lines: list[str]
    profile: Profile
    remarks: list[Remark]
    directives: Directives
    asked: Asked | None = None
    program: Program | None = None
    request: Request | None = None
    plan: Plan | None = None

    @property
    def refused(self) -> bool:
        """Tell whether the script would be refused, or go wrong."""
        return any(found.refuses for found in self.remarks)


def split_lines(text: str) -> list[str]:
    """Return a script's lines without their ends."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def examine(
    text: str,
    profile: Profile,
    typed: dict[str, Any] | None = None,
    exists: Callable[[str], bool] = lambda _folder: True,
    here: bool = True,
    follow: Callable[[Site, Request], Request] = lambda _site, request: request,
) -> Report:
    """Return what there is to say of a script at this site.

    `typed` are options of the command line, which win over the script's as those of qsub and sbatch do. `exists` tells
    whether a folder is there, `here` whether this machine is the site's, `follow` where
    a request's links lead.
    """
    typed = typed or {}
    lines, scheduler = split_lines(text), profile.site.scheduler
    body = shell.read("\n".join(lines)) if is_shell(lines[0]) else shell.Script()
    report = Report(lines, profile, [], Directives(scheduler, [], [], []))
    if "\r\n" in text:
        number = text[: text.index("\r\n")].count("\n") + 1
        what = "qsub and sbatch refuse lines that end as on Windows: dos2unix mends them"
        report.remarks.append(remark("crlf", number, what, mended=True))
    if body.error:
        report.remarks.append(remark("shell", *body.error))
    elif body.unread:
        text = "this line could not be read: the commands from here on are checked in part"
        report.remarks.append(remark("shell", body.unread, text, refuses=False))
    own = directives.scheduler_of(lines, scheduler)
    if own != scheduler:
        report.remarks.append(_foreign(lines, own, profile))
        if own:
            report.remarks = [_final(one, scheduler, []) for one in report.remarks]
            return report
    report.directives = found = directives.read(lines, scheduler, body.heredocs)
    report.program = program = understand(body, profile.site)
    ask = asked_slurm.ask if scheduler == "slurm" else asked_pbs.ask
    report.asked = asked = ask(profile, found)
    asked.values |= typed
    report.remarks += found.remarks + asked.remarks
    report.remarks += placeholders(lines, directives.first_command(lines), body.quiet)
    report.remarks += directive_traps.look(found, asked, program, exists, here)
    report.remarks += commands.look(program, asked)
    main = program.main
    values = complete(asked, main[-1] if main else None) | typed
    values["directive"] = [directive for _, directive in asked.carried]
    values["setup"] = commands.lines_that_run(program, asked, lines)
    values["venv"] = next(_environments(program), None)
    values["env"] = asked.values.get("env", {}) | dict(_constants(program))
    force = typed.get("force", [])
    values["force"] = [name for name in force if name in CHECKS or name not in TRAPS]
    mistaken: list[tuple[str, str]] = []
    told = {one.line for one in report.remarks if one.check in ("variable", "placeholders", "malformed")}
    report.request = follow(profile.site, make_request(values, mistaken))
    report.remarks += _behind_links(report)
    report.remarks += [
        _mistake(asked, key, message) for key, message in mistaken if asked.lines.get(key, 0) not in told
    ]
    report.plan, findings = consider(profile, report.request)
    report.remarks += _placed(report, findings)
    name = report.plan.partition_name if report.plan else str(asked.values.get("partition", ""))
    report.remarks = [_final(_rested(one, profile, name), scheduler, force) for one in report.remarks]
    report.remarks = sorted(dict.fromkeys(report.remarks), key=lambda one: (one.line, not one.refuses))
    return report


def _behind_links(report: Report) -> Iterator[Remark]:
    """Yield the file systems that are behind links in the script, and that the job does not see."""
    assert report.asked is not None and report.request is not None  # noqa: S101, PT018
    site, account = report.profile.site, report.request.account or report.profile.site.account
    has = [as_named(site, name) for name in report.asked.values.get("storage", [])] + site.storage
    for word, real in report.request.machine.links.items():
        line = next((i for i, text in enumerate(report.lines, 1) if word in text and not text.startswith("#")), 0)
        for name in named_by(site, account, [real]):
            if name not in [*has, *named_by(site, account, [word])] and len(word) > 1 and line:
                text = f"{word} leads to {real}, in {name}, which the job does not see: write -l storage="
                yield remark("storage", line, text + "+".join([*has, name]), mended=True)


def _of_partition(finding: Finding) -> bool:
    """Tell whether a finding rests on the partition, which a script without a queue leaves open."""
    check = CHECKS.get(finding.check)
    return finding.key.startswith("partitions.") or (check is not None and "tasks_per_node" in check.options)


def _placed(report: Report, findings: list[Finding]) -> list[Remark]:
    """Return the findings of the plan at their lines, without those of which a trap has spoken there."""
    said = {(one.line, one.check) for one in report.remarks}
    no_queue = any(one.check == "no-queue" for one in report.remarks)
    found = report.program.body.commands if report.program else []
    traps = any(command.name == "trap" for command in found)
    placed = []
    for finding in findings:
        known = finding.check == "download" and "=" not in finding.message  # a trap has looked at the commands
        known = known or (finding.check == "signal" and traps) or (no_queue and _of_partition(finding))
        if known or finding.check in _NOT_OF_SCRIPTS:
            continue
        one = place(report, finding)
        if finding.key == "restricted":  # fatal where it is a queue: nothing can be rendered, but the script may run
            one = structs.replace(one, refuses=False)
        twins = {finding.check} | _TWINS.get(finding.check, set())
        if not any((one.line, twin) in said for twin in twins):
            placed.append(one)
    return placed


def _rested(one: Remark, profile: Profile, partition: str) -> Remark:
    """Return a trap's remark with the profile's line that it rests on; where that is not confirmed, it warns."""
    trap = TRAPS.get(one.check)
    if trap is None or not trap.reads or one.source != trap.source:
        return one
    name = trap.reads.split()[0]
    key = one.key or (("partitions", partition, name) if name in Partition.__struct_fields__ else (name,))
    weak = is_unconfirmed(profile.site, key)
    return structs.replace(one, source=profile.where(key) or one.source, refuses=one.refuses and not weak)


def _final(one: Remark, scheduler: str, force: list[str]) -> Remark:
    """Return a remark with its source at this scheduler; one of a check that is forced only warns."""
    pbs, _, slurm = one.source.partition(" | ")
    source = slurm if slurm and scheduler == "slurm" else pbs
    text = printable(one.message, kept="")
    return structs.replace(one, message=text, source=source, refuses=one.refuses and one.check not in force)


def _environments(program: Program) -> Iterator[str]:
    """Yield the python environments that are activated."""
    for command in program.body.commands:
        if len(command.words) == 2 and command.words[0] in ("source", "."):
            folder, found, _ = command.words[1].partition("/bin/activate")
            if found:
                yield folder


def _constants(program: Program) -> Iterator[tuple[str, str]]:
    for command in program.body.commands:
        for one in assignments(command) if command.name == "export" else ():
            if one.name not in RESERVED | SHELLS_OWN | RESERVED_PBS and one.value and not one.value.expands:
                yield one.name, str(one.value)


def _mistake(asked: Asked, key: str, message: str) -> Remark:
    check = "job-name" if key == "job_name" else "malformed"
    return remark(check, asked.lines.get(key, 0), f"{key.replace('_', ' ')} {asked.values.get(key, '')}: {message}")


def is_shell(first_line: str) -> bool:
    """Tell whether a script is one that bash, or a shell like it, would run."""
    return not first_line.startswith("#!") or _SHELLS.match(first_line) is not None


def _foreign(lines: list[str], own: str | None, profile: Profile) -> Remark:
    prefix = directives.PREFIX[profile.site.scheduler]
    if own is None:
        return remark("scheduler", 0, f"no {prefix} line: it asks {profile.name} for nothing", refuses=False)
    line = next(i for i, line in enumerate(lines, 1) if line.startswith(directives.PREFIX[own]))
    return remark("scheduler", line, f"{directives.PREFIX[own]} lines: {profile.name} reads {prefix} and ignores them")


def place(report: Report, finding: Finding) -> Remark:
    """Return a finding of the plan at the line of the option that it is about."""
    known = report.asked.lines if report.asked else {}
    check = CHECKS.get(finding.check)
    keys = check.options.split() if check else []
    said = set(keys) & {"setup", "command", "directive", "module"}
    line = _mentioned(report.lines, finding) if said else 0
    if not line and keys[:1] == ["command"] and report.program and report.program.main:
        line = report.program.main[-1].line
    line = line or next((known[key] for key in keys if key in known), 0)
    if not line and report.directives.lines:
        line = report.directives.lines[-1]
    nodes, tasks = (report.plan.nodes, report.plan.tasks_per_node) if report.plan else (1, 1)
    message = in_scripts_words(finding.message, report.profile.site.scheduler, nodes, tasks)
    return Remark(line, finding.check, message, finding.refuses, finding.source)


def _mentioned(lines: list[str], finding: Finding) -> int:
    """Return the first line of the script in which a path, variable or option of the finding stands."""
    words = re.findall(r"[^\s'\"]*[/$=-][^\s'\"]*", finding.message)
    if finding.key.startswith("removed_commands."):
        words = [finding.key.partition(".")[2]]
    for word in words:
        name = word.strip(":;,.").removeprefix("--")
        for number, line in enumerate(lines, 1):
            if (
                len(name) > 2
                and name in line
                and (not line.lstrip().startswith("#") or line.startswith(("#PBS", "#SB")))
            ):
                return number
    return 0
