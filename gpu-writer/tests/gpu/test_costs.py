# SPDX-License-Identifier: Apache-2.0
"""Encoder choices of the cost model, and how files follow them."""

import dataclasses
from collections.abc import Mapping

import pyarrow as pa
import pytest
from device_for_tests import DeviceForTests, gpu_of
from parquet_files import read

from updraft.v1.write_pb2 import ParquetOptions, WriteCommand
from updraft_writer.encoders.gpu import GpuEncoder
from updraft_writer.file_factory import choose_encoder
from updraft_writer.gpu.costs import Costs, Load, bytes_by_kind
from updraft_writer.gpu.gpu import Gpu
from updraft_writer.reason import ReasonKind

COSTS = Costs(
    machine="made up",
    cpu_seconds_per_gb={"snappy": {"integers": 1.0, "other": 2.5}, "none": {"other": 0.8}},
    gpu_seconds_per_gb={"snappy": {"integers": 1.5, "other": 0.5}},
    gpu_seconds_per_write={"snappy": 0.05, "zstd": 0.1},
    cpu_threads=4.0,
    gpu_files=2.0,
)
IDLE = Load()
MB = 1_000_000
TABLE = pa.table({"n": pa.array(range(10_000), pa.int64())})


@pytest.mark.parametrize(
    ("raw_bytes", "codec", "load", "threads", "goes_to"),
    [
        ({"other": 128 * MB}, "snappy", IDLE, 8, "gpu"),
        # The codec's fixed time alone exceeds the CPU's time.
        ({"other": 1 * MB}, "snappy", IDLE, 8, "cpu"),
        ({"integers": 128 * MB}, "snappy", IDLE, 8, "cpu"),
        ({"integers": 64 * MB, "other": 64 * MB}, "snappy", IDLE, 8, "gpu"),
        # A kind without a measurement costs as much as the others.
        ({"times": 128 * MB}, "snappy", IDLE, 8, "gpu"),
        ({"integers": 128 * MB}, "lz4", IDLE, 8, "cpu"),
        ({"other": 128 * MB}, "none", IDLE, 8, "cpu"),
        # A busy encoder finishes later than the other one.
        ({"other": 128 * MB}, "snappy", Load(on_gpu=4), 8, "gpu"),
        ({"other": 128 * MB}, "snappy", Load(on_gpu=8), 8, "cpu"),
        ({"other": 128 * MB}, "snappy", Load(on_gpu=8, on_cpu=12), 8, "gpu"),
        ({"integers": 128 * MB}, "snappy", Load(on_cpu=3), 8, "cpu"),
        ({"integers": 128 * MB}, "snappy", Load(on_cpu=9), 8, "gpu"),
        ({"integers": 128 * MB}, "snappy", Load(on_cpu=3), 1, "gpu"),
        ({}, "snappy", IDLE, 8, "cpu"),
    ],
)
def test_a_row_group_goes_where_it_is_expected_to_end_sooner(
    raw_bytes: Mapping[str, int], codec: str, load: Load, threads: int, goes_to: str
) -> None:
    estimate = COSTS.estimate(raw_bytes, codec, load, threads=threads)
    assert ("gpu" if estimate.gpu_is_sooner else "cpu") == goes_to, estimate


def test_columns_are_of_a_kind_each() -> None:
    batch = pa.record_batch(
        {
            "i": pa.array([1], pa.int16()),
            "f": pa.array([1.0], pa.float32()),
            "t": pa.array([0], pa.timestamp("us")),
            "d": pa.array([0], pa.date32()),
            "m": pa.array([1], pa.decimal128(9, 2)),
            "s": ["text"],
            "l": [[1]],
            "b": [True],
        }
    )
    assert bytes_by_kind([batch, batch]) == {
        "integers": 4,
        "floats": 8,
        "times": 24,
        "decimals": 32,
        "texts": 2 * batch["s"].nbytes,
        "other": 2 * (batch["l"].nbytes + batch["b"].nbytes),
    }


def test_the_measured_costs_choose_as_was_measured() -> None:
    """On an H200, the GPU was faster for a mixed table; one CPU thread was faster for random integers and floats."""
    costs = Costs.measured()
    mixed = {"integers": 96 * MB, "floats": 64 * MB, "texts": 140 * MB, "decimals": 64 * MB, "times": 36 * MB}
    assert costs.estimate(mixed, "snappy", IDLE, threads=16).gpu_is_sooner
    for kind in ("integers", "floats"):
        assert not costs.estimate({kind: 128 * MB}, "snappy", IDLE, threads=16).gpu_is_sooner


def encoder_on(gpu: Gpu) -> GpuEncoder:
    encoder = choose_encoder(WriteCommand(parquet=ParquetOptions()), TABLE.schema, gpu, max_stripe_bytes=0)
    assert isinstance(encoder, GpuEncoder)
    return encoder


def test_a_file_whose_first_row_group_the_cpu_encodes_sooner_leaves_the_gpu() -> None:
    device = DeviceForTests()
    gpu = gpu_of(device)
    gpu.costs = COSTS
    encoder = encoder_on(gpu)
    encoder.choose(TABLE.to_batches(), threads=8)
    assert not encoder.on_gpu
    assert read(b"".join(encoder.write(TABLE) + encoder.write(TABLE) + encoder.close())).num_rows == 20_000
    assert (encoder.name, encoder.reason.kind, device.written) == ("pyarrow-parquet", ReasonKind.COST, [])
    assert str(encoder.reason).startswith("cpu: its first row group is expected to take 0.050 s on the GPU, 0.000 s on")


@pytest.mark.parametrize(
    "costs", [None, dataclasses.replace(COSTS, gpu_seconds_per_write={"snappy": 0.0}, gpu_files=1e9)]
)
def test_other_files_stay_on_the_gpu(costs: Costs | None) -> None:
    gpu = gpu_of(DeviceForTests())
    gpu.costs = costs and dataclasses.replace(costs, gpu_seconds_per_gb={"snappy": {"other": 0.1}})
    encoder = encoder_on(gpu)
    encoder.choose(TABLE.to_batches(), threads=8)
    encoder.write(TABLE)
    gpu.costs = COSTS
    encoder.choose(TABLE.to_batches(), threads=8)
    assert (encoder.on_gpu, encoder.reason.kind) == (True, ReasonKind.GPU)


async def test_the_load_is_what_has_begun_or_waits() -> None:
    admission = gpu_of(DeviceForTests()).admission
    place, other = admission.place(hold=True), admission.place(hold=False)
    async with place.step(1000):
        with other.step_on_cpu():
            assert admission.load == Load(on_cpu=1, on_gpu=1)
    # A file that holds memory without encoding does not count as load.
    assert (admission.load, admission.held_bytes > 0) == (IDLE, True)
