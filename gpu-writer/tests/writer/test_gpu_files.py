# SPDX-License-Identifier: Apache-2.0
"""Writer with a device, as its clients see it: receipts, metrics, turns that end with their files."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from device_for_tests import DeviceForTests, gpu_of
from running_writer import BATCH, BATCH_BYTES, SCHEMA, RunningWriter, read, running_writer, wait_for, write
from sinks_for_tests import MemorySink
from structlog.testing import capture_logs

from updraft.errors import EncodeError, UpdraftError
from updraft.service.lifecycle import StartError
from updraft.v1.write_pb2 import OrcOptions, Pace, ParquetOptions, WriteCommand
from updraft_writer.file_factory import choose_encoder
from updraft_writer.gpu.admission import DeviceAdmission
from updraft_writer.gpu.engine import DeviceError, DeviceMemoryError
from updraft_writer.gpu.gpu import Gpu
from updraft_writer.gpu.staging import BLOCK_BYTES
from updraft_writer.open_file import OpenFile, Shape
from updraft_writer.quota import Quota, QuotaLimits
from updraft_writer.reason import Reason, ReasonKind
from updraft_writer.row_groups import reserved_bytes
from updraft_writer.settings import ServeSettings
from updraft_writer.writer import Writer

NO_GPU = Reason(ReasonKind.NO_DEVICE, "this machine has no GPU")
ROW_GROUP = pa.record_batch({"n": pa.array(range(20_000), pa.int64())})


@contextmanager
def writer_on(device: DeviceForTests, root: Path, **changes: Any) -> Iterator[tuple[RunningWriter, DeviceAdmission]]:
    """Run a writer on a device that must be unused at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("updraft_writer.writer.find_engine", lambda *_args, **_kwargs: device)
        with running_writer(root, **{"encoder": "gpu", **changes}) as writer:
            gpu = writer.writer._gpu
            assert isinstance(gpu, Gpu)
            yield writer, gpu.admission
            writer.becomes_empty()
            assert (gpu.admission.held_bytes, gpu.admission.waiting) == (0, 0)


def counted(writer: RunningWriter, name: str, **labels: str) -> float:
    return writer.writer.metrics.registry.get_sample_value(name, labels) or 0.0


@pytest.mark.parametrize("options", [ParquetOptions(), OrcOptions()])
def test_a_file_of_a_device_says_so_in_its_receipt_and_in_the_metrics(
    tmp_path: Path, options: ParquetOptions | OrcOptions
) -> None:
    kind = "orc" if isinstance(options, OrcOptions) else "parquet"
    with writer_on(DeviceForTests(), tmp_path) as (writer, _), writer.client() as client:
        with client.create(str(tmp_path / "f"), SCHEMA, options) as file:
            file.write(BATCH)
        assert (file.receipt.encoder, file.receipt.encoder_reason[:5]) == (f"device-{kind}", "gpu: ")
        assert counted(writer, "updraft_writer_encoder_reasons_total", reason="gpu") == 1
        labels = {"format": kind, "encoder": f"device-{kind}", "outcome": "ok"}
        wait_for(lambda: counted(writer, "updraft_writer_files_total", **labels) == 1, "the count")


def test_a_file_that_left_the_device_says_why(tmp_path: Path) -> None:
    with writer_on(DeviceForTests(DeviceMemoryError("no room")), tmp_path) as (writer, _), writer.client() as client:
        with client.create(str(tmp_path / "f"), SCHEMA) as file:
            file.write(BATCH)
        assert file.receipt.encoder == "pyarrow-parquet"
        assert file.receipt.encoder_reason == "cpu: the GPU could not begin the file: no room"
        assert counted(writer, "updraft_writer_encoder_reasons_total", reason="device-memory") == 1
    assert read(tmp_path / "f") == BATCH["n"].to_pylist()


def test_a_file_that_the_cpu_encodes_sooner_says_so(tmp_path: Path) -> None:
    device = DeviceForTests()
    with writer_on(device, tmp_path, encoder="auto") as (writer, _), writer.client() as client:
        with client.create(str(tmp_path / "f"), SCHEMA) as file:
            file.write(BATCH)
        assert file.receipt.encoder == "pyarrow-parquet"
        assert file.receipt.encoder_reason.startswith("cpu: its first row group is expected to take 0.0")
        assert counted(writer, "updraft_writer_encoder_reasons_total", reason="cost") == 1
    assert (read(tmp_path / "f"), device.written) == (BATCH["n"].to_pylist(), [])


def test_staged_rows_leave_pinned_memory_before_the_device_encodes(tmp_path: Path) -> None:
    """This is why the reservation for encoded bytes also covers staged ones."""

    class Encoding(DeviceForTests):
        staged_bytes: ClassVar[list[int]] = []

        def step(self, rows: int = 0) -> None:
            if rows:
                self.staged_bytes.append(staging.pinned_bytes - staging.idle_bytes)

    with writer_on(Encoding(), tmp_path) as (writer, _):
        gpu = writer.writer._gpu
        assert isinstance(gpu, Gpu)
        staging = gpu.staging
        write(writer, tmp_path / "f", BATCH)
        assert (Encoding.staged_bytes, staging.pinned_bytes) == ([0], BLOCK_BYTES)


def test_pinned_memory_is_no_room_for_batches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LIBCUDF_PINNED_POOL_MAX_SIZE", "1000")
    monkeypatch.setattr("updraft_writer.writer.memory_limits", lambda: {"it": 2 << 30})
    for found, pinned_bytes in ((DeviceForTests(), 1000 + (64 << 20)), (NO_GPU, 0)):
        monkeypatch.setattr("updraft_writer.writer.find_engine", lambda *_args, found=found, **_kwargs: found)
        with capture_logs() as lines:
            Writer(ServeSettings(root=(str(tmp_path),)))
        [computed] = [line for line in lines if line["event"] == "the quota is computed"]
        assert computed["pinned_bytes"] == pinned_bytes


