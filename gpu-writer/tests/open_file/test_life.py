# SPDX-License-Identifier: Apache-2.0
"""Open file from its first batch to its end, whatever that is."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from open_file_bench import RAW_BYTES, ROWS, SCHEMA, Bench, batch, rows_of
from sinks_for_tests import MemorySink

from updraft.errors import DeadlineError, InternalError, SinkError, UpdraftError
from updraft.v1.write_pb2 import ParquetOptions
from updraft_writer.encoders.parquet import ParquetEncoder
from updraft_writer.gpu.admission import DeviceAdmission, DeviceLimits
from updraft_writer.open_file import OpenFile
from updraft_writer.pieces import Piece


async def test_a_finished_file_has_every_row_in_order_and_nothing_is_held_any_more(bench: Bench) -> None:
    sink = MemorySink()
    file = bench.file(sink)
    await file.open()
    await bench.add(file, 5)
    footer = await file.finish()
    await file.close()
    assert rows_of(sink.published) == list(range(5 * ROWS))
    assert (footer.row_groups, footer.rows, file.progress.stored_bytes) == (5, 5 * ROWS, len(sink.stored))
    assert min(file.progress.encode_seconds, file.progress.store_seconds) > 0
    # A limit that only measurements of something else would reach.
    assert max(file.progress.encode_seconds, file.progress.store_seconds) < 60
    assert bench.is_empty()


async def test_what_a_file_has_taken_is_counted_and_what_its_encoder_retains_is_held(bench: Bench) -> None:
    class Retaining(ParquetEncoder):
        retained_bytes = 500

    file = bench.file(MemorySink(), row_group_bytes=1 << 30, encoder=Retaining(SCHEMA, ParquetOptions(), {}))
    assert bench.quota.held_bytes == 500
    await file.open()
    await bench.add(file, 2)
    assert (file.progress.batches, file.progress.rows, file.progress.raw_bytes) == (2, 2 * ROWS, 2 * RAW_BYTES)
    assert bench.quota.held_bytes == 500 + file.partial_bytes
    await file.close()
    assert bench.is_empty()


async def test_nothing_is_published_before_the_finish(bench: Bench) -> None:
    sink = MemorySink()
    file = bench.file(sink)
    await file.open()
    await bench.add(file, 2)
    await file.close()
    assert (sink.published, sink.discarded) == (None, True)
    assert bench.is_empty()


async def test_giving_up_drops_what_is_queued_without_writing_it(bench: Bench) -> None:
    gate = asyncio.Event()
    sink = MemorySink(gate=gate)
    file = bench.file(sink)
    await file.open()
    await bench.add(file, 10)
    await sink.writing.wait()
    closing = asyncio.create_task(file.close())
    await asyncio.sleep(0)
    gate.set()
    await closing
    assert sink.steps == ["open", "write"]
    assert sink.discarded
    assert bench.is_empty()


@pytest.mark.parametrize("fail_at", ["write", "publish"])
async def test_the_first_error_is_what_everything_after_it_fails_with_and_the_sink_is_left_alone(
    bench: Bench, fail_at: str
) -> None:
    sink = MemorySink(fail_at=fail_at)
    file = bench.file(sink)
    await file.open()
    await bench.add(file, 3)
    with pytest.raises(SinkError) as raised:
        await file.finish()
    assert raised.value is sink.error
    steps = list(sink.steps)
    with pytest.raises(SinkError):
        file.add(batch(), await bench.quota.acquire("t", 1), raw_bytes=1)
    with pytest.raises(SinkError):
        await file.finish()
    await file.close()
    assert sink.steps == steps
    assert steps.count(fail_at) == 1
    assert (sink.published, sink.discarded) == (None, True)
    assert bench.is_empty()


@pytest.mark.parametrize("end", [OpenFile.interrupt, OpenFile.storage_is_silent])
async def test_a_file_that_is_ended_from_outside_fails_with_what_has_ended_it(
    bench: Bench, end: Callable[[OpenFile, UpdraftError], None]
) -> None:
    sink = MemorySink()
    file = bench.file(sink)
    await file.open()
    await bench.add(file, 2)
    error = DeadlineError("silent for too long")
    end(file, error)
    with pytest.raises(DeadlineError) as raised:
        await file.finish()
    assert raised.value is error
    assert file.stuck.is_set() == (end is OpenFile.storage_is_silent)
    await file.close()
    assert (sink.published, sink.discarded) == (None, True)
    assert bench.is_empty()


async def test_a_file_that_fails_releases_its_partial_row_group_before_it_is_closed(bench: Bench) -> None:
    file = bench.file(MemorySink(), row_group_bytes=1 << 30)
    await file.open()
    await bench.add(file)
    assert bench.quota.held_bytes == file.partial_bytes > 0
    file.interrupt(SinkError("no"))
    assert bench.quota.held_bytes == file.partial_bytes == 0
    await file.close()


async def test_a_sink_that_cannot_be_opened_takes_no_batch(bench: Bench) -> None:
    file = bench.file(MemorySink(fail_at="open"))
    with pytest.raises(SinkError):
        await file.open()
    with pytest.raises(SinkError):
        file.add(batch(), await bench.quota.acquire("t", 1), raw_bytes=1)
    await file.close()
    assert bench.is_empty()


async def test_a_batch_after_the_finish_is_an_error_and_its_bytes_are_free(bench: Bench) -> None:
    file = bench.file(MemorySink())
    await file.open()
    await file.finish()
    with pytest.raises(InternalError, match="published"):
        file.add(batch(), await bench.quota.acquire("t", 1), raw_bytes=1)
    await file.close()
    assert bench.is_empty()


async def test_who_stops_waiting_for_the_end_of_a_file_leaves_nothing_behind(bench: Bench) -> None:
    gate = asyncio.Event()
    sink = MemorySink(gate=gate)
    file = bench.file(sink)
    await file.open()
    await bench.add(file, 3)
    finishing = asyncio.create_task(file.finish())
    await asyncio.sleep(0)
    finishing.cancel()
    closing = asyncio.create_task(file.close())
    await asyncio.sleep(0)
    gate.set()
    await closing
    assert (sink.published, sink.discarded) == (None, True)
    assert bench.is_empty()


async def test_a_file_holds_its_bytes_until_an_encoder_that_writes_its_footer_returns(bench: Bench) -> None:
    begun, returns = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    class SlowFooter(ParquetEncoder):
        retained_bytes = 500

        def close(self) -> list[Piece]:
            loop.call_soon_threadsafe(begun.set)
            returns.wait(60)
            return super().close()

    sink = MemorySink()
    file = bench.file(sink, encoder=SlowFooter(SCHEMA, ParquetOptions(), {}))
    await file.open()
    finishing = asyncio.create_task(file.finish())
    await begun.wait()
    finishing.cancel()
    closing = asyncio.create_task(file.close())
    # More turns than a close that does not wait would take.
    for _ in range(100):
        await asyncio.sleep(0)
    assert (closing.done(), bench.quota.held_bytes, sink.discarded) == (False, 500, False)
    returns.set()
    await closing
    assert bench.is_empty()


@pytest.mark.parametrize("fail_at", ["", "publish"])
async def test_a_caller_cancelled_while_the_storage_publishes_gets_what_becomes_of_the_file(
    bench: Bench, fail_at: str
) -> None:
    gate = asyncio.Event()
    sink = MemorySink(publish_gate=gate, fail_at=fail_at)
    file = bench.file(sink)
    await file.open()
    await bench.add(file, 3)
    finishing = asyncio.create_task(file.finish())
    await sink.publishing.wait()
    for _ in range(2):
        finishing.cancel()
        await asyncio.sleep(0)
    gate.set()
    await asyncio.wait({finishing})
    if fail_at:
        assert finishing.exception() is sink.error
    else:
        assert finishing.result().rows == 3 * ROWS
        assert sink.published is not None
    await file.close()
    assert bench.is_empty()


async def test_a_deadline_that_passes_while_the_storage_publishes_is_no_error(bench: Bench) -> None:
    gate = asyncio.Event()
    sink = MemorySink(publish_gate=gate)
    file = bench.file(sink)
    await file.open()
    await bench.add(file)
    async with asyncio.timeout(None) as deadline:
        finishing = asyncio.create_task(file.finish())
        await sink.publishing.wait()
        asyncio.get_running_loop().call_later(0, gate.set)
        deadline.reschedule(0)
        await finishing
    assert deadline.expired()


async def test_a_file_given_up_before_its_publication_is_never_published_however_late_it_is_closed(
    bench: Bench,
) -> None:
    gate = asyncio.Event()
    sink = MemorySink(gate=gate)
    file = bench.file(sink)
    await file.open()
    await bench.add(file, 3)
    finishing = asyncio.create_task(file.finish())
    await sink.writing.wait()
    finishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await finishing
    gate.set()
    await sink.wrote.wait()
    # From now on only the file's state delays its publication.
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)
    assert not sink.publishing.is_set()
    await file.close()
    assert (sink.published, sink.discarded) == (None, True)
    assert bench.is_empty()


async def test_an_error_from_outside_comes_too_late_once_the_storage_publishes(bench: Bench) -> None:
    gate = asyncio.Event()
    sink = MemorySink(publish_gate=gate)
    file = bench.file(sink)
    await file.open()
    await bench.add(file)
    finishing = asyncio.create_task(file.finish())
    await sink.publishing.wait()
    file.interrupt(SinkError("the writer stops"))
    gate.set()
    assert (await finishing).rows == ROWS
    await file.close()
    assert (sink.published is not None, sink.discarded) == (True, False)


async def test_a_caller_cancelled_after_an_error_that_came_too_late_gets_what_becomes_of_the_file(bench: Bench) -> None:
    gate = asyncio.Event()
    sink = MemorySink(publish_gate=gate)
    file = bench.file(sink)
    await file.open()
    await bench.add(file)
    finishing = asyncio.create_task(file.finish())
    await sink.publishing.wait()
    file.interrupt(SinkError("the writer stops"))
    finishing.cancel()
    await asyncio.sleep(0)
    gate.set()
    assert (await finishing).rows == ROWS
    await file.close()
    assert bench.is_empty()


class OnDevice(ParquetEncoder):
    """Encoder that runs here but takes a turn on the GPU."""

    on_gpu = True


ENDINGS: list[Callable[[OpenFile], Any]] = [
    lambda file: file.close(),
    lambda file: file.interrupt(SinkError("no")),
    lambda file: file.finish(),
]


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_file_that_ends_gives_its_place_on_the_gpu_back(bench: Bench, ending: Any) -> None:
    admission = DeviceAdmission(DeviceLimits(memory_bytes=1 << 30))
    sink = MemorySink()
    file = bench.file(sink, encoder=OnDevice(SCHEMA, ParquetOptions(), {}))
    file.device = admission.place(hold=True)
    await file.open()
    await bench.add(file)
    await sink.wrote.wait()
    assert admission.held_bytes > 0
    outcome = ending(file)
    if outcome is not None:
        await outcome
    assert admission.held_bytes == 0
    await file.close()


async def test_a_file_that_moves_to_the_cpu_gives_its_place_on_the_gpu_back(bench: Bench) -> None:
    class Moving(OnDevice):
        def write(self, table: pa.Table) -> list[Piece]:
            self.on_gpu = False
            return super().write(table)

    admission = DeviceAdmission(DeviceLimits(memory_bytes=1 << 30))
    sink = MemorySink()
    file = bench.file(sink, encoder=Moving(SCHEMA, ParquetOptions(), {}))
    file.device = admission.place(hold=True)
    await file.open()
    await bench.add(file)
    await sink.wrote.wait()
    assert admission.held_bytes == 0
    await file.close()


async def test_a_file_whose_storage_hangs_fails_without_waiting_for_it(bench: Bench) -> None:
    gate = asyncio.Event()
    sink = MemorySink(publish_gate=gate)
    file = bench.file(sink)
    await file.open()
    await bench.add(file)
    finishing = asyncio.create_task(file.finish())
    await sink.publishing.wait()
    file.storage_is_silent(SinkError("the storage is silent"))
    with pytest.raises(SinkError, match="silent"):
        async with asyncio.timeout(10.0):
            await finishing
    gate.set()
    await file.close()
    assert bench.is_empty()


EVENTS: list[Callable[[OpenFile], Any]] = [
    lambda file: file.flush(),
    lambda file: file.interrupt(SinkError("no")),
    lambda file: file.close(),
]


@pytest.mark.parametrize("event", EVENTS)
async def test_a_published_file_stays_published_whatever_comes_after(bench: Bench, event: Any) -> None:
    sink = MemorySink()
    file = bench.file(sink)
    await file.open()
    await bench.add(file)
    await file.finish()
    outcome = event(file)
    if outcome is not None:
        await outcome
    await file.close()
    assert sink.published is not None
    assert not sink.discarded
    assert bench.is_empty()
