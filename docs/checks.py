"""Print docs/checks.md: the table of checks as the code has it. `make docs` writes it."""

from __future__ import annotations

from hpclaunch.job.checks import CHECKS
from hpclaunch.scripts.traps import TRAPS

HEAD = """\
# Checks

What `hpclaunch` says of a job before it is submitted. `hpclaunch check` says it all at once; `render` and `submit`
refuse with exit code 1 and print warnings on stderr. This file is made from the code by `make docs`.

Each message names its check, the numbers, a way out, and its source: the FILE:LINE of the profile's key, or where a
rule that no profile holds is written down. A key that a profile lists under `unconfirmed` warns and never refuses.
`--force CHECK`, or `force: [CHECK]` in hpclaunch.yaml, makes a check warn, unless it leaves nothing to render. A site
profile of one's own gets a check by having the keys that it reads; `hpclaunch site schema` tells what they mean.

| check | what it does | reads | rests on |
|---|---|---|---|
"""

SCRIPTS = """
## In scripts that somebody else wrote

`hpclaunch check --script FILE` names the same checks at the script's lines, and what only a script can have wrong. What
refuses has exit code 1.

| check | what is wrong | how | reads | rests on |
|---|---|---|---|---|
"""


def cell(words: str) -> str:
    """Return words as code, with a blank between them."""
    return " ".join(f"`{word}`" for word in words.split())


if __name__ == "__main__":
    print(HEAD, end="")  # noqa: T201 - it prints
    for name, check in CHECKS.items():
        source = " or ".join(filter(None, ("the profile" if check.reads else "", check.source, check.slurm_source)))
        print(f"| `{name}` | {check.sentence.replace('<', '&lt;')} | {cell(check.reads)} | {source} |")  # noqa: T201 - see above
    print(SCRIPTS, end="")  # noqa: T201 - see above
    for name, trap in TRAPS.items():
        how = "refuses" if trap.refuses else "warns"
        rests_on = " or ".join(filter(None, ("the profile" if trap.reads else "", *trap.source.split(" | "))))
        sentence = trap.sentence.replace("|", "\\|").replace("$", "\\$")
        print(f"| `{name}` | {sentence} | {how} | {cell(trap.reads)} | {rests_on} |")  # noqa: T201 - see above
