"""`hpclaunch check --script`: a script that somebody else wrote, checked by line."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from hpclaunch.cli.foreign import announce
from hpclaunch.errors import HpclaunchError, counted, printable
from hpclaunch.job.checks import Diagnostic
from hpclaunch.job.directives.read import PREFIX, dialect, read, scheduler_of, words
from hpclaunch.profile import search
from hpclaunch.profile.search import Profile
from hpclaunch.scripts.examine import Report, examine, split_lines
from hpclaunch.scripts.fix import fixed
from hpclaunch.scripts.shell import INSTALL, can_read

# Options that win over the script's directives, as those of qsub and sbatch do.
WINNING = words(
    """
    partition account qos walltime nodes gpus_per_node tasks_per_node cpus_per_task mem_gb jobfs_gb job_name launcher
    max_attempts warn_before template force max_cost
    """
)


_LONGEST = 300_000  # bytes; job scripts have a few thousand


def check_script(
    path: Path, host: str | None, site_name: str | None, typed: dict[str, Any], *, fix: bool, diff: bool, as_json: bool,
    as_request: bool = False,
) -> int:  # fmt: skip
    """Print the diagnostics of a script, or with `fix` or `diff` what it is without those that can be fixed.

    `host` is the profile that knows this machine. Return the exit code.
    """
    from hpclaunch.job.machine import follow_links, missing_folders

    text = _load(path)
    if as_request:
        return _as_request(path, text, site_name, host)
    profile = _profile(path, split_lines(text), site_name, host)
    announce(profile.foreign)
    here = any(search.match_host(name) == profile.name for name in (socket.gethostname(), socket.getfqdn()))
    if not can_read():
        click.echo(f"hpclaunch: only the directives are checked; to check the commands too: {INSTALL}", err=True)

    def look(text: str) -> Report:
        return examine(text, profile, typed, lambda folders: missing_folders(folders, here, path.parent), follow_links)

    new, done, report = fixed(text, look) if fix or diff else (None, [], look(text))
    if as_json:
        click.echo(_json(path, report, done, new))
        return int(report.refused)
    for one in done:
        click.echo(_line(path, one, "fixed"), err=True)
    for one in report.diagnostics:
        click.echo(_line(path, one, "error" if one.refuses else "warning"), err=new is not None)
    errors = sum(one.refuses for one in report.diagnostics)
    count = f"{counted(errors, 'error')}, {counted(len(report.diagnostics) - errors, 'warning')}"
    summary = count if report.diagnostics else "nothing left to fix" if done else "nothing to say"
    click.echo(f"hpclaunch: {click.format_filename(path)} on {profile.name}: {summary}", err=True)
    if new is not None:
        click.echo(_diff(path, text, new) if diff else new, nl=False)
    return int(report.refused)


def _as_request(path: Path, text: str, site_name: str | None, host: str | None) -> int:
    """Print the command that asks for a script's job at the site `site_name`, or at the script's own."""
    from hpclaunch.scripts.as_request import as_request

    lines = split_lines(text)
    target = search.load(site_name) if site_name else None
    fits = target and target.site.scheduler == scheduler_of(lines)
    profile = target if target and fits else _profile(path, lines, None, host)
    announce(dict.fromkeys([*profile.foreign, *(target.foreign if target else [])]))
    command, left, problems = as_request(examine(text, profile), target or profile)
    for what in [*(f"left out: {one}" for one in left), *(f"no request: {one}" for one in problems)]:
        click.echo(f"{click.format_filename(path)}: {printable(what, kept='')}", err=True)
    if command:
        click.echo(command)
    return 1 if problems else 0


def _load(path: Path) -> str:
    """Return a script's text. Raises HpclaunchError if it cannot be read, or is not a script."""
    try:
        with path.open("rb") as file:
            data = file.read(_LONGEST + 1)
    except OSError as error:
        raise HpclaunchError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > _LONGEST:
        raise HpclaunchError(f"{path}: more than {_LONGEST // 1000} kB: no job script is that long")
    if b"\0" in data:
        raise HpclaunchError(f"{path}: a binary file, no job script")
    if not data.strip():
        raise HpclaunchError(f"{path}: an empty file, no job script")
    return data.decode(errors="surrogateescape")


def _line(path: Path, one: Diagnostic, kind: str) -> str:
    name, source = click.format_filename(path), f"  [{one.source}]" if one.source else ""
    return f"{name}:{f'{one.line}:' if one.line else ''} {kind}: {one.check}: {one.message}{source}"


def _json(path: Path, report: Report, done: list[Diagnostic], new: str | None) -> str:
    import json

    answer = {"script": click.format_filename(path), "site": report.profile.name, "refused": report.refused,
              "diagnostics": [one.record() for one in report.diagnostics]}  # fmt: skip
    if new is not None:
        answer |= {"fixed": [one.record() for one in done], "text": new}
    return json.dumps(answer, indent=2)


def _diff(path: Path, old: str, new: str) -> str:
    from difflib import unified_diff

    name = click.format_filename(path)
    lines = unified_diff(old.splitlines(True), new.splitlines(True), name, f"{name} (fixed)")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _profile(path: Path, lines: list[str], name: str | None, host: str | None) -> Profile:
    """Return the site's profile: the one named, the host's, or the only one whose partitions the script names."""
    own = scheduler_of(lines)
    if name is not None:
        profile = search.load(name)
        if profile.site.scheduler not in PREFIX:
            raise HpclaunchError(f"--site {name}: it has no scheduler that reads directives; use the script's site")
        return profile
    if own is None:
        raise HpclaunchError(f"{path}: no #PBS and no #SBATCH line, so which site is it for? Give --site")
    known = []
    for available in search.available():
        with suppress(HpclaunchError):
            known.append(search.load(available))
    known = [profile for profile in known if profile.site.scheduler == own]
    fitting = [one for one in known if one.name == host] or [one for one in known if _fits(one, lines)]
    if len(fitting) == 1:
        return fitting[0]
    which = f"{' or '.join(one.name for one in fitting)} would fit" if fitting else "known: "
    which += "" if fitting else ", ".join(one.name for one in known)
    raise HpclaunchError(f"{path}: {PREFIX[own]} lines, and which site is it for? Give --site; {which}")


def _fits(profile: Profile, lines: list[str]) -> bool:
    """Tell whether a script names a partition of a site, or an account that only one of its partitions has."""
    site = profile.site
    asked = dialect(site.scheduler).ask(profile, read(lines, site.scheduler, set()), {})
    name = asked.values.get("partition")
    known = name in site.restricted or asked.partition in site.partitions.values()
    return bool(name) and known and not site.any_partition
