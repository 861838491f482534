# SPDX-License-Identifier: Apache-2.0
"""Table of a benchmark, and the ratios that its chart shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.programs.bench.case import Case
from tests.programs.bench.chart import Ratios
from tests.programs.bench.record import Record
from tests.programs.bench.variants import VARIANTS

_NEAR = ("updraft-unix", "updraft-loopback")
_HEADER = (
    f"{'case':27}{'no UDF':>8}{'best stock':>12}  {'which':25}{'updraft':>9}{'unix':>8}{'loopback':>9}"
    f"{'speed':>8}{'':>16}{'CPU':>7}{'own cost':>10}"
)


def print_table(cases: Sequence[Case], records: Sequence[Record]) -> dict[Case, Ratios]:
    """Print a line for each case measured on stock; return the ratios of the cases that also ran on a pool."""
    print("\nmedian seconds; speed and own cost over TCP alone, a Unix socket and a loopback address; CPU over TCP;")
    print(f"own cost: stock's time above the query without UDF, in multiples of ours\n{_HEADER}")
    ratios = {}
    for case in cases:
        mine = {record.variant: record for record in records if record.case == case.name and record.wall_s}
        best = best_stock(mine)
        if best is None:
            continue
        ratio = _ratios(case, best, mine.get("updraft"), mine.get("updraft-unix"))
        print(_line(case, best, mine, ratio))
        if ratio is not None:
            ratios[case] = ratio
    return ratios


def best_stock(measured: Mapping[str, Record]) -> Record | None:
    """Return the record of the fastest stock configuration, given a case's records by variant; None without stock."""
    stock = [measured[variant.name] for variant in VARIANTS if variant.is_stock and variant.name in measured]
    return min(stock, key=lambda record: record.median_wall_s, default=None)


def print_targets(ratios: Mapping[Case, Ratios]) -> None:
    """Print the target and the measurement of each case that ran on a pool."""
    print(f"\ntargets, over TCP\n{'case':27}{'speed':>8}{'target':>10}{'CPU':>8}{'target':>10}")
    for case, ratio in ratios.items():
        target = case.target
        cpu_target = "-" if target.cpu is None else f"<= {target.cpu:.2f}"
        print(
            f"{case.name:27}{ratio.speed:>7.2f}x{f'>= {target.speed:.2f}':>10}{ratio.cpu:>8.2f}{cpu_target:>10}"
            f"  {'met' if target.is_met_by(ratio) else 'MISSED'}"
        )


def _line(case: Case, best: Record, mine: Mapping[str, Record], ratio: Ratios | None) -> str:
    ours = [mine.get(name) for name in ("updraft", *_NEAR)]
    seconds = "".join(f"{seconds_of(record):>{width}}" for record, width in zip(ours, (9, 8, 9), strict=True))
    line = f"{case.name:27}{seconds_of(mine.get('no-udf')):>8}{seconds_of(best):>12}  {best.variant:25}{seconds}"
    if ratio is None:
        return line
    speeds = "".join(
        f"{f'{best.median_wall_s / record.median_wall_s:.2f}x' if record is not None else '-':>8}" for record in ours
    )
    costs = [own_cost(mine.get("no-udf"), best, record) for record in ours]
    shown = "".join(f"{f'{cost:.1f}x' if cost is not None else '-':>8}" for cost in costs)
    return f"{line}{speeds}{ratio.cpu:>7.2f}  {shown}"


def _ratios(case: Case, best: Record, tcp: Record | None, unix: Record | None) -> Ratios | None:
    if tcp is None:
        return None

    def speed(record: Record) -> float:
        return best.median_wall_s / record.median_wall_s

    def cpu(record: Record) -> float:
        return record.median_cpu_s / best.median_cpu_s

    with_unix = (speed(unix), cpu(unix)) if unix is not None else (None, None)
    return Ratios(case.title, speed(tcp), cpu(tcp), *with_unix)


def own_cost(without_udf: Record | None, stock: Record, ours: Record | None) -> float | None:
    """Return the UDF's cost on stock divided by its cost on Updraft; a cost is the query's time minus that without UDF.

    The result is None if the query without the UDF was not measured, or if the UDF costs no time on Updraft.
    """
    if without_udf is None or ours is None:
        return None
    own_seconds = ours.median_wall_s - without_udf.median_wall_s
    return (stock.median_wall_s - without_udf.median_wall_s) / own_seconds if own_seconds > 0 else None


def seconds_of(record: Record | None) -> str:
    """Return a median, or a dash for a variant that did not run."""
    return f"{record.median_wall_s:.3f}" if record is not None else "-"
