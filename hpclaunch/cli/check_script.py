"""`hpclaunch check --script`: a script that somebody else wrote, checked by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from hpclaunch.cli.foreign import announce
from hpclaunch.errors import HpclaunchError, counted
from hpclaunch.profile import search
from hpclaunch.profile.search import Profile
from hpclaunch.scripts.choose import guess
from hpclaunch.scripts.directives import PREFIX, scheduler_of
from hpclaunch.scripts.examine import Report, examine, split_lines
from hpclaunch.scripts.remark import Remark, load
from hpclaunch.scripts.shell import INSTALL, can_read
from hpclaunch.scripts.tables import words

# Options that win over the script's directives, as those of qsub and sbatch do.
WINNING = words(
    """
    partition account qos walltime nodes gpus_per_node tasks_per_node cpus_per_task mem_gb jobfs_gb job_name launcher
    max_attempts warn_before template force max_cost
    """
)


def check_script(path: Path, host: str | None, site_name: str | None, typed: dict[str, Any], as_json: bool) -> int:
    """Print what there is to say of a script; return the exit code.

    `host` is the profile that knows this machine.
    """
    from hpclaunch.job.machine import follow_links

    text = load(path)
    profile = _profile(path, split_lines(text), site_name, host)
    announce(profile.foreign)
    if not can_read():
        click.echo(f"hpclaunch: only the directives are checked; to check the commands too: {INSTALL}", err=True)
    report = examine(text, profile, typed, lambda folder: _exists(folder, path), _is_here(profile), follow_links)
    if as_json:
        click.echo(_json(path, report))
    else:
        _print(path, report)
    return 1 if report.refused else 0


def _print(path: Path, report: Report) -> None:
    for one in report.remarks:
        click.echo(_line(path, one))
    errors = sum(one.refuses for one in report.remarks)
    warnings = len(report.remarks) - errors
    count = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    told = f"{click.format_filename(path)} on {report.profile.name}: {count if report.remarks else 'nothing to say'}"
    click.echo(f"hpclaunch: {told}", err=True)


def _line(path: Path, one: Remark) -> str:
    kind = "error" if one.refuses else "warning"
    source = f"  [{one.source}]" if one.source else ""
    return f"{_where(path, one.line)} {kind}: {one.check}: {one.message}{source}"


def _where(path: Path, line: int) -> str:
    name = click.format_filename(path)
    return f"{name}:{line}:" if line else f"{name}:"


def _json(path: Path, report: Report) -> str:
    import json

    found = {"script": click.format_filename(path), "site": report.profile.name, "refused": report.refused,
             "findings": [msgspec.to_builtins(one) for one in report.remarks]}  # fmt: skip
    return json.dumps(found, indent=2)


def _profile(path: Path, lines: list[str], name: str | None, host: str | None) -> Profile:
    """Return the site's profile: the one named, the host's, or the only one whose partitions the script names."""
    own = scheduler_of(lines)
    if name is not None:
        profile = search.load(name)
        if profile.site.scheduler not in PREFIX:
            raise HpclaunchError(f"--site {name}: it has no scheduler that reads directives; give the script's site")
        return profile
    if own is None:
        raise HpclaunchError(f"{path}: no #PBS and no #SBATCH line, so which site is it for? Give --site")
    if host and search.load(host).site.scheduler == own:
        return search.load(host)
    found = guess(lines, own)
    if len(found) == 1:
        return found[0]
    known = [name for name in search.available() if _scheduler(name) == own]
    which = f"{' or '.join(profile.name for profile in found)} would fit" if found else f"known: {', '.join(known)}"
    raise HpclaunchError(f"{path}: {PREFIX[own]} lines, and which site is it for? Give --site; {which}")


def _scheduler(name: str) -> str | None:
    try:
        return search.load(name).site.scheduler
    except HpclaunchError:
        return None


def _exists(folder: str, path: Path) -> bool:
    try:
        return any((root / Path(folder).expanduser()).is_dir() for root in (Path(), path.parent))
    except (OSError, RuntimeError, ValueError):
        return False


def _is_here(profile: Profile) -> bool:
    import socket

    return any(search.match_host(host) == profile.name for host in (socket.gethostname(), socket.getfqdn()))
