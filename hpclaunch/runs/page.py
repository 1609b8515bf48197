"""The report of a job as one page that needs nothing else: its plots are SVG, whose text stays text."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

from hpclaunch import paths
from hpclaunch.errors import HpclaunchError
from hpclaunch.job.render import page
from hpclaunch.job.request import HIDDEN, HIDES
from hpclaunch.runs import why
from hpclaunch.runs.report import Report
from hpclaunch.runs.usage import Node, Series
from hpclaunch.schedulers import run_folder

_INK = "#010203"  # in the plots; the page's own colour of text in the page
_FAILED, _ENDS = "#e15759", {"0": "#4e79a7", "75": "#4e79a7", "-": "#9c9c9c"}  # by exit code, - without one
_MARKS = {"rendezvous": ("^", "rendezvous"), "step": ("o", "first step"), "save": ("|", "save")}
_MOST_ROWS = 24  # that have names
_SHOWN = "partition_name nodes tasks_per_node gpus_per_node cpus_per_node cpus_per_task mem_gb_per_node walltime cost"


def make(report: Report) -> str:
    """Return the page. Raises HpclaunchError if matplotlib is not installed."""
    try:
        figures = {name: _figure(report.nodes, name, width) for name, width in (("wide", 10.0), ("narrow", 4.4))}
    except ImportError:
        raise HpclaunchError("report --html needs matplotlib; use pip install 'hpclaunch[plot]'") from None
    plan, script = report.plan, run_folder.read(report.run.path, run_folder.SCRIPT) or ""
    return page(
        "report.html.j2",
        report=report,
        figures=figures,
        explanation=why.explain(report.run, report.state, report.profile.site.messages if report.profile else None),
        plan=[(name, getattr(plan, name), plan.basis_of(name)) for name in _SHOWN.split()] if plan else [],
        script=re.sub(r"(?m)^.*\bexport .*", _hidden, script),
    )


def _hidden(line: re.Match[str]) -> str:
    return HIDDEN if re.search(HIDES, " ".join(re.findall(r"(\w+)=", line[0]))) else line[0]


def _figure(nodes: list[Node], name: str, width: float) -> str:
    """Return the timeline of the ranks and the use of the nodes over time, as SVG that is `width` inches wide."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    panels: dict[str, dict[str, Series]] = {}
    for node in nodes:
        for (kind, gpu), series in node.series.items():
            panels.setdefault(kind, {})[f"node {node.number} {node.host}{f' GPU {gpu}' if gpu else ''}"] = series
    times = [at for node in nodes for at in [*sum(node.times, ()), *(at for at, *_ in node.events)]]
    start, end = min(times, default=0), max(times, default=1)
    unit, each = ("s", 1) if end - start < 300 else ("min", 60) if end - start < 3 * 3600 else ("h", 3600)
    ranks = {rank for node in nodes for _, _, rank, _ in node.events}
    with rc_context(fname=paths.shipped("templates") / "report.mplstyle"):
        heights = [min(0.7 + 0.2 * len(ranks), 6), *[1.6] * len(panels)]
        figure = Figure(figsize=(width, sum(heights)))
        every = figure.subplots(len(heights), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        _draw_ranks(every[0], nodes, sorted(ranks, key=lambda rank: (len(rank), rank)), start, end, each)
        for axes, (kind, lines) in zip(every[1:], panels.items(), strict=True):
            for label, series in lines.items():
                axes.plot([(at - start) / each for at, _ in series], [value for _, value in series], ".-", label=label)
            axes.set(ylabel=kind, ylim=(0, None))
        for axes in every:
            names = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
            if 0 < len(names) <= 4 * (columns := int(width // 3)):
                axes.legend(names.values(), names, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns)
        axes.set_xlabel(f"time since the start, {unit}")
        figure.savefig(file := StringIO(), metadata={"Date": None})
    svg = file.getvalue()
    return re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", svg[svg.index("<svg") :]).replace(_INK, "currentColor")


def _draw_ranks(axes: Any, nodes: list[Node], ranks: list[str], start: int, end: int, each: int) -> None:
    """Draw a bar for each time that a rank ran, and marks for what happened in it; times are divided by `each`."""
    rows = {rank: row for row, rank in enumerate(ranks)}
    for node in nodes:
        begun: dict[str, int] = {}
        for at, what, rank, code in [*node.events, *((end, "end", one, "-") for one in ranks)]:
            if what in _MARKS:
                axes.plot((at - start) / each, rows[rank], _MARKS[what][0], color=_INK, label=_MARKS[what][1])
                continue
            if rank in begun:
                bar = {"left": (begun[rank] - start) / each, "color": _ENDS.get(code, _FAILED)}
                last = (
                    max(one for one in (begun[rank], *(b for _, b in node.times)) if one <= at) if code == "-" else at
                )
                axes.barh(rows[rank], (last - begun.pop(rank)) / each, height=0.6, **bar)
            if what == "start":
                begun[rank] = at
    axes.set_yticks([*rows.values()] if len(rows) <= _MOST_ROWS else [], ranks if len(rows) <= _MOST_ROWS else [])
    axes.invert_yaxis()
