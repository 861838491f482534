# SPDX-License-Identifier: Apache-2.0
"""Messages within the pool's byte limit that no frame can carry to a worker: refused by a limit, not a defect."""

from collections.abc import AsyncIterator

import grpc
import pytest
from fake_pool import FakePool
from flight_messages import FlightData, all_replies, batch, command_request, echo_command, reply_metadata
from front_harness import Running, RunningFront

from updraft.v1.exchange_pb2 import ErrorKind
from updraft_server.ipc import frames

LIMIT_BYTES = 4096


@pytest.fixture
async def front(running_front: Running, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningFront]:
    monkeypatch.setattr(frames, "MAX_METADATA_BYTES", LIMIT_BYTES)
    async with running_front(FakePool()) as running:
        yield running


def message(**fields: bytes) -> bytes:
    return bytes(FlightData(**fields).SerializeToString())


LARGE = bytes(LIMIT_BYTES + 1)


@pytest.mark.parametrize(
    "last",
    [message(data_header=LARGE), message(data_header=b"x", app_metadata=LARGE)],
    ids=["header", "metadata"],
)
async def test_a_field_that_is_too_large_for_a_frame_is_a_limit(front: RunningFront, last: bytes) -> None:
    call = front.exchange(timeout=60)
    for sent in (command_request(echo_command()), batch(1), last):
        await call.write(sent)
    replies, error = await all_replies(call)
    assert error is not None
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert reply_metadata(replies[-1]).error.kind == ErrorKind.ERROR_KIND_LIMIT
