"""What is left of a grant, as the site's own command tells it: read tolerantly, never required."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress

from hpclaunch.job.cost import Cost
from hpclaunch.job.plan import Plan
from hpclaunch.profile.model import Grant

SECONDS = 5.0  # nobody waits longer than this for an answer that is only good to know
_MOST = 100_000  # bytes: more than that is no answer
# 12 345,6 and 12,345.6 have one separator throughout, a blank only before just three digits.
_NUMBER = re.compile(
    r"[\s:=|]*(?P<sign>[-+]?)"
    r"(?:(?P<groups>\d{1,3}(?P<separator>[,' \u00a0\u2009\u202f])\d{3}(?:(?P=separator)\d{3})*)"
    r"(?P<part>(?!(?P=separator))[.,]\d+)?"
    r"|(?P<plain>\d+(?:[.,]\d+)?))(?![\d.,])[ \t]*(?P<unit>%|[A-Za-z-]*)"
)
_SCALES = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9}


def remaining(plan: Plan) -> Cost | None:
    """Ask the site's command what is left to the plan's account.

    None where there is no such command here, no account, or no answer that can mean one amount only.
    """
    grant = plan.site.grant
    charge = plan.partition.charge
    if grant is None or charge is None or shutil.which(grant.command[0]) is None:
        return None
    words = [_filled(word, plan.account) for word in grant.command]
    if None in words:
        return None
    amounts = set(_amounts(_ask([word for word in words if word]), grant, charge.unit, plan.account))
    return Cost(amounts.pop(), charge.unit) if len(amounts) == 1 else None


def shortage(plan: Plan, left: Cost) -> str | None:
    """Return what to say where the job may cost more than is left."""
    if plan.cost is None or plan.cost.amount <= left.amount:
        return None
    return f"the job costs up to {plan.cost}, and {plan.account or 'the account'} has {left} left: it may wait for more"


def _filled(word: str, account: str | None) -> str | None:
    """Put the account into a word of the command; None where it belongs there and is not known."""
    if account is None:
        return None if "{account}" in word or "{project}" in word else word
    return word.replace("{account}", account).replace("{project}", account.partition("@")[0])


def _amounts(said: str, grant: Grant, unit: str, account: str | None) -> Iterator[float]:
    """Yield each number that stands behind the grant's word, in the site's unit; lines with the account go first."""
    lines = said.splitlines()
    own = [line for line in lines if account and account in line]
    word = re.compile(grant.remaining, re.IGNORECASE)
    for chosen in (own, lines):
        found = [amount for line in chosen for amount in _in_line(line, word, unit)]
        if found:
            yield from found
            return


def _in_line(line: str, word: re.Pattern[str], unit: str) -> Iterator[float]:
    for behind in word.finditer(line):
        match = _NUMBER.match(line, behind.end())
        scale = match and _scale(match["unit"], unit)
        if match and scale:
            yield round(_number(match) * scale, 2)


def _number(match: re.Match[str]) -> float:
    """Read 1,234.56 and 1 234,56 as well as 1234,56."""
    groups = match["groups"]
    plain = groups.replace(match["separator"], "") + (match["part"] or "") if groups else match["plain"]
    return float(match["sign"] + plain.replace(",", "."))


def _scale(said: str, unit: str) -> float | None:
    """Return what to multiply by for the site's unit: 1e3 for KSU where it is SU; None for another unit."""
    if said.upper() in ("", unit.upper()) or (unit.endswith("hours") and said.lower() in ("h", "hours", "heures")):
        return 1
    scale, rest = said[:1].upper(), said[1:]
    return _SCALES.get(scale) if rest.upper() == unit.upper() else None


def _ask(command: list[str]) -> str:
    """Return what the command prints; nothing where it fails, hangs, or does not stop talking."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return ""
    end = time.monotonic() + SECONDS
    said = b""
    with process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        while len(said) < _MOST and select.select([process.stdout], [], [], max(end - time.monotonic(), 0))[0]:
            chunk = os.read(process.stdout.fileno(), 65536)
            if not chunk:
                break
            said += chunk
        else:
            said = b""
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(end - time.monotonic(), 0) if said else 0)
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            said = b""
    return said.decode(errors="replace") if process.returncode == 0 else ""
