# SPDX-License-Identifier: Apache-2.0
"""Chart of the benchmark: speed and CPU time on a pool relative to the best stock configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.support.paths import REPOSITORY

# Colors from the Okabe-Ito palette, which color-blind readers can distinguish; hatching distinguishes them in gray.
_TCP, _UNIX = "#0072B2", "#E69F00"


@dataclass(frozen=True)
class Ratios:
    """Speed and CPU time of one case, relative to the best stock configuration."""

    title: str
    speed: float
    cpu: float
    unix_speed: float | None = None
    unix_cpu: float | None = None


def draw(ratios: Sequence[Ratios], caption: str, target: Path) -> None:
    """Write `target` as SVG and PNG, and print their paths."""
    figure = Figure(figsize=(11, 0.42 * len(ratios) + 1.8))
    speed, cpu = figure.subplots(1, 2, sharey=True)
    both = any(case.unix_speed is not None for case in ratios)
    _bars(speed, [c.speed for c in ratios], [c.unix_speed for c in ratios], both=both)
    _bars(cpu, [c.cpu for c in ratios], [c.unix_cpu for c in ratios], both=both)
    speed.set_yticks(range(len(ratios)), [case.title for case in ratios])
    speed.invert_yaxis()
    speed.set_title("speed, times the best stock (more is better)", fontsize=10, loc="left")
    cpu.set_title("CPU time, share of that stock's (less is better)", fontsize=10, loc="left")
    if both:
        figure.legend(*speed.get_legend_handles_labels(), loc="upper right", ncols=2, fontsize=8, frameon=False)
    figure.suptitle("Python UDFs on Updraft against the best of stock PySpark's configurations", fontsize=12)
    figure.text(0.01, 0.01, caption, fontsize=7, color="#555555")
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    for path in (target.with_suffix(".svg"), target.with_suffix(".png")):
        figure.savefig(path, dpi=160)
        print(path.relative_to(REPOSITORY))


def _bars(axes: Axes, tcp: Sequence[float], unix: Sequence[float | None], *, both: bool) -> None:
    height = 0.38 if both else 0.6
    offset = height / 2 if both else 0.0
    _series(axes, [index - offset for index in range(len(tcp))], tcp, height, _TCP, "TCP", "")
    if both:
        values = [value if value is not None else 0.0 for value in unix]
        _series(axes, [index + offset for index in range(len(values))], values, height, _UNIX, "Unix socket", "//")
    axes.axvline(1.0, color="#333333", linewidth=1, linestyle="--")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.15)


def _series(
    axes: Axes, places: Sequence[float], values: Sequence[float], height: float, color: str, label: str, hatch: str
) -> None:
    bars = axes.barh(places, values, height, color=color, label=label, hatch=hatch, edgecolor="white", linewidth=0)
    axes.bar_label(bars, [f"{value:.2f}" for value in values], padding=3, fontsize=8)
