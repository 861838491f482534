# SPDX-License-Identifier: Apache-2.0
"""A connector works with pools of the previous and the next release, and a pool with such connectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from threading import Condition

import grpc
import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.e2e.sides import Answer, Query, Sides, canonical
from tests.e2e.wire.queries import BROADCASTS, CONFS, ERRORS, QUERIES, RECORD, RECORDED, errors
from tests.support.flight import FlightData, Result
from tests.support.kinds_of_spark import needs_spark
from tests.support.pool import LocalPool
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
from updraft.v1.control_pb2 import PoolStatus
from updraft.v1.exchange_pb2 import ArtifactsWanted, ExchangeCommand, ReplyMetadata, RequestMetadata

_EXCHANGE = "/arrow.flight.protocol.FlightService/DoExchange"
# Events that a client waits for before it continues to send.
_ASKS = ("admitted", "artifacts_wanted", "payload_wanted")
_LATER_VALUE = 99
"""Value that no enum of this release has."""


@pytest.fixture(autouse=True)
def plain_plans(spark: SparkSession, stock_only: bool) -> Iterator[None]:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    with runtime_confs(spark, CONFS):
        yield


def _as_the_next_release(method: str, sender: str, message: bytes) -> bytes:
    """Return a message with an additional field in each of our messages."""
    if method != _EXCHANGE:
        # The additional field of an action's result is in its body.
        return message if sender == CLIENT else _with_body(message, partial(later, PoolStatus))
    data = FlightData.FromString(message)
    if data.flight_descriptor.cmd:
        data.flight_descriptor.cmd = later(ExchangeCommand, data.flight_descriptor.cmd)
    if data.app_metadata:
        data.app_metadata = later(RequestMetadata if sender == CLIENT else ReplyMetadata, data.app_metadata)
    return bytes(data.SerializeToString())


def _with_later_values(method: str, sender: str, message: bytes) -> bytes:
    """Return a message with enum values that this release does not know."""
    if sender == CLIENT:
        return message
    if method != _EXCHANGE:
        return _with_body(message, _with_a_later_state)
    data = FlightData.FromString(message)
    metadata = ReplyMetadata.FromString(data.app_metadata)
    if metadata.WhichOneof("event") == "error":
        metadata.error.kind = _LATER_VALUE  # type: ignore[assignment]  # no member of today's enum
        data.app_metadata = metadata.SerializeToString()
    return bytes(data.SerializeToString())


def _with_a_later_state(body: bytes) -> bytes:
    status = PoolStatus.FromString(body)
    status.state = _LATER_VALUE  # type: ignore[assignment]  # no member of today's enum
    return status.SerializeToString()


def _as_this_pyspark(method: str, sender: str, message: bytes) -> bytes:
    """Return a message of the recorded pool with the versions of these tests, because its pyspark is not under test."""
    if method == _EXCHANGE or sender == CLIENT:
        return message

    def renamed(body: bytes) -> bytes:
        status = PoolStatus.FromString(body)
        status.pyspark_version = pyspark.__version__
        return status.SerializeToString()

    return _with_body(message, renamed)


def _all_artifacts_are_there(first: bytes) -> list[bytes]:
    """Return the reply of a pool that already has the session's files, some of which earlier tests added."""
    command = FlightData.FromString(first).flight_descriptor.cmd
    if not ExchangeCommand.FromString(command).session.artifacts:
        return []
    nothing = ReplyMetadata(artifacts_wanted=ArtifactsWanted())
    return [bytes(FlightData(app_metadata=nothing.SerializeToString()).SerializeToString())]


def _with_body(result: bytes, change: Callable[[bytes], bytes]) -> bytes:
    parsed = Result.FromString(result)
    if not parsed.body.startswith(b"{"):
        # Another action, which asks who the caller is, answers in JSON.
        parsed.body = change(parsed.body)
    return bytes(parsed.SerializeToString())


def _assert_like_stock(sides: Sides, query: Query, ours: Answer) -> None:
    stock = sides.stock(query)
    assert ours.error is None, ours.error
    assert ours.ran_on_the_pool, ours.plan
    assert [canonical(row) for row in ours.rows] == [canonical(row) for row in stock.rows]


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_fields_that_a_later_release_adds_change_nothing(sides: Sides, pool: LocalPool, query: Query) -> None:
    passing = Passing(pool.tcp_address, _as_the_next_release)
    with serving(passing) as address:
        later = Sides(sides.spark, {"tcp": f"grpc://{address}"}, False)
        _assert_like_stock(sides, query, later.updraft(query))
    assert [call.method for call in passing.calls].count(_EXCHANGE) == 1


