"""Fix what is certain in a script's directives, and leave every other byte."""

import re
from collections.abc import Callable, Sequence

from hpclaunch.job.diagnostic import Diagnostic, Edit
from hpclaunch.job.directives.read import PREFIX
from hpclaunch.scripts.examine import Report

_MOST = 200  # fixes of one script


def fixed(text: str, examine: Callable[[str], Report]) -> tuple[str, list[Diagnostic], Report]:
    """Return the script with what is certain fixed, the diagnostics that are gone, and the report of what it is now.

    Each fix is checked again: one that leaves its diagnostic, or brings a refusal, is not made.
    """
    report = examine(text)
    done: list[Diagnostic] = []
    failed: set[str] = set()
    for _ in range(_MOST):
        one = next((one for one in report.diagnostics if one.edits and one.message not in failed), None)
        if one is None:
            break
        new = apply(text, one.edits)
        after = examine(new)
        left = {other.message for other in after.diagnostics}
        worse = _refused(after) - _refused(report) and not one.fatal
        if new == text or one.message in left or worse:
            failed.add(one.message)
        else:
            done += [other for other in report.diagnostics if other.edits == one.edits and other.message not in left]
            text, report = new, after
    return text, done, report


def _refused(report: Report) -> set[str]:
    return {one.check for one in report.diagnostics if one.refuses}


def apply(text: str, edits: Sequence[Edit]) -> str:
    """Return a text with edits made; a directive of which nothing is left goes."""
    for edit in edits:
        if not edit.line:
            text = _changed(edit, text)
    lines = text.split("\n")
    for edit in edits:
        if edit.line:
            line = lines[edit.line - 1]
            body = line.removesuffix("\r")
            lines[edit.line - 1] = _changed(edit, body, 1) + line[len(body) :]
    gone = {edit.line - 1 for edit in edits if edit.line and lines[edit.line - 1].strip() in PREFIX.values()}
    return "\n".join(line for number, line in enumerate(lines) if number not in gone)


def _changed(edit: Edit, text: str, count: int = 0) -> str:
    return re.sub(edit.old, lambda _: edit.new, text, count=count)
