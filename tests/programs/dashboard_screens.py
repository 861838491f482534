# SPDX-License-Identifier: Apache-2.0
"""`make dashboard-screens`: draw every dashboard with the answers of a real Prometheus that watches a real job.

Grafana does not run. Queries, titles, legends and units come from the Grafana dashboards; this program draws the panels
itself.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from tests.chart.chart import CHART
from tests.dashboards.job import asked, watched_job
from tests.dashboards.prometheus import Prometheus
from tests.support.paths import REPOSITORY

_ROUNDS, _TASKS, _ROUNDS_BETWEEN_LOSSES = 14, 8, 5
_SHOWN_SECONDS = 90
_MOST_IN_A_LEGEND = 6
_UNITS = {"short": "", "ops": "/s", "rowsps": "rows/s", "s": "s", "bytes": "B", "Bps": "B/s"}
_SCALED = ("rowsps", "s", "bytes", "Bps")


def main() -> None:
    """Write a picture of each dashboard to docs/images, and print the paths of the pictures."""
    with tempfile.TemporaryDirectory() as directory, watched_job(Path(directory)) as (job, prometheus):
        for number in range(_ROUNDS):
            job.run(number, _TASKS)
            # Kill workers rarely, because a pool whose workers keep dying delays new workers.
            if number % _ROUNDS_BETWEEN_LOSSES == 0:
                job.lose_a_worker()
        for path in sorted((CHART / "dashboards").glob("*.json")):
            target = REPOSITORY / f"docs/images/dashboard-{path.stem}.png"
            _board(json.loads(path.read_text()), prometheus).savefig(target, dpi=80)
            print(target.relative_to(REPOSITORY))


def _board(board: dict[str, Any], prometheus: Prometheus) -> Figure:
    panels = board["panels"]
    rows = -(-len(panels) // 2)
    figure = Figure(figsize=(13, 2.8 * rows + 0.5), layout="constrained")
    figure.suptitle(board["title"], x=0.01, ha="left", fontsize=13)
    places = list(figure.subplots(rows, 2, squeeze=False).flat)
    for axes, panel in zip(places, panels, strict=False):
        _panel(axes, panel, prometheus)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    return figure


def _panel(axes: Axes, panel: dict[str, Any], prometheus: Prometheus) -> None:
    for target in panel["targets"]:
        for labels, points in prometheus.series(asked(target["expr"]), _SHOWN_SECONDS):
            ago, values = zip(*points, strict=True)
            (line,) = axes.plot(ago, values, linewidth=1, label=_legend(target["legendFormat"], labels))
            axes.fill_between(ago, values, alpha=0.1, color=line.get_color())
    axes.set_title(panel["title"], loc="left", fontsize=10)
    axes.set_xlim(-_SHOWN_SECONDS, 0)
    axes.set_ylim(0, None if axes.dataLim.ymax > 0 else 1)
    axes.xaxis.set_major_formatter("{x:.0f} s")
    unit = panel["fieldConfig"]["defaults"]["unit"]
    axes.yaxis.set_major_formatter(EngFormatter(_UNITS[unit]) if unit in _SCALED else "{x:g}" + _UNITS[unit])
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    shown = axes.lines[:_MOST_IN_A_LEGEND]
    axes.legend(handles=shown, loc="upper left", bbox_to_anchor=(0, -0.08), ncols=2, fontsize=7, frameon=False)


def _legend(template: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda name: labels.get(name[1], ""), template)


if __name__ == "__main__":
    main()
