# SPDX-License-Identifier: Apache-2.0
"""`make bench-formats`: Delta and Iceberg tables, with data files written by the format itself, Updraft and Comet.

Each variant has its own Spark on the same machine and disk, and the variants take turns. CPU seconds are those of the
driver, its JVM and the writer. The program restores the table before each run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.programs.bench import writer_record
from tests.programs.bench.formats_cases import COLUMNS, Case, cases
from tests.programs.bench.formats_session import Session
from tests.programs.bench.formats_table import OtherWriterError, Table
from tests.programs.bench.formats_variants import VARIANTS
from tests.programs.bench.writer_record import Measured
from tests.support.paths import BUILD, connector_jar
from tests.support.writer import LocalWriter

_DIRECTORY = BUILD / "bench"
_FORMATS = ("delta", "iceberg")
_ROWS = 3_000_000
# Approximate size of a row in Arrow.
_ROW_BYTES = 90
_QUOTA_MIB = 256
# Warm-up runs, in which the JVM compiles the code that the statements need.
_RUNS_BEFORE = 2


def main() -> int:
    """Measure, write build/bench/formats.json and print a table."""
    options = _options()
    connector_jar()
    root = _DIRECTORY / "formats"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    target = _DIRECTORY / "formats.json"
    measured = writer_record.read(target) if options.add else []
    print(f"{options.rows} rows, {options.repeat} runs, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    head = f"{'format':9}{'statement':38}{'files by':18}{'seconds':>9}{'times':>7}{'CPU s':>8}{'times':>7}"
    print(f"{head}{'MB':>7}{'MiB':>6}")
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(LocalWriter(root, arguments=["--quota-bytes", str(_QUOTA_MIB << 20)]))
        sessions = []
        for name in options.variants:
            sessions.append(Session(name, options.jars, root / name, writer))
            stack.callback(sessions[-1].stop)
        source = root / "source"
        rows = f"SELECT {', '.join(COLUMNS)} FROM range(0, {options.rows}, 1, 4)"
        sessions[0].do(f"CREATE TABLE source USING parquet LOCATION '{source}' AS {rows}")
        for table_format in options.formats:
            for name, case in cases(table_format).items():
                if name in options.cases:
                    users = [session for session in sessions if table_format in session.variant.formats]
                    found = _measure(table_format, case, users, source, options)
                    again = {(entry.case, entry.variant) for entry in found}
                    measured = [entry for entry in measured if (entry.case, entry.variant) not in again] + found
                    writer_record.write(measured, target)
    shutil.rmtree(root)
    return 0


def _measure(
    table_format: str, case: Case, sessions: Sequence[Session], source: Path, options: argparse.Namespace
) -> list[Measured]:
    tables = {session.name: Table(session, table_format, case, source, options.rows) for session in sessions}
    measured = {
        name: Measured(f"{table_format}: {case.title}", name, options.rows * _ROW_BYTES, _QUOTA_MIB) for name in tables
    }
    for number in range(_RUNS_BEFORE + options.repeat * case.runs):
        for name, table in list(tables.items()):
            try:
                run = table.run()
            except OtherWriterError as error:
                # Comet leaves the files of some statements to Iceberg's own writer.
                print(f"{table_format:9}{case.title:38}is left out: {error}", flush=True)
                tables.pop(name).drop()
                continue
            if number >= _RUNS_BEFORE:
                entry = measured[name]
                entry.wall_s.append(round(run.wall_s, 4))
                entry.cpu_s.append(round(run.cpu_s, 4))
                entry.peak_bytes.append(run.peak_bytes)
                entry.file_bytes = run.file_bytes
    for table in tables.values():
        table.drop()
    found = [measured[name] for name in tables]
    for entry in found:
        _print(table_format, case, entry, found[0])
    return found


def _print(table_format: str, case: Case, entry: Measured, base: Measured) -> None:
    walls = [before / after for before, after in zip(base.wall_s, entry.wall_s, strict=True)]
    cpus = [before / after for before, after in zip(base.cpu_s, entry.cpu_s, strict=True)]
    print(
        f"{table_format:9}{case.title:38}{VARIANTS[entry.variant].title:18}"
        f"{entry.median_wall_s:9.2f}{statistics.median(walls):7.2f}{entry.median_cpu_s:8.2f}{statistics.median(cpus):7.2f}"
        f"{entry.file_bytes / 1e6:7.0f}{entry.peak_mib:6.0f}",
        flush=True,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-formats", description=__doc__)
    parser.add_argument("--jars", type=Path, required=True, help="directory with the jars of Delta, Iceberg and Comet")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="who writes (all)")
    parser.add_argument("--formats", nargs="+", choices=_FORMATS, default=list(_FORMATS), help="table formats (both)")
    parser.add_argument("--add", action="store_true", help="keep what formats.json has of other cases: a run in parts")
    names = list(cases("delta"))
    parser.add_argument("--cases", nargs="+", choices=names, default=names, help="statements (all)")
    parser.add_argument("--rows", type=int, default=_ROWS, help=f"rows of the source ({_ROWS})")
    parser.add_argument("--repeat", type=int, default=5, help="counted runs of each large statement (5)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
