# SPDX-License-Identifier: Apache-2.0
"""`make bench-writer-page`: write docs/benchmarks-writer.md and its chart from build/bench/writer.json."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence

from tests.programs.bench.writer_record import Measured, read
from tests.programs.bench.writer_targets import promises, variants
from tests.support.paths import BUILD, REPOSITORY

_MEASURED = BUILD / "bench"
_DOCS = REPOSITORY / "docs"
_PAGE = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Written by `make bench-writer-page` from what `make bench-writer` measured. Do not edit. -->
# The writer, measured

Measured by `make bench-writer` on a machine with 2 cores. Variants take turns; seconds are medians of {runs} runs.

![Seconds and memory over quotas, and what encoders do with a second of CPU](images/writer.svg)

| comparison | speed-up | target |
| --- | --- | --- |
{promises}
## Asynchronous and synchronous

Four producers of 60 MB/s each write a file through one writer, {paced_mb:.0f} MB in all. The slow sink accepts 25 MB/s
per file; the fast one is the disk. Synchronous means that a batch of 4 MiB is encoded and stored before the next
is accepted. Memory is the peak above that of the idle writer.

| sink | quota, MiB | synchronous, s | asynchronous, s | speed-up | memory, MiB |
| --- | --- | --- | --- | --- | --- |
{paces}
## Spark's own Parquet writer

The same query of twelve columns, on one Spark with two threads and the writer on the same machine, with row groups of
the same size. CPU counts all processes. The first query spends much of its time on computing the rows, on both sides.
The second reads them from a Parquet table, like a job that partitions or compacts.

| written | format | seconds | CPU, s | files, MB |
| --- | --- | --- | --- | --- |
{queries}
## Syncing files

Four producers write files through a writer that syncs each file and its directory before its receipt (the default),
and through one with `--no-sync-files`.

| files | synced, s | not synced, s | synced, raw MB/s | not synced, raw MB/s |
| --- | --- | --- | --- | --- |
{syncs}
## The encoder alone

Raw megabytes encoded per second of CPU and, in brackets, the file's size relative to pyarrow's default. The difference
between `compatible` (the default of `spark.updraft.write.encodings`) and `compact` is the price of files that every
reader supports.

| table, codec | Updraft, `compatible` | Updraft, `compact` | pyarrow's default | polars |
| --- | --- | --- | --- | --- |
{encoders}"""


def main() -> int:
    """Write the page and copy the chart; return 1 if there are no measurements."""
    measured = read(_MEASURED / "writer.json")
    if not measured:
        print("nothing is measured: run `make bench-writer` first")
        return 1
    (_DOCS / "benchmarks-writer.md").write_text(page(measured))
    shutil.copyfile(_MEASURED / "writer.svg", _DOCS / "images/writer.svg")
    return 0


def page(measured: Sequence[Measured]) -> str:
    """Return the page: the targets, then a table for each part of the benchmark."""
    return _PAGE.format(
        runs=min(len(entry.wall_s) for entry in measured),
        paced_mb=max((entry.raw_bytes for entry in measured if entry.case.endswith("sink")), default=0) / 1e6,
        promises="".join(
            f"| {promise.title} | {promise.ratio:.2f}{'' if promise.is_kept else ' (missed)'} | {promise.target} |\n"
            for promise in promises(measured)
        ),
        paces="".join(_paces(measured)),
        queries="".join(_queries(measured)),
        syncs="".join(_syncs(measured)),
        encoders="".join(_encoders(measured)),
    )


def _paces(measured: Sequence[Measured]) -> Iterator[str]:
    for (case, quota_mib), found in variants(measured).items():
        if "asynchronous" in found:
            before, after = found["synchronous"], found["asynchronous"]
            yield (
                f"| {case.split()[0]} | {quota_mib} | {before.median_wall_s:.2f} | {after.median_wall_s:.2f} "
                f"| {before.median_wall_s / after.median_wall_s:.2f} | {after.peak_mib:.0f} |\n"
            )


def _queries(measured: Sequence[Measured]) -> Iterator[str]:
    ours = "`updraft-parquet`, direct delivery, over"
    titles = {"spark": "`parquet`", "updraft": f"{ours} TCP", "updraft unix": f"{ours} a Unix socket"}
    for entry in measured:
        if entry.variant in titles and entry.case.startswith("query"):
            yield (
                f"| {entry.case} | {titles[entry.variant]} | {entry.median_wall_s:.2f} | {entry.median_cpu_s:.2f} "
                f"| {entry.file_bytes / 1e6:.0f} |\n"
            )


def _syncs(measured: Sequence[Measured]) -> Iterator[str]:
    for (case, _quota), found in variants(measured).items():
        if "synced" in found:
            entries = [found["synced"], found["unsynced"]]
            seconds = " | ".join(f"{entry.median_wall_s:.2f}" for entry in entries)
            speeds = " | ".join(f"{entry.raw_bytes / 1e6 / entry.median_wall_s:.0f}" for entry in entries)
            yield f"| {case} | {seconds} | {speeds} |\n"


def _encoders(measured: Sequence[Measured]) -> Iterator[str]:
    for (case, _quota), found in variants(measured).items():
        if "pyarrow" in found:
            base = found["pyarrow"]
            cells = [_encoder(found.get(name), base) for name in ("updraft", "compact", "pyarrow", "polars")]
            yield f"| {case.replace(' ', ', ')} | {' | '.join(cells)} |\n"


def _encoder(entry: Measured | None, base: Measured) -> str:
    if entry is None:
        return "-"
    return f"{entry.raw_mb_per_cpu_s:.0f} ({entry.file_bytes / base.file_bytes:.2f})"


if __name__ == "__main__":
    sys.exit(main())
