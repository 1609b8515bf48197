"""What remains of an account's allocation, as the site's own command prints it: read tolerantly, never required."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator

from hpclaunch.job.cost import Cost
from hpclaunch.job.plan import Plan

SECONDS = 5.0  # the answer is only good to know, and not worth a longer wait
# More than 100 kB is no answer: head then closes the pipe, and the command fails. --posix: bash reads no BASH_ENV.
_COMMAND = ["bash", "--posix", "-c", 'set -o pipefail; "$@" | head -c 100000', "bash"]
# 12 345,6 and 12,345.6 have one separator throughout, a blank only before exactly three digits.
_NUMBER = re.compile(
    r"[\s:=|]*(?P<sign>[-+]?)"
    r"(?:(?P<groups>\d{1,3}(?P<separator>[,' \u00a0\u2009\u202f])\d{3}(?:(?P=separator)\d{3})*)"
    r"(?P<part>(?!(?P=separator))[.,]\d+)?"
    r"|(?P<plain>\d+(?:[.,]\d+)?))(?![\d.,])[ \t]*(?P<unit>%|[A-Za-z-]*)"
)
_SCALES = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9}


def remaining(plan: Plan) -> Cost | None:
    """Run the site's command and return what remains of the allocation of the plan's account.

    None without such a command here, without an account, or if the answer can mean more than one amount.
    """
    allocation, charge, account = plan.site.allocation, plan.partition.charge, plan.account or ""
    if allocation is None or charge is None or shutil.which(allocation.command[0]) is None:
        return None
    if not account and any("{account}" in word or "{project}" in word for word in allocation.command):
        return None
    project = account.partition("@")[0]
    words = [word.replace("{account}", account).replace("{project}", project) for word in allocation.command]
    label, lines = re.compile(allocation.remaining, re.IGNORECASE), _output(words).splitlines()
    own = [line for line in lines if account and account in line]
    amounts = set(_amounts(own, label, charge.unit)) or set(_amounts(lines, label, charge.unit))
    return Cost(amounts.pop(), charge.unit) if len(amounts) == 1 else None


def shortage(plan: Plan, left: Cost) -> str | None:
    """Return a warning if the job may cost more than what remains."""
    if plan.cost is None or plan.cost.amount <= left.amount:
        return None
    return f"the job costs up to {plan.cost}, and {plan.account or 'the account'} has {left} left: it may wait for more"


def _amounts(lines: Iterable[str], label: re.Pattern[str], unit: str) -> Iterator[float]:
    """Yield each number that follows the label, in the site's unit."""
    for line in lines:
        for found in label.finditer(line):
            match = _NUMBER.match(line, found.end())
            scale = match and _scale(match["unit"], unit)
            if match and scale:
                yield round(_number(match) * scale, 2)


def _number(match: re.Match[str]) -> float:
    """Return the value of 1,234.56 or 1 234,56 or 1234,56."""
    groups = match["groups"]
    plain = groups.replace(match["separator"], "") + (match["part"] or "") if groups else match["plain"]
    return float(match["sign"] + plain.replace(",", "."))


def _scale(printed: str, unit: str) -> float | None:
    """Return the factor to the site's unit: 1e3 for KSU if it is SU; None for another unit."""
    hours = unit.endswith("hours") and printed.lower() in ("h", "hours", "heures")
    if hours or printed.upper() in ("", unit.upper()):
        return 1
    return _SCALES.get(printed[:1].upper()) if printed[1:].upper() == unit.upper() else None


def _output(command: list[str]) -> str:
    """Return what the command prints; nothing if it fails, hangs, or prints without end."""
    limit = ["timeout", "--signal=KILL", str(SECONDS)]
    done = subprocess.run([*limit, *_COMMAND, *command], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""
