"""The picture of scaling studies, as wide as a page's text; readable in black and white. Only here is matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, StrMethodFormatter

from hpclaunch.runs.scaling import GOOD, Scaling

# Of each study. The colours differ for the colour-blind too (Okabe and Ito, https://jfly.uni-koeln.de/color).
_LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#0072b2", "marker": "o", "linestyle": "-", "linewidth": 1, "markersize": 5},
    {"color": "#d55e00", "marker": "s", "linestyle": "-.", "linewidth": 1, "markersize": 5, "markerfacecolor": "none"},
)
_IDEAL: dict[str, Any] = {"color": "0.5", "linestyle": (0, (4, 3)), "linewidth": 0.8}
_SETTINGS: Any = {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "hpclaunch"}


def draw(studies: Sequence[Scaling]) -> None:
    """Draw speed-up, of several studies samples/s, and efficiency against nodes: scaling.svg and scaling.png, here."""
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(6.8, 3.3), layout="constrained")
        gain, efficiency = figure.subplots(1, 2)
        for i, study in enumerate(studies):
            sizes, first, last = study.sizes, study.sizes[0].nodes, study.sizes[-1].nodes
            nodes, unit = [size.nodes for size in sizes], sizes[0].samples_per_second if studies[1:] else 1
            points, line = _LOOKS[i % 2] | {"linestyle": "none", "clip_on": False}, _LOOKS[i % 2] | {"marker": ""}
            gain.plot([], [], **_LOOKS[i % 2], label=study.place)
            gain.plot([first, last], [unit, unit * last / first], **_IDEAL, label="" if i else "ideal")
            gain.plot(nodes, [unit * size.speed_up for size in sizes], **points)
            efficiency.plot(nodes, [100 * size.efficiency for size in sizes], **points)
            if study.serial_fraction is not None:
                dense = [(last / first) ** (i / 64) for i in range(65)]
                gain.plot([n * first for n in dense], [unit * study.fitted(n) for n in dense], **line)
                efficiency.plot([n * first for n in dense], [100 * study.fitted(n) / n for n in dense], **line)
        gain.legend(frameon=False)
        gain.set(yscale="log", ylabel="samples/s" if studies[1:] else "speed-up")
        gain.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if studies[1:] else LogLocator(2))
        efficiency.axhline(100 * GOOD, color="0.6", linewidth=0.8, linestyle=(0, (1, 2)))
        efficiency.set(ylabel="efficiency [%]", ylim=(0, None))
        for axes in (gain, efficiency):
            axes.set(xlabel="nodes", xscale="log")
            axes.set_xticks(sorted({size.nodes for study in studies for size in study.sizes}))
            axes.minorticks_off()
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
        figure.supxlabel("\n".join(study.caption for study in studies), fontsize=6.5, color="0.3")
        figure.savefig("scaling.svg", metadata={"Date": None})
        figure.savefig("scaling.png", dpi=300)
