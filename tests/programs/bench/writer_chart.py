# SPDX-License-Identifier: Apache-2.0
"""Chart of the writer's benchmark: time and memory by quota, and raw bytes that encoders process per CPU second."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.programs.bench.writer_record import Measured
from tests.support.paths import REPOSITORY

# Colors from the Okabe-Ito palette, which color-blind readers can distinguish; markers distinguish them in gray.
_COLORS = {"asynchronous": "#0072B2", "synchronous": "#D55E00"}
_BARS = ("#0072B2", "#999999", "#E69F00", "#009E73")
_MARKERS = {"slow sink": "o", "fast sink": "s"}


def draw(paces: Sequence[Measured], encoders: Sequence[Measured], caption: str, target: Path) -> None:
    """Write `target` as SVG and PNG, and print their paths."""
    figure = Figure(figsize=(13, 4.6))
    seconds, memory, speed = figure.subplots(1, 3)
    _over_quotas(seconds, paces, "median_wall_s", "seconds for four files (less is better)")
    _over_quotas(memory, paces, "peak_mib", "most memory beyond the idle service, MiB")
    quotas = sorted({entry.quota_mib for entry in paces})
    memory.plot(quotas, quotas, color="#333333", linewidth=1, linestyle="--", label="the quota")
    memory.legend(fontsize=7, frameon=False)
    seconds.legend(fontsize=7, frameon=False)
    _encoders(speed, encoders)
    figure.suptitle("The writer: asynchronous under a quota, and its CPU encoder", fontsize=12)
    figure.text(0.01, 0.01, caption, fontsize=7, color="#555555")
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    for path in (target.with_suffix(".svg"), target.with_suffix(".png")):
        figure.savefig(path, dpi=160)
        print(path.relative_to(REPOSITORY))


def _over_quotas(axes: Axes, paces: Sequence[Measured], value: str, title: str) -> None:
    for case, variant in dict.fromkeys((entry.case, entry.variant) for entry in paces):
        line = [entry for entry in paces if (entry.case, entry.variant) == (case, variant)]
        axes.plot(
            [entry.quota_mib for entry in line],
            [getattr(entry, value) for entry in line],
            color=_COLORS[variant],
            marker=_MARKERS[case],
            linestyle="-" if case == "slow sink" else ":",
            label=f"{variant}, {case}",
        )
    quotas = sorted({entry.quota_mib for entry in paces})
    axes.set_xscale("log", base=2)
    axes.set_xticks(quotas, [str(quota) for quota in quotas])
    axes.set_xlabel("quota, MiB", fontsize=8)
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_ylim(bottom=0 if value == "median_wall_s" else None)
    axes.spines[["top", "right"]].set_visible(False)


def _encoders(axes: Axes, measured: Sequence[Measured]) -> None:
    cases, variants = (list(dict.fromkeys(getattr(entry, name) for entry in measured)) for name in ("case", "variant"))
    height = 0.8 / max(1, len(variants))
    for number, (variant, color) in enumerate(zip(variants, _BARS, strict=False)):
        found = {entry.case: entry.raw_mb_per_cpu_s for entry in measured if entry.variant == variant}
        places = [index + (number - (len(variants) - 1) / 2) * height for index in range(len(cases))]
        bars = axes.barh(places, [found[case] for case in cases], height, color=color, label=variant)
        axes.bar_label(bars, [f"{found[case]:.0f}" for case in cases], padding=2, fontsize=6)
    axes.set_yticks(range(len(cases)), cases, fontsize=8)
    axes.invert_yaxis()
    axes.set_title("raw MB encoded in a second of CPU (more is better)", fontsize=9, loc="left")
    axes.legend(fontsize=7, frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.3)
