"""`hpclaunch check --script`: a script that somebody else wrote, checked by line and written anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from hpclaunch.cli.foreign import announce, rendered
from hpclaunch.cli.job import summarize
from hpclaunch.errors import HpclaunchError, RequestError, counted, printable
from hpclaunch.job.plan import Plan, consider
from hpclaunch.profile import search
from hpclaunch.profile.search import Profile
from hpclaunch.scripts.choose import guess
from hpclaunch.scripts.directives import PREFIX, scheduler_of
from hpclaunch.scripts.examine import Report, examine, split_lines
from hpclaunch.scripts.remark import Remark, load
from hpclaunch.scripts.rewrite import Rewrite, rewrite
from hpclaunch.scripts.tables import words

# Options that win over the script's directives, as those of qsub and sbatch do.
WINNING = words(
    """
    partition account qos walltime nodes gpus_per_node tasks_per_node cpus_per_task mem_gb jobfs_gb job_name launcher
    max_attempts warn_before template force max_cost
    """
)


def check_script(
    path: Path, host: str | None, site_name: str | None, typed: dict[str, Any], fix: bool, as_json: bool
) -> int:
    """Print what there is to say of a script, or with `fix` a new one; return the exit code.

    `host` is the profile that knows this machine.
    """
    from hpclaunch.job.links import followed

    text = load(path)
    profile = _profile(path, split_lines(text), site_name, host)
    announce(profile.foreign)
    report = examine(text, profile, typed, lambda folder: _exists(folder, path), _is_here(profile), followed)
    if report.request is not None and "force" in typed:
        typed = {**typed, "force": report.request.force}  # without the traps that only a script has
    result, plan, script = _fixed(report, typed) if fix else (None, None, None)
    refused = script is None if fix else report.refused
    if as_json:
        click.echo(_json(path, report, result, script, refused))
    else:
        _print(path, report, result, plan, script)
    return 1 if refused else 0


def _print(path: Path, report: Report, result: Rewrite | None, plan: Plan | None, script: str | None) -> None:
    for one in report.remarks:
        click.echo(_line(path, one, result is not None), err=result is not None)
    errors = sum(one.refuses for one in report.remarks)
    warnings = len(report.remarks) - errors
    count = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    told = f"{click.format_filename(path)} on {report.profile.name}: {count if report.remarks else 'nothing to say'}"
    click.echo(f"hpclaunch: {told}", err=True)
    if result is None:
        return
    for kind, said in (("not carried over", result.notes), ("fix", result.told), ("error: fix", result.problems)):
        for number, text in sorted(said):
            click.echo(f"{_where(path, number)} {kind}: {printable(text, kept='')}", err=True)
    if script is not None and plan is not None:
        summarize(plan, quiet=False)
        click.echo(script, nl=False)
    else:
        click.echo("hpclaunch: no new script: mend what is said above, or give the option that decides it", err=True)


def _line(path: Path, one: Remark, fix: bool) -> str:
    kind = "mended" if fix and one.mended else "error" if one.refuses else "warning"
    source = f"  [{one.source}]" if one.source else ""
    return f"{_where(path, one.line)} {kind}: {one.check}: {one.message}{source}"


def _where(path: Path, line: int) -> str:
    name = click.format_filename(path)
    return f"{name}:{line}:" if line else f"{name}:"


def _json(path: Path, report: Report, result: Rewrite | None, script: str | None, refused: bool) -> str:
    import json

    found = {"script": click.format_filename(path), "site": report.profile.name, "refused": refused,
             "findings": [msgspec.to_builtins(one) for one in report.remarks]}  # fmt: skip
    if result is not None:
        for name, said in (("not_carried", result.notes), ("told", result.told), ("problems", result.problems)):
            found[name] = [{"line": line, "message": text} for line, text in sorted(said)]
        found["fixed"] = script
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


def _fixed(report: Report, typed: dict[str, Any]) -> tuple[Rewrite, Plan | None, str | None]:
    """Return the script anew: None where a remark stands in its way that hpclaunch cannot mend."""
    if report.asked is None:
        return Rewrite(None, [], []), None, None
    result = rewrite(report, typed)
    open_ones = [one for one in report.remarks if one.refuses and not one.mended]
    if open_ones:  # which say better what cannot be
        result.problems = [(line, text) for line, text in result.problems if line]
    if result.request is None or result.problems or open_ones:
        return result, None, None
    from hpclaunch.job.links import followed

    plan, findings = consider(report.profile, followed(report.profile.site, result.request))
    refusals = [(0, str(finding)) for finding in findings if finding.refuses]
    result.problems += refusals
    if plan is None or refusals:
        return result, None, None
    return result, plan, _render(plan, result)


def _render(plan: Plan, result: Rewrite) -> str | None:
    """Return the script; a shell that cannot read it is told of, and there is none."""
    import subprocess

    try:
        script = rendered(plan)
    except RequestError as error:
        result.problems.append((0, str(error)))
        return None
    run = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    if run.returncode:
        result.problems.append((0, f"bash cannot read the new script: {run.stderr.strip().splitlines()[-1]}"))
        return None
    return script
