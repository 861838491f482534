# SPDX-License-Identifier: Apache-2.0
"""Cost of syncing files: two writers write the same files to the same disk, one with syncs and one without.

Both writers run as separate services, as users start them, and take turns. Large files show the cost of syncs per byte,
small files the cost per file. Each synced file needs two syncs: of the file and of its directory.
"""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tests.programs.bench.writer_paces import BATCH_ROWS, OPTIONS, PRODUCERS
from tests.programs.bench.writer_record import Measured
from tests.programs.bench.writer_tables import mixed
from tests.support.cpu import cpu_seconds
from tests.support.writer import LocalWriter
from updraft.client.writer import WriterClient

VARIANTS = {"synced": "--sync-files", "unsynced": "--no-sync-files"}


@dataclass(frozen=True)
class Case:
    """Files that each producer writes, one after the other."""

    name: str
    files: int
    batches: int
    batch_rows: int

    @property
    def all_files(self) -> int:
        """Number of files of all producers."""
        return PRODUCERS * self.files


def cases(batches: int) -> list[Case]:
    """Return a case with large files of `batches` batches, and a case with small files."""
    return [Case("large files", 1, batches, BATCH_ROWS), Case("small files", batches, 1, 1000)]


def measure(directory: Path, *, batches: int, repeat: int) -> Iterator[Measured]:
    """Measure all cases; the first run of each case does not count."""
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        writers = {
            name: stack.enter_context(LocalWriter(directory, arguments=[option])) for name, option in VARIANTS.items()
        }
        for case in cases(batches):
            table = mixed(case.batch_rows)
            raw_bytes = case.all_files * case.batches * table.nbytes
            # The writers alternate in going first, because the first writer also waits until the disk has stored
            # earlier data.
            measured = {name: Measured(f"{case.name} x {case.all_files}", name, raw_bytes) for name in VARIANTS}
            for run, names in enumerate(itertools.islice(itertools.cycle(_orders()), repeat + 1)):
                for name in names:
                    entry = _run(measured[name], writers[name], directory / name, case, table)
                    if run:
                        measured[name].wall_s.append(entry[0])
                        measured[name].cpu_s.append(entry[1])
            yield from measured.values()


def _orders() -> list[list[str]]:
    return [list(VARIANTS), list(reversed(VARIANTS))]


def _run(measured: Measured, writer: LocalWriter, root: Path, case: Case, table: pa.Table) -> tuple[float, float]:
    root.mkdir(parents=True)
    assert writer.pid is not None
    wall, cpu = time.perf_counter(), cpu_seconds([writer.pid])
    measured.file_bytes = _write(writer.tcp_address, root, case, table)
    spent = round(time.perf_counter() - wall, 4), round(cpu_seconds([writer.pid]) - cpu, 4)
    shutil.rmtree(root)
    return spent


def _write(address: str, root: Path, case: Case, table: pa.Table) -> int:
    """Let all producers write their files at the same time; return the total size of the files in bytes."""
    sizes: list[int] = []

    def produce(number: int) -> None:
        with WriterClient(address) as client:
            for index in range(case.files):
                with client.create(str(root / f"{number}-{index}.parquet"), table.schema, OPTIONS) as file:
                    for _ in range(case.batches):
                        file.write(table)
                sizes.append(file.receipt.file_bytes)

    producers = [threading.Thread(target=produce, args=(number,)) for number in range(PRODUCERS)]
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join()
    if len(sizes) != case.all_files:
        raise RuntimeError("a producer failed: see above")
    return sum(sizes)
