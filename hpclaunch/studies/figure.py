"""The picture of scaling studies, as wide as a page's text; readable in black and white. Only here is matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, StrMethodFormatter

from hpclaunch.studies.scaling import GOOD, Scaling, speed_up

# Of each study. The colours differ for the colour-blind too (Okabe and Ito, https://jfly.uni-koeln.de/color).
_LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#0072b2", "marker": "o", "linestyle": "-", "linewidth": 1, "markersize": 5},
    {"color": "#d55e00", "marker": "s", "linestyle": "-.", "linewidth": 1, "markersize": 5, "markerfacecolor": "none"},
)
_IDEAL: dict[str, Any] = {"color": "0.5", "linestyle": (0, (4, 3)), "linewidth": 0.8}
_SETTINGS: Any = {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "hpclaunch"}


def draw(studies: Sequence[Scaling], paths: Iterable[Path]) -> None:
    """Draw speed-up, of several studies samples/s, and efficiency against nodes, into files of these names."""
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(6.8, 3.3), layout="constrained")
        gain, efficiency = figure.subplots(1, 2)
        for i, study in enumerate(studies):
            _curve(gain, efficiency, study, _LOOKS[i % 2], study.sizes[0].samples_per_second if studies[1:] else 1)
        gain.plot([], [], **_IDEAL, label="ideal")
        gain.legend(frameon=False)
        gain.set(yscale="log", ylabel="samples/s" if studies[1:] else "speed-up")
        gain.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if studies[1:] else LogLocator(2))
        efficiency.axhline(100 * GOOD, color="0.6", linewidth=0.8, linestyle=(0, (1, 2)))
        efficiency.set(ylabel="efficiency [%]", ylim=(0, None))
        for axes in (gain, efficiency):
            axes.set(xlabel="nodes", xscale="log")
            axes.set_xticks(sorted({size.nodes for study in studies for size in study.sizes}))
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
            axes.minorticks_off()
        figure.supxlabel("\n".join(study.caption for study in studies), fontsize=6.5, color="0.3")
        for path in paths:
            figure.savefig(path, dpi=300, metadata={"Date": None} if path.suffix == ".svg" else None)


def _curve(gain: Any, efficiency: Any, study: Scaling, look: dict[str, Any], unit: float) -> None:
    """Draw one study: its ideal, the fit as a line, the measured sizes as points. `unit` is the smallest's value."""
    nodes, serial = [size.nodes for size in study.sizes], study.serial_fraction
    points, line = look | {"linestyle": "none"}, look | {"marker": ""}
    gain.plot([], [], **look, label=study.place)
    gain.plot([nodes[0], nodes[-1]], [unit, unit * nodes[-1] / nodes[0]], **_IDEAL)
    gain.plot(nodes, [unit * size.speed_up for size in study.sizes], **points)
    efficiency.plot(nodes, [100 * size.efficiency for size in study.sizes], **points)
    if serial is not None:
        dense = [(n, speed_up(n, serial, study.weak)) for n in ((nodes[-1] / nodes[0]) ** (i / 64) for i in range(65))]
        gain.plot([n * nodes[0] for n, _ in dense], [unit * one for _, one in dense], **line)
        efficiency.plot([n * nodes[0] for n, _ in dense], [100 * one / n for n, one in dense], **line)
