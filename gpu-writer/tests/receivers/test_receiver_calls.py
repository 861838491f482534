# SPDX-License-Identifier: Apache-2.0
"""Calls that receivers hold: which clients may make them, and clients that send too much or vanish."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trustme
from receiving_writer import RECEIVERS, health, receivers_of, writer_with_receivers
from running_writer import NOTHING, RawExchange, RunningWriter, command, wait_for

from updraft.errors import PoolUnavailableError, UnauthenticatedError
from updraft.flight_data import join_flight_data
from updraft.v1.exchange_pb2 import ErrorKind
from updraft.v1.write_pb2 import WriteRequestMetadata
from updraft_writer.receivers.frames import MOST_INLINE_BYTES, MOST_NEW_CALLS, Kind
from updraft_writer.receivers.relay import Relay

TABLE = pa.table({"n": pa.arange(0, 10_000, 1)})
LARGE_BATCH = pa.record_batch({"n": pa.arange(0, 100_000, 1)})
METHOD = "/arrow.flight.protocol.FlightService/DoExchange"
FLOOD = 1500


def test_unknown_methods_are_unimplemented(writer: RunningWriter) -> None:
    with grpc.insecure_channel(writer.address) as channel, pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary("/arrow.flight.protocol.FlightService/DoGet")(b"")
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_tokens_are_checked(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("secret\n")
    tokens.chmod(0o600)
    with writer_with_receivers(tmp_path, token_file=tokens) as writer:
        with pytest.raises(UnauthenticatedError), writer.client() as client:
            client.create(str(tmp_path / "refused"), TABLE.schema).finish()
        with writer.client(token="secret") as client, client.create(str(tmp_path / "taken"), TABLE.schema) as file:
            file.write(TABLE)
    assert pq.read_table(tmp_path / "taken").equals(TABLE)


def test_certificates_of_clients_are_checked(tmp_path: Path) -> None:
    authority, server, stranger = trustme.CA(), tmp_path / "server.pem", trustme.CA()
    ours = authority.issue_cert("127.0.0.1")
    ours.private_key_and_cert_chain_pem.write_to_path(server)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    identities = tmp_path / "identities.toml"
    identities.write_text('[[identity]]\nname = "etl"\ntenant = "a"\nscopes = ["write"]\ncertificates = ["etl"]\n')
    identities.chmod(0o600)
    settings = {
        "tls_certificate_file": server,
        "tls_key_file": server,
        "tls_client_ca_file": tmp_path / "ca.pem",
        "identities_file": identities,
    }

    def write(issuer: trustme.CA, name: str) -> None:
        client = issuer.issue_cert(f"{name}.example.org", common_name=name)
        (chain,) = client.cert_chain_pems
        key = client.private_key_pem.bytes()
        credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes(), key, chain.bytes())
        with (
            writer.client(credentials=credentials, timeout_seconds=10) as connection,
            connection.create(str(tmp_path / f"{name}.parquet"), TABLE.schema) as file,
        ):
            file.write(TABLE)

    with writer_with_receivers(tmp_path, **settings) as writer:
        write(authority, "etl")
        with pytest.raises(UnauthenticatedError):
            write(authority, "other")
        with pytest.raises(PoolUnavailableError):
            write(stranger, "etl")
    assert pq.read_table(tmp_path / "etl.parquet").equals(TABLE)


@pytest.fixture
def no_memory(writer: RunningWriter, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail the test if a receiver gets shared memory."""
    memory, taken = receivers_of(writer).memory, list[int]()
    take = memory.take

    def watched(body_bytes: int) -> Any:
        taken.append(body_bytes)
        return take(body_bytes)

    monkeypatch.setattr(memory, "take", watched)
    yield
    assert not taken


@pytest.mark.usefixtures("no_memory")
def test_data_without_credit_is_refused(writer: RunningWriter) -> None:
    with RawExchange(writer.address, LARGE_BATCH.schema, command(writer.root / "unasked")) as exchange:
        exchange.batch(1, LARGE_BATCH)
        error = exchange.last_reply().error
    assert error.kind == ErrorKind.ERROR_KIND_PROTOCOL
    assert "ask first and wait for the credit" in error.message