def test_errors_of_a_later_release_are_errors_still(sides: Sides, pool: LocalPool) -> None:
    with serving(Passing(pool.tcp_address, _as_the_next_release)) as address:
        later = Sides(sides.spark, {"tcp": f"grpc://{address}"}, False)
        assert "on purpose" in str(later.updraft(errors).error)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_events_and_values_that_a_later_release_adds_change_nothing(
    sides: Sides, pool: LocalPool, query: Query
) -> None:
    with serving(Passing(pool.tcp_address, _with_later_values, between=[later_event()])) as address:
        later_sides = Sides(sides.spark, {"tcp": f"grpc://{address}"}, False)
        _assert_like_stock(sides, query, later_sides.updraft(query))


def test_an_error_of_a_kind_that_a_later_release_adds_is_told(sides: Sides, pool: LocalPool) -> None:
    with serving(Passing(pool.tcp_address, _with_later_values)) as address:
        later_sides = Sides(sides.spark, {"tcp": f"grpc://{address}"}, False)
        assert "on purpose" in str(later_sides.updraft(errors).error)


def _record_of(name: str) -> list[RecordedCall]:
    """Return the calls of one query: its exchange, and every other kind of call of the record."""
    calls = load(RECORD)
    exchanges = [call for call in calls if call.method == _EXCHANGE]
    assert len(exchanges) == len(RECORDED)
    return [exchanges[RECORDED.index(name)], *(call for call in calls if call.method != _EXCHANGE)]


@pytest.mark.parametrize("query", QUERIES)
def test_a_connector_reads_what_the_last_release_answered(sides: Sides, query: str) -> None:
    opening = _all_artifacts_are_there if query != BROADCASTS else None
    with serving(Replaying(_record_of(query), _as_this_pyspark, opening)) as address:
        earlier = Sides(sides.spark, {"tcp": f"grpc://{address}"}, False)
        _assert_like_stock(sides, QUERIES[query], earlier.updraft(QUERIES[query]))


def test_a_connector_reads_how_the_last_release_told_an_error(sides: Sides) -> None:
    with serving(Replaying(_record_of(ERRORS), _as_this_pyspark, _all_artifacts_are_there)) as address:
        earlier = Sides(sides.spark, {"tcp": f"grpc://{address}"}, False)
        assert "on purpose" in str(earlier.updraft(errors).error)


@pytest.mark.parametrize("query", RECORDED)
def test_a_pool_answers_what_the_last_release_asked(pool: LocalPool, query: str) -> None:
    needs_spark((4, 0), "cloudpickle that reads the recorded functions")
    recorded = _record_of(query)[0]
    assert _told(_asked_again(pool.tcp_address, recorded)) == _told(recorded.of(SERVICE))


def _asked_again(address: str, recorded: RecordedCall) -> list[bytes]:
    """Return the replies to the same requests, each sent when the pool has asked for as much as before."""
    asked, received = Condition(), list[bytes]()

    def wants() -> int:
        return sum(event_of(reply, ReplyMetadata) in _ASKS for reply in received)

    def requests() -> Iterator[bytes]:
        needed = 0
        for sender, message in recorded.messages:
            if sender == SERVICE:
                needed += event_of(message, ReplyMetadata) in _ASKS
                continue
            with asked:
                while wants() < needed and asked.wait(60):
                    pass
            yield _as_this_pysparks(message)

    with grpc.insecure_channel(address) as channel:
        replies = channel.stream_stream(_EXCHANGE)(requests(), timeout=60)
        try:
            for reply in replies:
                with asked:
                    received.append(reply)
                    asked.notify()
        except grpc.RpcError:
            assert replies.code().name == recorded.code
    return received


def _as_this_pysparks(message: bytes) -> bytes:
    """Return a recorded request that the pool takes for one pickled by these tests' pyspark."""
    data = FlightData.FromString(message)
    if data.flight_descriptor.cmd:
        command = ExchangeCommand.FromString(data.flight_descriptor.cmd)
        if command.HasField("session"):
            command.session.spark_version = pyspark.__version__
        data.flight_descriptor.cmd = command.SerializeToString()
    return bytes(data.SerializeToString())


def _told(messages: list[bytes]) -> list[tuple[str, int, bytes]]:
    """Return what depends only on the requests in these replies: events, numbers, rows and data."""
    told = []
    for message in messages:
        data = FlightData.FromString(message)
        metadata = ReplyMetadata.FromString(data.app_metadata)
        if not data.data_header and not metadata.WhichOneof("event"):
            # This reply only frees slots in the window; the worker sends it when it has to wait for the next request.
            continue
        event = metadata.WhichOneof("event") or "data"
        number = metadata.finish.rows if event == "finish" else metadata.sequence
        told.append((event, number, data.data_body))
    return told


def test_the_record_has_what_a_connector_says() -> None:
    said = {event_of(message, RequestMetadata) for name in RECORDED for message in _record_of(name)[0].of(CLIENT)}
    assert said >= {"data", "sequence", "finish", "artifact"}
    told = {event_of(message, ReplyMetadata) for name in RECORDED for message in _record_of(name)[0].of(SERVICE)}
    assert told >= {"admitted", "data", "sequence", "finish", "artifacts_wanted", "error"}
