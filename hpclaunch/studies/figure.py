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
    {"color": "#0072b2", "marker": "o", "linestyle": "-"},
    {"color": "#d55e00", "marker": "s", "linestyle": "-.", "markerfacecolor": "none"},
    {"color": "#000000", "marker": "^", "linestyle": ":"},
)
_IDEAL: dict[str, Any] = {"color": "0.5", "linewidth": 0.8, "linestyle": (0, (4, 3))}
_SETTINGS: Any = {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "hpclaunch"}


def draw(studies: Sequence[Scaling], paths: Iterable[Path]) -> None:
    """Draw speed-up, of several studies samples/s, and efficiency against nodes, into files of these names."""
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(6.8, 3.3), layout="constrained")
        gain, efficiency = figure.subplots(1, 2)
        for i, study in enumerate(studies):
            unit = study.sizes[0].samples_per_second if studies[1:] else 1
            _curve(gain, efficiency, study, _LOOKS[i % len(_LOOKS)], unit)
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
    nodes, points, serial = [size.nodes for size in study.sizes], look | {"linestyle": "none"}, study.serial_fraction
    gain.plot([nodes[0], nodes[-1]], [unit, unit * nodes[-1] / nodes[0]], **_IDEAL)
    gain.plot(nodes, [unit * size.speed_up for size in study.sizes], **points, markersize=5)
    efficiency.plot(nodes, [100 * size.efficiency for size in study.sizes], **points, markersize=5)
    gain.plot([], [], **look, linewidth=1, markersize=5, label=f"{study.site} {study.partition}")
    if serial is not None:
        dense = [(nodes[-1] / nodes[0]) ** (i / 64) for i in range(65)]
        fitted, line = [speed_up(n, serial, study.weak) for n in dense], look | {"marker": "", "linewidth": 1}
        gain.plot([n * nodes[0] for n in dense], [unit * one for one in fitted], **line)
        shares = [100 * one / n for one, n in zip(fitted, dense, strict=True)]
        efficiency.plot([n * nodes[0] for n in dense], shares, **line)