@pytest.mark.usefixtures("no_memory")
def test_data_beyond_its_credit_is_refused(writer: RunningWriter) -> None:
    with RawExchange(writer.address, LARGE_BATCH.schema, command(writer.root / "beyond")) as exchange:
        exchange.ask(80_000)
        exchange.next_reply()
        exchange.batch(1, LARGE_BATCH)
        error = exchange.last_reply().error
    assert error.kind == ErrorKind.ERROR_KIND_PROTOCOL
    assert "credit covers" in error.message


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize("credit_bytes", [0, 2 * MOST_INLINE_BYTES])
def test_a_large_message_without_a_body_at_its_end_is_refused(writer: RunningWriter, credit_bytes: int) -> None:
    body = join_flight_data(NOTHING, b"", memoryview(bytes(MOST_INLINE_BYTES + 1)))
    number = join_flight_data(NOTHING, WriteRequestMetadata(sequence=1).SerializeToString(), NOTHING)
    with RawExchange(writer.address, LARGE_BATCH.schema, command(writer.root / "not-last")) as exchange:
        if credit_bytes:
            exchange.ask(credit_bytes // 4)
            exchange.next_reply()
        exchange.send(body + number)
        error = exchange.last_reply().error
    assert error.kind == ErrorKind.ERROR_KIND_PROTOCOL
    assert "with the body as its last field" in error.message


def test_a_cancelled_call_gives_its_place_back(writer: RunningWriter) -> None:
    with RawExchange(writer.address, LARGE_BATCH.schema, command(writer.root / "cancelled")) as exchange:
        exchange.ask(800_000)
        exchange.next_reply()
        exchange.batch(1, LARGE_BATCH)
        exchange.call.cancel()
    writer.becomes_empty()
    wait_for(lambda: receivers_of(writer).memory.used_bytes == 0, "the release of the shared memory")
    wait_for(lambda: sum(receivers_of(writer).open_calls.values()) == 0, "the end of the call")


def test_an_exchange_that_is_cancelled_twice_gives_its_credit_back(
    writer: RunningWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline of a call and the end of its connection may both cancel."""
    tasks: list[asyncio.Task[None]] = []
    opened = Relay._open

    def open_call(relay: Relay, number: int, *opening: Any) -> None:
        opened(relay, number, *opening)
        tasks.append(relay._calls[number][1])

    monkeypatch.setattr(Relay, "_open", open_call)
    with RawExchange(writer.address, LARGE_BATCH.schema, command(writer.root / "cancelled")) as exchange:
        exchange.ask(800_000)
        exchange.next_reply()
        assert writer.writer.quota.held_bytes
        (task,) = tasks
        loop = task.get_loop()

        def cancel_twice() -> None:
            task.cancel()
            # The exchange has seen the first cancellation, and its helpers have not ended yet.
            loop.call_soon(lambda: loop.call_soon(task.cancel))

        loop.call_soon_threadsafe(cancel_twice)
        writer.becomes_empty()


def test_a_failed_exchange_keeps_its_credit_while_a_receiver_still_writes(
    writer: RunningWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[asyncio.Task[None]] = []
    held_back: list[partial[None]] = []
    handle, quota = Relay._handle, writer.writer.quota

    def handled(relay: Relay, kind: Kind, number: int, payload: bytes) -> None:
        if kind is Kind.PLACED:
            held_back.append(partial(handle, relay, kind, number, payload))
            tasks.append(relay._calls[number][1])
        else:
            handle(relay, kind, number, payload)

    for each in receivers_of(writer)._running.values():
        monkeypatch.setattr(each.relay.link, "_on_frame", partial(handled, each.relay))
    with RawExchange(writer.address, LARGE_BATCH.schema, command(writer.root / "fails")) as exchange:
        exchange.ask(800_000)
        exchange.next_reply()
        exchange.batch(1, LARGE_BATCH)
        wait_for(lambda: bool(held_back), "the message that the body is in its place")
        loop = tasks[0].get_loop()
        loop.call_soon_threadsafe(tasks[0].cancel)
        wait_for(tasks[0].done, "the end of the exchange")
        assert quota.held_bytes
        loop.call_soon_threadsafe(held_back[0])
        writer.becomes_empty()
        wait_for(lambda: receivers_of(writer).memory.used_bytes == 0, "the release of the shared memory")


def test_a_flood_of_calls_waits_in_the_receivers(writer: RunningWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the writer's process is busy, clients open many calls and cancel them."""
    calls: list[int] = []
    handle = Relay._handle

    def handled(relay: Relay, kind: Kind, number: int, payload: bytes) -> None:
        if kind is Kind.CALL:
            calls.append(number)
        handle(relay, kind, number, payload)

    for each in receivers_of(writer)._running.values():
        monkeypatch.setattr(each.relay.link, "_on_frame", lambda *frame, relay=each.relay: handled(relay, *frame))

    async def flood() -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.insecure_channel(writer.address, options=options) for _ in range(4)]
        opened = [channels[number % 4].stream_stream(METHOD)() for number in range(FLOOD)]
        await asyncio.sleep(1)
        for call in opened:
            call.cancel()
        await asyncio.gather(*(channel.close() for channel in channels))

    with writer.busy():
        asyncio.run(flood())
    wait_for(lambda: bool(calls) and not sum(receivers_of(writer).open_calls.values()), "the end of all calls")
    assert len(calls) <= RECEIVERS * MOST_NEW_CALLS
    assert health(writer)
