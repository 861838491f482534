# SPDX-License-Identifier: Apache-2.0
"""Writer whose receivers hold the clients' connections: one quota, one set of files, and receivers that die."""

import os
import signal
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grpc_health.v1 import health_pb2
from receiving_writer import RECEIVERS, health, is_over, own_connection, receivers_of, writer_with_receivers
from running_writer import RunningWriter, gated_storage, wait_for

from updraft.client.remote_file import RemoteFile
from updraft.errors import PoolUnavailableError, UpdraftError
from updraft_writer.receivers.frames import Kind
from updraft_writer.receivers.relay import Relay

ROWS = 200_000
TABLE = pa.table({"n": pa.arange(0, ROWS, 1), "text": pa.array([f"row {row}" for row in range(ROWS)])})
LARGE_BATCH = pa.record_batch({"n": pa.arange(0, 100_000, 1)})
# Number of frames of a file with two batches, from call to end, and a few more.
MOST_FRAMES = 13


def files_on_receivers(writer: RunningWriter, stack: ExitStack) -> dict[int, RemoteFile]:
    """Open files until each receiver has one; return a file of each, by the receiver's process id."""
    receivers, found = receivers_of(writer), dict[int, RemoteFile]()
    while len(found) < RECEIVERS:
        wait_for(lambda: sum(receivers.open_calls.values()) == len(found), "the end of earlier calls")
        before = receivers.open_calls
        # An own connection, because gRPC shares one between equal channels.
        client = stack.enter_context(own_connection(writer.address))
        file = client.create(str(writer.root / f"{len(found)}-{os.urandom(4).hex()}"), TABLE.schema)
        file.write(TABLE.slice(0, 1000))
        (pid,) = (pid for pid, calls in receivers.open_calls.items() if calls > before[pid])
        if pid in found:
            file.abort()
        else:
            found[pid] = file
    return found


def test_files_of_many_clients_are_whole(writer: RunningWriter) -> None:
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            with own_connection(writer.address) as client:
                path = str(writer.root / f"many-{number}.parquet")
                with client.create(path, TABLE.schema, max_batch_bytes=256 << 10) as file:
                    file.write(TABLE)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for number in range(8):
        assert pq.read_table(writer.root / f"many-{number}.parquet").equals(TABLE)


def test_a_batch_in_parts_is_whole(tmp_path: Path) -> None:
    row = pa.table({"text": pa.array(["x" * (5 << 20)])})
    with writer_with_receivers(tmp_path, max_message_bytes=1 << 20) as writer:
        with writer.client() as client, client.create(str(tmp_path / "parts"), row.schema) as file:
            file.write(row)
        assert pq.read_table(tmp_path / "parts").equals(row)


def test_a_long_header_is_whole(writer: RunningWriter) -> None:
    wide = pa.table({f"column {number}": pa.arange(0, 200, 1) for number in range(500)})
    with writer.client() as client, client.create(str(writer.root / "wide"), wide.schema) as file:
        file.write(wide)
    assert pq.read_table(writer.root / "wide").equals(wide)


def test_one_quota_holds_for_all_receivers(tmp_path: Path) -> None:
    quota_bytes = 8 << 20
    with writer_with_receivers(tmp_path, quota_bytes=quota_bytes) as writer:
        memory, quota = receivers_of(writer).memory, writer.writer.quota
        excess: list[tuple[int, int]] = []
        take = memory.take

        def watched(body_bytes: int) -> Any:
            block = take(body_bytes)
            if memory.used_bytes + memory.idle_bytes > quota_bytes or quota.held_bytes > quota_bytes:
                excess.append((memory.used_bytes, memory.idle_bytes))
            return block

        memory.take = watched  # type: ignore[method-assign]
        test_files_of_many_clients_are_whole(writer)
        writer.becomes_empty()
        assert not excess
        assert 0 < quota.peak_bytes <= quota_bytes
        wait_for(lambda: memory.used_bytes == 0, "the release of the shared memory")


