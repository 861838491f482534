# SPDX-License-Identifier: Apache-2.0
"""`make bench-writer`: the writer against Spark's own, asynchronous against synchronous, encoders, and cost of syncs.

Variants take turns, so noise affects all variants equally; results are medians. Services are separate processes, whose
memory and CPU time the program measures from outside.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tests.programs.bench import writer_encoders, writer_paces, writer_record, writer_spark, writer_syncs
from tests.programs.bench.writer_chart import draw
from tests.programs.bench.writer_check import print_promises
from tests.programs.bench.writer_record import Measured
from tests.programs.bench.writer_targets import promises
from tests.support.paths import BUILD, use_connector_jar

_DIRECTORY = BUILD / "bench"
_QUERY_ROWS = 8_000_000
_FULL = {"quotas_mib": [16, 64, 256, 1024], "batches": 32, "rows_scale": 1.0, "repeat": 5}
_QUICK = {"quotas_mib": [64, 256], "batches": 12, "rows_scale": 0.25, "repeat": 2}


def main() -> int:
    """Measure, write build/bench/writer.json and the chart, and print tables."""
    options = _options()
    _DIRECTORY.mkdir(parents=True, exist_ok=True)
    if options.only_syncs:
        writer_record.write(_syncs(options), _DIRECTORY / "writer-syncs.json")
        return 0
    use_connector_jar(options.jar)
    encoders = writer_encoders.measure(options.repeat)
    _print_encoders(encoders)
    paces = list(
        writer_paces.measure(_DIRECTORY / "writer", options.quotas_mib, batches=options.batches, repeat=options.repeat)
    )
    _print_paces(paces)
    queries = list(
        writer_spark.measure(_DIRECTORY / "writer", rows=int(options.rows_scale * _QUERY_ROWS), repeat=options.repeat)
    )
    _print_queries(queries)
    measured = [*encoders, *paces, *queries, *_syncs(options)]
    writer_record.write(measured, _DIRECTORY / "writer.json")
    print_promises(list(promises(measured)))
    draw(paces, encoders, _caption(), _DIRECTORY / "writer.svg")
    return 0


def _syncs(options: argparse.Namespace) -> list[Measured]:
    syncs = list(writer_syncs.measure(_DIRECTORY / "writer-syncs", batches=options.batches, repeat=options.repeat))
    _print_syncs(syncs)
    return syncs


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-writer", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few quotas, batches and runs")
    parser.add_argument("--quotas-mib", type=int, nargs="+", help="quotas of the service (16 64 256 1024)")
    parser.add_argument("--batches", type=int, help="batches of each of the four producers (32)")
    parser.add_argument("--jar", type=Path, help="the connector (default: where `make connector` puts it)")
    parser.add_argument("--rows-scale", type=float, help="multiplies the rows of the query (1)")
    parser.add_argument(
        "--only-syncs", action="store_true", help="only files synced and unsynced, into writer-syncs.json"
    )
    parser.add_argument("--repeat", type=int, help="runs of each variant (5)")
    options = parser.parse_args()
    for name, value in (_QUICK if options.quick else _FULL).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def _caption() -> str:
    return (
        f"pyarrow {pa.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, medians. Four producers"
        f" of {writer_paces.PRODUCED_BYTES_PER_SECOND / 1e6:.0f} MB/s each; the slow sink takes "
        f"{writer_paces.SLOW_BYTES_PER_SECOND / 1e6:.0f} MB/s of each file."
    )


def _print_encoders(measured: Sequence[Measured]) -> None:
    print(
        f"{'table, codec':18}{'encoder':10}{'raw MB/CPU s':>13}{'times pyarrow':>15}{'file MB':>9}{'of its size':>13}"
    )
    pyarrow = {entry.case: entry for entry in measured if entry.variant == "pyarrow"}
    for entry in measured:
        base = pyarrow[entry.case]
        print(
            f"{entry.case:18}{entry.variant:10}{entry.raw_mb_per_cpu_s:13.0f}"
            f"{base.median_cpu_s / entry.median_cpu_s:15.2f}{entry.file_bytes / 1e6:9.1f}"
            f"{entry.file_bytes / base.file_bytes:13.2f}"
        )
    print(flush=True)


def _print_paces(measured: Sequence[Measured]) -> None:
    print(f"{'sink':12}{'quota MiB':>10}{'sync s':>9}{'async s':>9}{'times':>7}{'sync MiB':>10}{'async MiB':>11}")
    found = {(entry.case, entry.quota_mib, entry.variant): entry for entry in measured}
    for case, quota in dict.fromkeys((entry.case, entry.quota_mib) for entry in measured):
        before, after = found[case, quota, "synchronous"], found[case, quota, "asynchronous"]
        print(
            f"{case:12}{quota:10}{before.median_wall_s:9.2f}{after.median_wall_s:9.2f}"
            f"{before.median_wall_s / after.median_wall_s:7.2f}{before.peak_mib:10.0f}{after.peak_mib:11.0f}"
        )
    print(flush=True)


def _print_queries(measured: Sequence[Measured]) -> None:
    print(f"{'to Parquet':26}{'format':14}{'seconds':>9}{'CPU s':>8}{'file MB':>9}")
    for entry in measured:
        seconds = f"{entry.median_wall_s:9.2f}{entry.median_cpu_s:8.2f}"
        print(f"{entry.case:26}{entry.variant:14}{seconds}{entry.file_bytes / 1e6:9.1f}")
    print(flush=True)


def _print_syncs(measured: Sequence[Measured]) -> None:
    print(f"{'to a disk':26}{'files':14}{'seconds':>9}{'CPU s':>8}{'raw MB/s':>10}")
    for entry in measured:
        speed = entry.raw_bytes / 1e6 / entry.median_wall_s
        print(f"{entry.case:26}{entry.variant:14}{entry.median_wall_s:9.2f}{entry.median_cpu_s:8.2f}{speed:10.1f}")
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
