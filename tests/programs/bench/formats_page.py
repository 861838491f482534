# SPDX-License-Identifier: Apache-2.0
"""`make bench-formats-page`: docs/benchmarks-tables.md from build/bench/formats.json."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence

from tests.programs.bench.formats_cases import SMALL_FILES
from tests.programs.bench.formats_variants import VARIANTS
from tests.programs.bench.writer_record import Measured, read
from tests.support.paths import BUILD, REPOSITORY

_MEASURED = BUILD / "bench/formats.json"
_PAGE = REPOSITORY / "docs/benchmarks-tables.md"
_TARGETS = {"CREATE TABLE AS SELECT": 1.5, f"compaction of {SMALL_FILES} files": 1.5, "INSERT of 10 rows": 0.95}
"""Least speed, as a multiple of the format's own writer."""
_TEXT = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Written by `make bench-formats-page` from what `make bench-formats` measured. Do not edit. -->
# Delta and Iceberg tables, measured

`make bench-formats` runs statements on Delta and Iceberg tables whose data files are made by the format's own writer,
by Updraft's, and (Iceberg) by Comet's. Each has its own Spark with two threads on one machine with 2 cores, and they
take turns. The writer service runs on the same machine with a quota of {quota} MiB. The table has twelve columns; a
statement on all rows handles {raw:.0f} MB of raw data.

Seconds and CPU are medians of {runs} runs or more, and speeds are medians of pairs. CPU is that of the driver, its JVM
and the writer. A run counts only if the variant's writer made the table's newest file. A statement that Comet leaves to
Iceberg has no line of Comet's.

| table | statement | files by | seconds | speed | CPU, s | CPU | files, MB | target |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{lines}"""


def main() -> int:
    """Write the page; return 1 if nothing was measured."""
    measured = read(_MEASURED)
    if not measured:
        print("nothing is measured: run `make bench-formats` first")
        return 1
    _PAGE.write_text(page(measured))
    return 0


def page(measured: Sequence[Measured]) -> str:
    """Return the page, with a line for each statement and writer."""
    return _TEXT.format(
        quota=measured[0].quota_mib,
        raw=measured[0].raw_bytes / 1e6,
        runs=min(len(entry.wall_s) for entry in measured),
        lines="".join(_lines(measured)),
    )


def _lines(measured: Sequence[Measured]) -> Iterator[str]:
    stock = {entry.case: entry for entry in measured if entry.variant == "stock"}
    for entry in measured:
        table_format, statement = entry.case.split(": ", maxsplit=1)
        speed, cpu, target = "", "", ""
        if entry.variant != "stock":
            base = stock[entry.case]
            times = statistics.median(own / other for own, other in zip(base.wall_s, entry.wall_s, strict=True))
            speed, cpu = f"{times:.2f}x", f"{entry.median_cpu_s / base.median_cpu_s:.2f}"
            if entry.variant == "updraft" and statement in _TARGETS:
                least = _TARGETS[statement]
                target = f"{least:g}x" + ("" if times >= least else " (missed)")
        yield (
            f"| {table_format.capitalize()} | {statement} | {VARIANTS[entry.variant].title} | {entry.median_wall_s:.2f}"
            f" | {speed} | {entry.median_cpu_s:.2f} | {cpu} | {entry.file_bytes / 1e6:.0f} | {target} |\n"
        )


if __name__ == "__main__":
    sys.exit(main())
