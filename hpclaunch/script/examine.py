"""A script against a site: everything that is to be said of it, by line."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from hpclaunch.checks import CHECKS, Finding
from hpclaunch.errors import RequestError
from hpclaunch.plan import Plan, consider
from hpclaunch.request import Request, make_request
from hpclaunch.script import asked_pbs, asked_slurm, body_traps, directive_traps, directives, shell
from hpclaunch.script.asked import Asked
from hpclaunch.script.complete import complete
from hpclaunch.script.program import Program, understand
from hpclaunch.script.remark import Directives, Remark, remark
from hpclaunch.site import Profile

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


def examine(text: str, profile: Profile, exists: Callable[[str], bool] = lambda _folder: True) -> Report:
    """Return what there is to say of a script at this site. `exists` tells whether a folder is there."""
    lines, scheduler = split_lines(text), profile.site.scheduler
    body = shell.read("\n".join(lines)) if is_shell(lines[0]) else shell.Body([], set())
    report = Report(lines, profile, [], Directives(scheduler, [], [], []))
    if "\r\n" in text:
        number = text[: text.index("\r\n")].count("\n") + 1
        what = "qsub and sbatch refuse lines that end as on Windows: dos2unix mends them"
        report.remarks.append(remark("crlf", number, what, mended=True))
    if body.error:
        report.remarks.append(remark("shell", body.error.line, str(body.error)))
    own = directives.scheduler_of(lines)
    if own != scheduler:
        report.remarks.append(_foreign(lines, own, profile))
        if own:
            return report
    report.directives = found = directives.read(lines, scheduler, body.heredocs)
    report.program = program = understand(body)
    ask = asked_slurm.ask if scheduler == "slurm" else asked_pbs.ask
    report.asked = asked = ask(profile, found)
    report.remarks += found.remarks + asked.remarks
    report.remarks += directive_traps.look(found, asked, program, exists)
    report.remarks += body_traps.look(program, asked, lines)
    main = program.main
    values = complete(asked, main[-1].launch if main else None)
    report.request = _request(report, values)
    report.plan, findings = consider(profile, report.request)
    said = {(one.check, one.line) for one in report.remarks} | {(one.check, 0) for one in report.remarks}
    report.remarks += [one for one in map(lambda one: place(report, one), findings) if not _known(one, said)]
    report.remarks = sorted(dict.fromkeys(report.remarks), key=lambda one: (one.line, not one.refuses))
    return report


def is_shell(first_line: str) -> bool:
    """Tell whether a script is one that bash, or a shell like it, would run."""
    return not first_line.startswith("#!") or _SHELLS.match(first_line) is not None


def _foreign(lines: list[str], own: str | None, profile: Profile) -> Remark:
    prefix = directives.PREFIX[profile.site.scheduler]
    if own is None:
        return remark("scheduler", 0, f"no {prefix} line: it asks {profile.name} for nothing", refuses=False)
    line = next(i for i, line in enumerate(lines, 1) if line.startswith(directives.PREFIX[own]))
    return remark("scheduler", line, f"{directives.PREFIX[own]} lines: {profile.name} reads {prefix} and ignores them")


def _known(one: Remark, said: set[tuple[str, int]]) -> bool:
    """Tell whether a trap has said it already, in words that fit a script better."""
    twins = {"account": "no-account", "qos": "default-qos", "storage": "storage"}
    return (twins.get(one.check, ""), 0) in said


def _request(report: Report, values: dict) -> Request:
    """Return the request; a value that cannot be is a remark, and left out."""
    assert report.asked is not None  # noqa: S101 - examine() has just set it
    for _ in range(len(values)):
        try:
            return make_request(values)
        except RequestError as error:
            for line in str(error).splitlines():
                option, _, message = line.removeprefix("--").partition(": ")
                key = option.replace("-", "_")
                number = report.asked.lines.get(key, 0)
                check = "job-name" if key == "job_name" else "malformed"
                if values.pop(key, None) is None:
                    values = {"site": report.profile.name}
                if not any(one.line == number and one.check in ("variable", "placeholder") for one in report.remarks):
                    report.remarks.append(remark(check, number, f"{key.replace('_', ' ')}: {message}"))
    return make_request({"site": report.profile.name})


def place(report: Report, finding: Finding) -> Remark:
    """Return a finding of the plan at the line of the option that it is about."""
    known = report.asked.lines if report.asked else {}
    check = CHECKS.get(finding.check)
    keys = check.options.split() if check else []
    line = next((known[key] for key in keys if key in known), 0)
    if not line and report.directives.lines:
        line = report.directives.lines[-1]
    return Remark(line, finding.check, finding.message, finding.refuses, finding.source)
