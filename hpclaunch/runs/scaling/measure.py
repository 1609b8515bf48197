"""From the jobs of a study to its results: what each measured, or why it is left out."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from statistics import median

from hpclaunch.runs import metrics
from hpclaunch.runs.groups import Group
from hpclaunch.runs.registry import Run
from hpclaunch.runs.scaling import Scaling, Size
from hpclaunch.schedulers import Key, run_folder
from hpclaunch.schedulers.job import COMPLETED, State

# As programs name them: samples_per_second, train|samples_per_sec, img/s, train_tokens_per_second, throughput.
_RATE = r"(samples?|images?|imgs?|examples?|tokens?|items?)[ _]?(/|per)[ _]?s(ec(ond)?s?)?|throughput"
_EPOCH = r"epoch[ _](seconds|time)|(seconds|time)[ _]per[ _]epoch"
_SAMPLES = r"(samples|images)[ _]per[ _]epoch"
_LOGS = (run_folder.RANK_LOG, run_folder.RANK_ERR, run_folder.NODE_LOG, run_folder.NODE_ERR)  # may have rank 0's


def results(group: Group, runs: Sequence[Run], states: Mapping[Key, State]) -> Scaling:
    """Return the results of a study; its `metric` is an expression for rank 0's log, or "" for its metrics."""
    place, date = f"{group.site} {runs[0].partition}", time.strftime("%Y-%m-%d", time.localtime(group.submitted))
    study, metric = Scaling(id=group.id, place=place, weak=group.about["weak"], date=date), group.about["metric"]
    none = f"rank 0's log has no number by {metric!r}" if metric else "no samples/s in its metrics; use --metric"
    numbers = {one.ids[-1]: one.number for one in group.elements if one.ids}
    for run in runs:
        number = numbers.get(run.id, run.nodes)  # without spare nodes
        found, word = metrics.read(run.path), states[run.site, run.id].word
        rate = _logged(run, metric) if metric else _named(_RATE, found)
        if word == COMPLETED and rate:
            size = Size(nodes=number, ranks=number * run.tasks_per_node, job=run.id, samples_per_second=rate)
            size.epoch_seconds = _named(_EPOCH, found) or (_named(_SAMPLES, found) or 0) / rate or None
            with suppress(OSError, ValueError, LookupError, TypeError):  # no price, no epoch
                plan = json.loads((run.path / run_folder.PLAN).read_bytes())
                study.unit, seconds = plan["cost"]["unit"], plan["seconds"] * plan["max_attempts"]
                size.epoch_price = plan["cost"]["amount"] / seconds * size.epoch_seconds
            study.sizes.append(size)
            packages = run_folder.read(run.path, run_folder.PACKAGES) or ""
            study.versions |= dict(re.findall(r"(?m)^(torch|pytorch-lightning|lightning)==(\S+)", packages))
        else:
            study.left_out[run.id] = f"{number} nodes: {none if word == COMPLETED else word}"
    study.compare()
    return study


def _named(pattern: str, found: Mapping[str, float | str]) -> float | None:
    """Return the positive number whose name fits: of all ranks rather than of one, and not of a validation."""
    names = [name for name in found if re.fullmatch(rf"(?i)(?!(.*[\W_])?(e?val|test))(.*[\W_])?({pattern})", name)]
    numbers = [found[name] for name in sorted(names, key=lambda name: "device" in name)]
    return next((one for one in numbers if isinstance(one, int | float) and 0 < one < 1e300), None)


def _logged(run: Run, metric: str) -> float | None:
    """Return the median of the last half of the numbers that an expression's group finds in what rank 0 wrote."""
    for path in (path for name in _LOGS for path in run_folder.logs(run.path, name, 0).values()):
        found = re.finditer(metric, path.read_text(errors="replace"), re.MULTILINE)
        words = [(match[min(1, match.re.groups)] or "").replace(",", "") for match in found]
        if numbers := [float(word) for word in words if metrics.NUMBER.fullmatch(word) and float(word) > 0]:
            return median(numbers[len(numbers) // 2 :])
    return None
