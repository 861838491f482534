# SPDX-License-Identifier: Apache-2.0
"""GPU memory that runs out, and files that are never finished."""

import ctypes
from collections.abc import Callable

import pyarrow as pa
import pytest
from cuda.bindings import runtime
from on_gpu.gpu_files import encoder_for, read

from updraft.errors import EncodeError
from updraft.v1.write_pb2 import OrcOptions, ParquetOptions
from updraft_writer.gpu.gpu import Gpu
from updraft_writer.reason import ReasonKind

MIB = 1 << 20
ROWS = 4_000_000
TABLE = pa.table({"n": pa.array(range(ROWS)), "s": pa.array([f"row {index % 1000}" for index in range(ROWS)])})
Limit = Callable[[int], None]
FORMATS = pytest.mark.parametrize("options", [ParquetOptions(), OrcOptions()], ids=["parquet", "orc"])


def test_a_file_for_which_there_is_no_room_goes_to_the_cpu(gpu: Gpu, limited: Limit) -> None:
    limited(4 * MIB)
    encoder = encoder_for(gpu, TABLE.schema, ParquetOptions())
    data = b"".join(encoder.write(TABLE) + encoder.close())
    assert read(data).equals(TABLE)
    assert (encoder.name, encoder.reason.kind) == ("pyarrow-parquet", ReasonKind.DEVICE_MEMORY)
    assert gpu.lost is None


def test_a_row_group_for_which_there_is_no_room_any_more_is_encoded_in_parts(gpu: Gpu, limited: Limit) -> None:
    encoder = encoder_for(gpu, TABLE.schema, ParquetOptions())
    pieces = encoder.write(TABLE.slice(0, 1000))
    limited(128 * MIB)
    pieces += encoder.write(TABLE)
    limited(1024 * MIB)
    data = b"".join(pieces + encoder.close())
    assert encoder.on_gpu
    assert encoder.footer.row_groups > 2
    assert read(data).equals(pa.concat_tables([TABLE.slice(0, 1000), TABLE]))


@FORMATS
def test_a_file_that_cannot_go_on_is_an_error_and_the_next_one_is_written(
    gpu: Gpu, limited: Limit, options: ParquetOptions | OrcOptions
) -> None:
    encoder = encoder_for(gpu, TABLE.schema, options)
    encoder.write(TABLE)
    limited(1)
    with pytest.raises(EncodeError, match="rows after 4000000"):
        encoder.write(TABLE)
    # The library writes a footer when it frees an encoder. Free this one while memory is too short for that.
    del encoder
    limited(1024 * MIB)
    following = encoder_for(gpu, TABLE.schema, options)
    following.write(TABLE)
    following.close()
    assert (following.on_gpu, gpu.lost) == (True, None)


def test_row_groups_pass_memory_that_the_driver_knows_as_pinned(gpu: Gpu) -> None:
    encoder_for(gpu, TABLE.schema, ParquetOptions()).write(TABLE)
    assert gpu.staging.idle_bytes == gpu.staging.pinned_bytes > 0
    block = gpu.engine.pinned(MIB)
    status, attributes = runtime.cudaPointerGetAttributes(ctypes.addressof(ctypes.c_char.from_buffer(block)))
    assert (status, attributes.type) == (
        runtime.cudaError_t.cudaSuccess,
        runtime.cudaMemoryType.cudaMemoryTypeHost,
    )
    block[:] = bytes(MIB)


@FORMATS
def test_a_file_that_nobody_finishes_can_be_forgotten(gpu: Gpu, options: ParquetOptions | OrcOptions) -> None:
    for _ in range(20):
        encoder_for(gpu, TABLE.schema, options).write(TABLE.slice(0, 100_000))
    gpu.engine.check()
