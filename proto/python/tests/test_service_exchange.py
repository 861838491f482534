# SPDX-License-Identifier: Apache-2.0
"""Opening of an exchange, which is the same for every service."""

import asyncio

import pytest

from updraft.errors import DeadlineError, LimitError, ProtocolError, VersionMismatchError
from updraft.flight_data import join_flight_data
from updraft.protocol import PROTOCOL_VERSION, TENANT_HEADER
from updraft.service.audit import NO_RECORD
from updraft.service.exchange import (
    MessageLimits,
    check_version,
    fail_without_finish,
    first_message,
    parse_metadata,
    schema_header,
    task_context,
    tenant_of,
    within_deadline,
)
from updraft.service.identity import ANYBODY
from updraft.v1.exchange_pb2 import Owner, RequestMetadata, TaskIdentity

LIMITS = MessageLimits("pool", max_message_bytes=1000, first_message_timeout_seconds=0.2)
NOTHING = memoryview(b"")
DESCRIPTOR_ALONE = join_flight_data(NOTHING, b"", NOTHING, descriptor=b"d")
WITH_SCHEMA = join_flight_data(memoryview(b"schema"), b"", NOTHING, descriptor=b"d")
TASK = TaskIdentity(owner=Owner(application_id="app"), query_id="7", stage_id=1, stage_attempt_number=2, partition_id=3)


class Client:
    """Client that sends the given messages, then nothing."""

    identity = ANYBODY
    record = NO_RECORD

    def __init__(self, *messages: bytes | None, deadline_seconds: float | None = None, tenant: str = "") -> None:
        self._messages = list(messages)
        self._headers = {TENANT_HEADER: tenant}
        self.remaining_seconds = deadline_seconds

    async def read(self) -> bytes | None:
        if not self._messages:
            await asyncio.Event().wait()
        return self._messages.pop(0)

    async def write(self, message: bytes) -> None:
        raise AssertionError(message)

    async def accept(self) -> None:
        raise NotImplementedError

    def header(self, name: str) -> str:
        return self._headers.get(name, "")


async def opened(*messages: bytes | None) -> bytes:
    client = Client(*messages)
    return bytes(await schema_header(client.read, await first_message(client.read, LIMITS), LIMITS))


async def test_the_schema_comes_with_the_descriptor_or_after_it() -> None:
    assert await opened(WITH_SCHEMA) == b"schema"
    assert await opened(DESCRIPTOR_ALONE, WITH_SCHEMA) == b"schema"


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ((), "no schema within 0.2 seconds"),
        ((None,), "ended before its schema"),
        ((b"",), "no flight descriptor"),
        ((DESCRIPTOR_ALONE, None), "ended before its schema"),
        ((DESCRIPTOR_ALONE,), "no schema within 0.2 seconds"),
        ((DESCRIPTOR_ALONE, DESCRIPTOR_ALONE), "neither the first nor the second"),
    ],
)
async def test_what_opens_no_exchange_is_the_clients_error(messages: tuple[bytes | None, ...], says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        await opened(*messages)


async def test_a_message_beyond_the_limit_is_refused_and_the_service_named() -> None:
    with pytest.raises(LimitError, match="the limit of this pool is 1000"):
        await opened(bytes(1001))


def test_another_version_is_refused_and_both_are_named() -> None:
    check_version(PROTOCOL_VERSION, "writer")
    with pytest.raises(VersionMismatchError, match=f"version 9 .* this writer version {PROTOCOL_VERSION}"):
        check_version(9, "writer")


def test_the_tenant_is_the_headers_else_the_application() -> None:
    assert tenant_of(Client(tenant="team"), TASK) == "team"
    assert tenant_of(Client(), TASK) == "app"


def test_log_lines_name_the_task_where_there_is_one_and_are_short() -> None:
    assert task_context(TaskIdentity()) == {}
    assert task_context(TASK) == {
        "application": "app",
        "query": "7",
        "stage": "1.2",
        "partition": "3",
        "attempt": "0",
    }
    assert len(task_context(TaskIdentity(owner=Owner(application_id="a" * 10_000)))["application"]) < 1000


async def test_the_clients_own_deadline_ends_the_work_and_says_so() -> None:
    with pytest.raises(DeadlineError, match=r"the file was not finished within 0\.05 seconds"):
        async with within_deadline(Client(deadline_seconds=0.05), "file"):
            await asyncio.Event().wait()


async def test_a_timeout_of_the_work_itself_is_no_deadline() -> None:
    with pytest.raises(TimeoutError, match="of the work"):
        async with within_deadline(Client(deadline_seconds=60), "file"):
            raise TimeoutError("of the work")


async def test_an_end_without_finish_is_an_error_unless_the_call_was_cancelled() -> None:
    with pytest.raises(ProtocolError, match="without finish"):
        await fail_without_finish()
    ending = asyncio.create_task(fail_without_finish())
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending


def test_metadata_that_is_long_is_refused_before_it_is_parsed() -> None:
    """Parsing may take many times the metadata's memory, and blocks all other calls."""
    assert parse_metadata(RequestMetadata, RequestMetadata(sequence=7).SerializeToString()).sequence == 7
    long = RequestMetadata(group_ends=[1] * (64 << 10)).SerializeToString()
    with pytest.raises(LimitError, match="the app_metadata of a message has 65540 bytes, the limit is 65536"):
        parse_metadata(RequestMetadata, long)
