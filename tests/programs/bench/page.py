# SPDX-License-Identifier: Apache-2.0
"""`make bench-page`: docs/benchmarks.md and its charts from build/bench/udf.json, which `make bench-udf` wrote."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence

from tests.programs.bench.case import MILLION, Case
from tests.programs.bench.cases import CHARTS
from tests.programs.bench.record import Record, read
from tests.programs.bench.report import best_stock, own_cost, seconds_of
from tests.support.paths import BUILD, REPOSITORY

_MEASURED = BUILD / "bench"
_DOCS = REPOSITORY / "docs"
_TITLES = {
    "udf": "Functions of rows",
    "udf-scenarios": "Shapes from Spark's own benchmark of pipelined UDFs",
    "udf-groups": "Functions of groups and windows, and table functions",
}
_INTRODUCTION = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Written by `make bench-page` from what `make bench-udf` measured. Do not edit. -->
# Every kind of function, measured

`make bench-udf` runs each case on Updraft and on four configurations of stock PySpark: pipelining on and off, columnar
input on and off. Each case is compared with the fastest of the four. Every configuration has its own Spark with
`local[2]`, unless the case names another master. They take turns on one machine with 2 cores, with the pool on the same
machine, over TCP, and write to a noop sink.

Seconds are medians of at least three counted runs. CPU counts every process of a side, as a share of the CPU time of
the stock configuration. "no UDF" is the same query with a column in place of the UDF's result; for functions of groups
it is the shuffle and the sort that bring a group together. "own cost" is a query's time
minus that without UDF, stock's divided by Updraft's. Cases may have been measured on different days
(`BENCH="--add --cases ..."`), so compare within a line. "applyInPandas, 8 large groups" is mostly Spark's own shuffle
and varies with the JVM, so its Sparks were started several times (`--starts`).

`make bench-check` checks each case against its target.
"""
_HEADER = """\
| case | rows | no UDF, s | best stock, s | Updraft, s | speed | own cost | CPU | target |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def main() -> int:
    """Write the page and copy the charts; return 1 if there are no measurements."""
    records = read(_MEASURED / "udf.json")
    if not records:
        print("nothing is measured: run `make bench-udf` first")
        return 1
    (_DOCS / "benchmarks.md").write_text(page(records))
    for name in CHARTS:
        shutil.copyfile(_MEASURED / f"{name}.svg", _DOCS / f"images/{name}.svg")
    return 0


def page(records: Sequence[Record]) -> str:
    """Return the page, with a chart and a table for each family of cases."""
    parts = [_INTRODUCTION]
    for name, cases in CHARTS.items():
        rows = "".join(_rows(cases, records))
        parts.append(f"\n## {_TITLES[name]}\n\n![Speed and CPU time](images/{name}.svg)\n\n{_HEADER}{rows}")
    return "".join(parts)


def _rows(cases: Sequence[Case], records: Sequence[Record]) -> Iterator[str]:
    for case in cases:
        mine = {record.variant: record for record in records if record.case == case.name and record.wall_s}
        stock, ours = best_stock(mine), mine.get("updraft")
        if stock is None or ours is None:
            continue
        speed = stock.median_wall_s / ours.median_wall_s
        cpu = ours.median_cpu_s / stock.median_cpu_s
        own = own_cost(mine.get("no-udf"), stock, ours)
        seconds = " | ".join(map(seconds_of, (mine.get("no-udf"), stock, ours)))
        yield (
            f"| {case.title} | {_count(ours.rows)} | {seconds} "
            f"| {speed:.2f}x | {'-' if own is None else f'{own:.1f}x'} | {cpu:.2f} | {case.target.speed:.2f}x |\n"
        )


def _count(rows: int) -> str:
    if rows < 1000:
        return str(rows)
    return f"{rows // MILLION}M" if rows % MILLION == 0 else f"{rows // 1000}k"


if __name__ == "__main__":
    sys.exit(main())
