"""`hpclaunch check --script`: a script that somebody else wrote, checked by line."""

from pathlib import Path
from typing import Any

import click

from hpclaunch.cli.echo import coloured, echo_json, talk
from hpclaunch.cli.requests import announce
from hpclaunch.errors import HpclaunchError, counted, printable
from hpclaunch.job.checks import Diagnostic
from hpclaunch.job.directives.read import PREFIX, scheduler_of
from hpclaunch.profile import search
from hpclaunch.profile.search import Profile
from hpclaunch.scripts.choose import guess
from hpclaunch.scripts.examine import Report, examine
from hpclaunch.scripts.fix import fixed
from hpclaunch.scripts.lines import split_lines
from hpclaunch.scripts.shell import INSTALL, can_read

_LONGEST = 300_000  # bytes; job scripts have a few thousand


def check_script(path: Path, site: str | None, typed: dict[str, Any], *, fix: bool, diff: bool, as_json: bool) -> bool:
    """Print the diagnostics of a script, or with `fix` or `diff` what it is without those that can be fixed.

    Return whether the script is refused.
    """
    from hpclaunch.job.machine import follow_links, missing_folders

    text, name = _load(path), click.format_filename(path)
    profile = _profile(path, split_lines(text), site)
    announce(profile.foreign)
    here = search.match_host() == profile.name
    if not can_read():
        talk(f"only the directives are checked; to check the commands too: {INSTALL}")

    def look(text: str) -> Report:
        return examine(text, profile, typed, lambda folders: missing_folders(folders, here, path.parent), follow_links)

    new, done, report = fixed(text, look) if fix or diff else (None, [], look(text))
    if as_json:
        records = [one.record() for one in report.diagnostics]
        answer = {"script": name, "site": profile.name, "refused": report.refused, "diagnostics": records}
        echo_json(answer if new is None else answer | {"fixed": [one.record() for one in done], "text": new})
        return report.refused
    now = name if new is None else f"{name} (fixed)"  # of which the lines are
    for one in done:
        click.echo(_line(name, one, "fixed"), err=True)
    for one in report.diagnostics:
        click.echo(_line(now, one, "error" if one.refuses else "warning"), err=new is not None)
    errors = sum(one.refuses for one in report.diagnostics)
    count = f"{counted(errors, 'error')}, {counted(len(report.diagnostics) - errors, 'warning')}"
    summary = count if report.diagnostics else "nothing left to fix" if done else "nothing to say"
    talk(f"{name} on {profile.name}: {summary}")
    if new is not None:
        click.echo(_diff(name, text, new) if diff else new, nl=False)
    return report.refused


def print_request(path: Path, site: str | None) -> bool:
    """Print the command that asks for a script's job at `site` or at its own; return whether there is none."""
    from hpclaunch.scripts.as_request import as_request

    text = _load(path)
    lines = split_lines(text)
    target = search.load(site) if site else None
    own = target and target.site.scheduler == scheduler_of(lines)
    profile = target if target and own else _profile(path, lines, None)
    announce(dict.fromkeys([*profile.foreign, *(target.foreign if target else [])]))
    command, left, problems = as_request(examine(text, profile), target or profile)
    for kind, texts in (("left out", left), ("no request", problems)):
        for what in texts:
            click.echo(f"{click.format_filename(path)}: {kind}: {printable(what, kept='')}", err=True)
    if command:
        click.echo(command)
    return bool(problems)


def _load(path: Path) -> str:
    """Return a script's text. Raises OSError, or HpclaunchError if it is not a script."""
    with path.open("rb") as file:
        data = file.read(_LONGEST + 1)
    if len(data) > _LONGEST or b"\0" in data or not data.strip():
        raise HpclaunchError(f"{path}: no job script: it is empty, binary, or longer than {_LONGEST // 1000} kB")
    return data.decode(errors="surrogateescape")


def _line(name: str, one: Diagnostic, kind: str) -> str:
    source = f"  [{one.source}]" if one.source else ""
    return f"{name}:{f'{one.line}:' if one.line else ''} {coloured(kind)}: {one.check}: {one.message}{source}"


def _diff(name: str, old: str, new: str) -> str:
    from difflib import unified_diff

    lines = unified_diff(old.splitlines(True), new.splitlines(True), name, f"{name} (fixed)")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _profile(path: Path, lines: list[str], site: str | None) -> Profile:
    """Return the site's profile: the one named, this host's, or the only one whose partitions the script names."""
    if site is not None:
        profile = search.load(site)
        if profile.site.scheduler not in PREFIX:
            raise HpclaunchError(f"--site {site}: it has no scheduler that reads directives; give the script's site")
        return profile
    own = scheduler_of(lines)
    if own is None:
        raise HpclaunchError(f"{path}: no #PBS and no #SBATCH line, so which site is it for? Give --site")
    if (host := search.match_host()) and (profile := search.load(host)).site.scheduler == own:
        return profile
    found = guess(lines, own)
    if len(found) == 1:
        return found[0]
    which = " or ".join(profile.name for profile in found) + " would fit" if found else ""
    known = which or f"known: {', '.join(search.available())}"
    raise HpclaunchError(f"{path}: {PREFIX[own]} lines, and which site is it for? Give --site; {known}")
