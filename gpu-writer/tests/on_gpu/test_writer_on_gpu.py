# SPDX-License-Identifier: Apache-2.0
"""Whole writer on a GPU: many files at once, through its own clients."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from running_writer import RunningWriter, running_writer

from updraft.v1.write_pb2 import OrcOptions, ParquetOptions
from updraft_writer.gpu.gpu import Gpu

FILES = 16
ROWS = 1_000_000
TABLE = pa.table({"n": pa.array(range(ROWS)), "s": pa.array([f"row {index % 1000}" for index in range(ROWS)])})


def write(writer: RunningWriter, path: Path, options: ParquetOptions | OrcOptions, *, hold: bool) -> str:
    with writer.client() as client, client.create(str(path), TABLE.schema, options, hold_gpu=hold) as file:
        file.write(TABLE)
    assert file.receipt.rows == TABLE.num_rows
    return str(file.receipt.encoder)


@pytest.mark.parametrize("hold", [False, True])
def test_many_files_at_once_are_all_written_there_and_nobody_is_left_on_the_gpu(tmp_path: Path, hold: bool) -> None:
    # Room for about two row groups at a time.
    settings = {"encoder": "gpu", "gpu_memory_bytes": 1 << 30, "row_group_bytes": 8 << 20}
    constants = {"gpu.admission.WORKING_SET_FACTOR": 50.0}
    with running_writer(tmp_path, constants=constants, quota_bytes=1 << 30, **settings) as writer:
        with ThreadPoolExecutor(FILES) as tasks:
            kinds = [(ParquetOptions(), "parquet"), (OrcOptions(), "orc")] * (FILES // 2)
            paths = [tmp_path / f"{index}.{name}" for index, (_, name) in enumerate(kinds)]
            encoders = list(tasks.map(lambda path, kind: write(writer, path, kind[0], hold=hold), paths, kinds))
        writer.becomes_empty()
        gpu = writer.writer._gpu
        assert isinstance(gpu, Gpu)
        assert (gpu.admission.held_bytes, gpu.admission.waiting) == (0, 0)
        assert encoders == ["pylibcudf-parquet", "pylibcudf-orc"] * (FILES // 2)
    for path, (_, name) in zip(paths, kinds, strict=True):
        stored = orc.ORCFile(path).read() if name == "orc" else pq.read_table(path)
        assert stored.equals(TABLE)