def test_a_decimal_with_too_many_digits_is_refused_before_the_device_could_cut_it(tmp_path: Path) -> None:
    many_digits = pa.array([Decimal("12345678901.23")], pa.decimal128(13, 2))
    batch = pa.record_batch({"d": pa.Array.from_buffers(pa.decimal128(9, 2), 1, many_digits.buffers())})
    device = DeviceForTests()
    with (
        writer_on(device, tmp_path) as (writer, _),
        pytest.raises(UpdraftError, match="does not fit in precision"),
    ):
        write(writer, tmp_path / "f", batch)
    assert device.written == []


def test_four_files_are_encoded_on_the_device_at_once_on_any_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    together = threading.Barrier(4, timeout=30)

    class Waiting(DeviceForTests):
        def step(self, rows: int = 0) -> None:
            if rows:
                together.wait()

    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0})
    with writer_on(Waiting(), tmp_path) as (writer, _), ThreadPoolExecutor(4) as clients:
        files = [tmp_path / str(number) for number in range(4)]
        list(clients.map(lambda path: write(writer, path, BATCH), files))
    assert [read(path) for path in files] == 4 * [BATCH["n"].to_pylist()]


def test_row_groups_that_wait_for_the_device_go_there_together(tmp_path: Path) -> None:
    gate = threading.Event()

    class SlowFirst(DeviceForTests):
        memory_bytes = 1 << 40

        def step(self, rows: int = 0) -> None:
            if rows and len(self.written) == 0:
                gate.wait(60)

    device, rows = SlowFirst(), 8 << 20
    numbers = pa.record_batch({"n": pa.arange(0, rows, 1)})
    options = ParquetOptions(row_group_bytes=16 << 20)
    with writer_on(device, tmp_path, quota_bytes=256 << 20) as (writer, _), writer.client() as client:
        with client.create(str(tmp_path / "f"), numbers.schema, options) as file:
            for start in range(0, rows, 1 << 20):
                file.write(numbers.slice(start, 1 << 20))
            wait_for(lambda: [each.progress.rows for each in open_files(writer)] == [rows], "all rows")
            gate.set()
        # The row groups after the first waited together, and were split again.
        assert [table.num_rows for table in device.written] == [2 << 20, 6 << 20]
        assert pq.read_metadata(tmp_path / "f").num_row_groups == 1 + 2
    assert pq.read_table(tmp_path / "f")["n"].combine_chunks().equals(numbers["n"])


def test_a_file_that_the_device_loses_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    device = DeviceForTests(None, DeviceError("the kernel failed"))
    with writer_on(device, tmp_path, row_group_bytes=64 << 10) as (writer, _):
        with pytest.raises(EncodeError, match="the kernel failed"):
            write(writer, tmp_path / "f", ROW_GROUP, ROW_GROUP)
        writer.becomes_empty()
        assert writer.files() == []


def test_a_file_holds_the_device_between_its_row_groups_if_it_is_asked_to(tmp_path: Path) -> None:
    with writer_on(DeviceForTests(), tmp_path, row_group_bytes=64 << 10) as (writer, turn), writer.client() as client:
        for pace, holds in ((Pace.PACE_ASYNCHRONOUS, True), (Pace.PACE_SYNCHRONOUS, False)):
            with client.create(str(tmp_path / "f"), SCHEMA, pace=pace) as file:
                file.write(ROW_GROUP)
                wait_for(lambda: bool(open_files(writer)) and all(map(has_rested, open_files(writer))), "a row group")
                assert bool(turn.held_bytes) == holds
            writer.becomes_empty()


def has_rested(file: OpenFile) -> bool:
    return bool(file.progress.stored_bytes) and not file.moving_bytes


def open_files(writer: RunningWriter) -> list[OpenFile]:
    return list(writer.writer.files._files)


async def test_a_file_that_ends_while_it_waits_for_the_device_waits_no_longer() -> None:
    device, quota, sink = DeviceForTests(), Quota(QuotaLimits(quota_bytes=1 << 20)), MemorySink()
    gpu = gpu_of(device)
    encoder = choose_encoder(WriteCommand(parquet=ParquetOptions()), SCHEMA, gpu, max_stripe_bytes=0)
    other, place = gpu.admission.place(hold=False), gpu.admission.place(hold=True)
    with ThreadPoolExecutor(1) as threads:
        shape = Shape(SCHEMA, lambda: 1, max_rows=1 << 30)
        file = OpenFile(encoder, sink, shape, quota, retained=quota.charge("t"), encode_threads=threads, device=place)
        async with other.step(device.memory_bytes):
            for _ in range(3):
                file.add(BATCH, await quota.acquire("t", reserved_bytes(BATCH_BYTES)), raw_bytes=BATCH_BYTES)
            for _ in range(5):
                await asyncio.sleep(0)
            assert gpu.admission.waiting == 1
            await file.close()
            assert (quota.held_bytes, gpu.admission.waiting, sink.steps, sink.discarded) == (0, 0, [], True)
    assert (gpu.admission.held_bytes, device.written) == (0, [])


def test_a_writer_that_must_have_a_gpu_does_not_start_without_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("updraft_writer.writer.find_engine", lambda *_args, **_kwargs: NO_GPU)
    with pytest.raises(StartError, match="--encoder gpu, but this machine has no GPU"):
        Writer(ServeSettings(root=(str(tmp_path),), encoder="gpu"))