def test_a_killed_receiver_ends_only_its_own_files(writer: RunningWriter) -> None:
    receivers = receivers_of(writer)
    samples = writer.writer.metrics.registry
    restarts = samples.get_sample_value("updraft_writer_receiver_restarts_total") or 0
    with ExitStack() as stack:
        files = files_on_receivers(writer, stack)
        killed, survivor = files
        os.kill(killed, signal.SIGKILL)
        with pytest.raises(PoolUnavailableError):
            files[killed].finish()
        wait_for(lambda: is_over(receivers, killed), "the start of another receiver")
        assert samples.get_sample_value("updraft_writer_receiver_restarts_total") == restarts + 1
        files[survivor].write(TABLE.slice(1000))
        path = files[survivor].finish().path
    assert pq.read_table(path).equals(TABLE)
    writer.becomes_empty()
    test_files_of_many_clients_are_whole(writer)


@pytest.mark.parametrize("frames", range(1, MOST_FRAMES + 1))
def test_a_receiver_that_dies_at_any_step_leaves_nothing_held(
    writer: RunningWriter, frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    receivers, seen, killed = receivers_of(writer), list[Kind](), list[int]()
    handle, child_of = Relay._handle, {id(each.relay): each.child.pid for each in receivers._running.values()}

    def handled(relay: Relay, kind: Kind, number: int, payload: bytes) -> None:
        seen.append(kind)
        if len(seen) == frames and id(relay) in child_of:
            killed.append(child_of[id(relay)])
            os.kill(killed[0], signal.SIGKILL)
        handle(relay, kind, number, payload)

    for each in receivers._running.values():
        monkeypatch.setattr(each.relay.link, "_on_frame", lambda *frame, relay=each.relay: handled(relay, *frame))
    path = writer.root / f"dies-{frames}.parquet"
    with (
        own_connection(writer.address) as client,
        suppress(UpdraftError),
        client.create(str(path), LARGE_BATCH.schema) as file,
    ):
        file.write(LARGE_BATCH)
        file.write(LARGE_BATCH)
    if killed:
        wait_for(lambda: is_over(receivers, killed[0]), "the start of another receiver")
    writer.becomes_empty()
    wait_for(lambda: receivers.memory.used_bytes == 0, "the release of the shared memory")
    assert not path.exists() or pq.read_table(path).num_rows == 2 * LARGE_BATCH.num_rows
    receivers._crashes.clear()


def test_a_stopped_receiver_is_replaced(writer: RunningWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("updraft.service.heartbeat.SILENT_TURNS", 2)
    receivers = receivers_of(writer)
    stopped = next(iter(receivers.open_calls))
    os.kill(stopped, signal.SIGSTOP)
    wait_for(lambda: is_over(receivers, stopped), "the start of another receiver")
    test_files_of_many_clients_are_whole(writer)


def test_health_and_metrics_are_those_of_one_writer(writer: RunningWriter) -> None:
    assert health(writer) == health_pb2.HealthCheckResponse.SERVING
    samples = writer.writer.metrics.registry
    assert samples.get_sample_value("updraft_writer_receivers") == RECEIVERS
    before = samples.get_sample_value("updraft_writer_rows_total") or 0
    with ExitStack() as stack:
        for file in files_on_receivers(writer, stack).values():
            file.finish()
    assert samples.get_sample_value("updraft_writer_rows_total") == before + 1000 * RECEIVERS


def test_files_that_are_stored_slowly_outlive_their_receiver(tmp_path: Path) -> None:
    """A row group that is being stored when its receiver dies keeps its shared memory until it is stored."""
    with writer_with_receivers(tmp_path, row_group_bytes=64 << 10) as writer, gated_storage(writer) as gate:
        receivers = receivers_of(writer)
        with ExitStack() as stack:
            killed, file = next(iter(files_on_receivers(writer, stack).items()))
            file.write(TABLE)
            assert gate.reached.wait(30)
            os.kill(killed, signal.SIGKILL)
            with suppress(UpdraftError):
                file.finish()
            wait_for(lambda: is_over(receivers, killed), "the start of another receiver")
        gate.opened.set()
        writer.becomes_empty()
        wait_for(lambda: receivers.memory.used_bytes == 0, "the release of the shared memory")
