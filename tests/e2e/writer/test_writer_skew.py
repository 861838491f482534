# SPDX-License-Identifier: Apache-2.0
"""A connector works with writers of the previous and the next release, and a writer with such connectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Condition

import grpc
import pytest
from pyspark.sql import SparkSession

from tests.e2e.wire.writes import ENDPOINT, RECORD, WRITES, Write, read, returned_file, rows
from tests.support.flight import Action, FlightData
from tests.support.spark import runtime_confs
from tests.support.wire import (
    CLIENT,
    SERVICE,
    Passing,
    RecordedCall,
    Replaying,
    event_of,
    later,
    later_event,
    load,
    serving,
)
from tests.support.writer import LocalWriter
from updraft.v1.write_pb2 import WriteCommand, WriteReplyMetadata, WriteRequestMetadata

_EXCHANGE = "/arrow.flight.protocol.FlightService/DoExchange"
_RETURNED = {name: write for name, write in WRITES.items() if write.delivery == "return"}


def _as_the_next_release(method: str, sender: str, message: bytes) -> bytes:
    """Return a message with an additional field in each of our messages."""
    if method != _EXCHANGE:
        # A writer's answer to the question whether it would open a file is empty.
        if sender == SERVICE:
            return message
        asked = Action.FromString(message)
        asked.body = later(WriteCommand, asked.body)
        return bytes(asked.SerializeToString())
    data = FlightData.FromString(message)
    if data.flight_descriptor.cmd:
        data.flight_descriptor.cmd = later(WriteCommand, data.flight_descriptor.cmd)
    if data.app_metadata:
        data.app_metadata = later(WriteRequestMetadata if sender == CLIENT else WriteReplyMetadata, data.app_metadata)
    return bytes(data.SerializeToString())


def _record_of(name: str) -> list[RecordedCall]:
    """Return the calls of one write: its exchange, and every other kind of call of the record."""
    calls = load(RECORD)
    exchanges = [call for call in calls if call.method == _EXCHANGE]
    assert len(exchanges) == len(WRITES)
    return [exchanges[list(WRITES).index(name)], *(call for call in calls if call.method != _EXCHANGE)]


def _assert_written(spark: SparkSession, write: Write, directory: Path) -> None:
    found = spark.read.format(write.format).load(str(directory)).orderBy("id").collect()
    assert found == rows(spark).collect()


@pytest.mark.parametrize("name", WRITES)
def test_fields_and_events_that_a_later_release_adds_change_no_file(
    spark: SparkSession, writer: LocalWriter, place: Path, name: str
) -> None:
    write = WRITES[name]
    # Sends events that this release does not know in between.
    passing = Passing(writer.tcp_address, _as_the_next_release, between=[later_event()])
    with serving(passing) as address, runtime_confs(spark, {ENDPOINT: f"grpc://{address}", **write.confs}):
        write.run(spark, place / "files")
    _assert_written(spark, write, place / "files")
    assert [call.method for call in passing.calls].count(_EXCHANGE) == 1
    assert len(passing.calls) > 1


def test_refusals_of_a_later_release_are_refusals_still(
    spark: SparkSession, writer: LocalWriter, tmp_path: Path
) -> None:
    write = WRITES["parquet, stored"]
    with (
        serving(Passing(writer.tcp_address, _as_the_next_release)) as address,
        runtime_confs(spark, {ENDPOINT: f"grpc://{address}", **write.confs}),
        pytest.raises(Exception, match="outside the roots of this writer"),
    ):
        write.run(spark, tmp_path / "elsewhere")


@pytest.mark.parametrize("name", _RETURNED)
def test_a_connector_reads_what_the_last_release_answered(spark: SparkSession, place: Path, name: str) -> None:
    write = WRITES[name]
    # A writer sends nothing before it is asked.
    replaying = Replaying(_record_of(name), answers=lambda _reply: True)
    with serving(replaying) as address, runtime_confs(spark, {ENDPOINT: f"grpc://{address}", **write.confs}):
        write.run(spark, place / "files")
    _assert_written(spark, write, place / "files")


@pytest.mark.parametrize("name", WRITES)
def test_a_writer_answers_what_the_last_release_asked(writer: LocalWriter, place: Path, name: str) -> None:
    write, recorded = WRITES[name], _record_of(name)[0]
    file = place / "part-0"
    again = _asked_again(writer.tcp_address, recorded, file)
    assert _told(again) == _told(recorded.of(SERVICE))
    if write.delivery == "return":
        content: bytes | Path = returned_file(again)
        assert read(write.format, content) == read(write.format, returned_file(recorded.of(SERVICE)))
    else:
        assert read(write.format, file).num_rows == 10


def _asked_again(address: str, recorded: RecordedCall, file: Path) -> list[bytes]:
    """Return the replies to the same requests, each sent when the writer has given as much credit as before."""
    changed, received = Condition(), list[bytes]()

    def credit() -> int:
        return max((_metadata(reply).credit for reply in received), default=0)

    def requests() -> Iterator[bytes]:
        needed = 0
        for sender, message in recorded.messages:
            if sender == SERVICE:
                needed = max(needed, _metadata(message).credit)
                continue
            with changed:
                while credit() < needed and changed.wait(60):
                    pass
            yield _to(file, message)

    with grpc.insecure_channel(address) as channel:
        for reply in channel.stream_stream(_EXCHANGE)(requests(), timeout=60):
            with changed:
                received.append(reply)
                changed.notify()
    return received


def _to(file: Path, message: bytes) -> bytes:
    """Return a recorded request with the path of a file on this machine."""
    data = FlightData.FromString(message)
    if data.flight_descriptor.cmd:
        command = WriteCommand.FromString(data.flight_descriptor.cmd)
        command.path = str(file)
        data.flight_descriptor.cmd = command.SerializeToString()
    return bytes(data.SerializeToString())


def _metadata(reply: bytes) -> WriteReplyMetadata:
    return WriteReplyMetadata.FromString(FlightData.FromString(reply).app_metadata)


def _told(replies: list[bytes]) -> tuple[int, int, int]:
    """Return what depends only on the requests: credit, and the receipt's rows and batches."""
    receipt = _metadata(replies[-1]).receipt
    return max(_metadata(reply).credit for reply in replies), receipt.rows, receipt.batches


def test_the_record_has_what_a_connector_says() -> None:
    said = {event_of(message, WriteRequestMetadata) for name in WRITES for message in _record_of(name)[0].of(CLIENT)}
    assert said >= {"data", "ask", "sequence", "finish"}
