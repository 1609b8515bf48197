"""Print docs/templates.md: the blocks of the job scripts' templates. `make docs` writes it."""

from __future__ import annotations

import re
from pathlib import Path

TEMPLATES = Path(__file__).parents[1] / "templates"

HEAD = """\
# Template blocks

A job script is rendered from `templates/SCHEDULER.sh.j2`, or from the template that a profile names. Each template
extends the one above it; a block of the nearest one wins, and `{{ super() }}` is what stood there before. Your own, in
`./templates` or `~/.config/hpclaunch/templates`, extends a shipped one by its name with `builtin/` in front:

```jinja
{% extends "builtin/pbs.sh.j2" %}
{% block directives %}{{ super() }}
#PBS -m abe
{%- endblock %}
{% block after_launch %}echo "done with $HPCLAUNCH_RUN_DIR"
{% endblock %}
```

A block that no template above has is an error. `plan` is all that a template sees; `plan.json` of a run folder shows
it. The filter `sh` quotes what users give. `hpclaunch render --explain` names the template's line beside each line of
a script. This page is made from the templates by `make docs`.

| block | when it runs | in |
|---|---|---|
"""
# In the order of a job script.
BLOCKS = {
    "directives": "What the scheduler reads: name, account, size, walltime.",
    "resources": "PBS: the directives of cores, GPUs, memory, disk and file systems.",
    "before_shell": "In a script of `hpclaunch shell`, which has only this and the environment: before that.",
    "before_environment": "The head of the script: the run folder, traps, the note for `hpclaunch status`.",
    "run_folder": "Sets HPCLAUNCH_RUN_DIR and the attempt's number.",
    "leftovers": "Further files that an attempt before this one may have left, to be removed.",
    "before_attempt": "Once the run folder is there, before each attempt.",
    "on_term": "At a TERM before the launch.",
    "environment": "Your job's part: modules, --venv, variables, --setup.",
    "after_environment": "Behind it, before the command is set.",
    "before_launch": "Before the rendezvous.",
    "rendezvous": "Sets MASTER_ADDR and MASTER_PORT.",
    "hosts": "The hosts of the job, one a line, for submitit.",
    "world_size": "The number of ranks, where it is known only in the job.",
    "until_warned": "A condition in each rank: the walltime is near; it sets `warn_at`, the time to be warned at.",
    "after_second": "In each rank, while it waits for that.",
    "on_term_of_launch": "At a TERM after the launch.",
    "launch": "Starts the ranks on all nodes, follows rank 0, waits.",
    "before_nodes": "Schedulers that do not watch nodes: before the first node starts.",
    "before_ranks": "On each node: before its ranks start.",
    "before_signals": "On each node: which signals it leaves to its ranks.",
    "beat": "On each node: what a heartbeat needs.",
    "heartbeat": "On each node: in each round, while the ranks run.",
    "after_heartbeat": "On each node: at the end of each round.",
    "after_ranks": "On each node: when one of its ranks has ended.",
    "after_node": "On each node: at its end.",
    "follow_mpirun": "With the launcher mpirun: shows what rank 0 writes.",
    "start_nodes": "Starts `run_node` on each node and waits for all.",
    "after_wait": "Once all ranks have ended.",
    "after_launch": "At the end of the launch, before a further attempt.",
    "next_attempt": "Starts the next attempt, if there is something left to do.",
    "record": "Writes the exit code for `hpclaunch status`.",
}


def rows() -> str:
    """Return the rows of the table. Raises SystemExit if a block has no description, or the other way round."""
    found: dict[str, list[str]] = {}
    for file in sorted(TEMPLATES.glob("*.sh.j2")):
        for name in dict.fromkeys(re.findall(r"\{%-? *block (\w+)", file.read_text())):
            found.setdefault(name, []).append(f"`{file.name.removesuffix('.sh.j2')}`")
    if odd := found.keys() ^ BLOCKS.keys():
        raise SystemExit(f"docs/templates.py: describe each block, and no other: {', '.join(sorted(odd))}")
    return "".join(f"| `{name}` | {text} | {' '.join(found[name])} |\n" for name, text in BLOCKS.items())


if __name__ == "__main__":
    print(HEAD + rows(), end="")  # noqa: T201 - it prints
