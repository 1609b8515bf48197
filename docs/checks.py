"""Print docs/checks.md: the table of checks as the code has it. `make docs` writes it."""

from __future__ import annotations

from hpclaunch.job.checks import CHECKS, Check
from hpclaunch.scripts.checks import SCRIPT_CHECKS

HEAD = """\
# Checks

What `hpclaunch` says of a job before it is submitted. `hpclaunch check` says it all at once; `render` and `submit`
refuse with exit code 1 and print warnings on stderr. This file is made from the code by `make docs`.

Each message names its check, the value that is wrong, the limit, what to use, and its source: the FILE:LINE of the
profile's key, or where a rule that no profile holds is written down. A key that a profile lists under `unconfirmed`
warns and never refuses. `--force CHECK`, or `force: [CHECK]` in hpclaunch.yaml, makes a check warn, unless it leaves
nothing to render. A site profile of your own gets a check by having the keys that it reads; `hpclaunch site schema`
says what they mean.

| check | what it does | reads | source |
|---|---|---|---|
"""

SCRIPTS = """
## Only in scripts

`hpclaunch check --script FILE` runs the same checks over a script of anybody's, each diagnostic at its line and in the
script's own words, and these, which are about what only a script can have wrong. `--fix` prints the script with what is
certain fixed in its directives and every other byte as it was, `--diff` what that changes.

| check | what it does | reads | source |
|---|---|---|---|
"""


def cell(words: str) -> str:
    """Return words as code, with a blank between them."""
    return " ".join(f"`{word}`" for word in words.split())


def table(checks: dict[str, Check]) -> str:
    """Return the rows of a table of checks."""
    rows = ""
    for name, check in checks.items():
        sources = dict.fromkeys(["the profile" if check.reads else "", check.source, *check.sources.values()])
        source = " or ".join(filter(None, sources))
        sentence = check.sentence.replace("<", "&lt;").replace("$", "\\$").replace("|", "\\|")
        rows += f"| `{name}` | {sentence} | {cell(check.reads)} | {source} |\n"
    return rows


if __name__ == "__main__":
    print(HEAD + table(CHECKS) + SCRIPTS + table(SCRIPT_CHECKS), end="")  # noqa: T201 - it prints
