# SPDX-License-Identifier: Apache-2.0
"""First bytes of a reply's metadata, compared with what protobuf parses."""

from typing import Any

import pytest

from updraft.v1.exchange_pb2 import Finish, ReplyMetadata
from updraft_server.front.relay.worker_replies import ReplyMetadataStart

MOST = 2**64 - 1


@pytest.mark.parametrize("consumed", [0, 1, 127, 128, 300, 2**32, MOST])
@pytest.mark.parametrize(
    "event",
    [
        {},
        {"sequence": 7},
        {"finish": Finish()},
        {"finish": Finish(batches=MOST, rows=MOST)},
        {"log_lines": ["\x1a"], "row_ends": [26]},
        {"finish": Finish(rows=1), "log_lines": ["printed"] * 100},
    ],
)
def test_it_is_what_protobuf_would_read(consumed: int, event: dict[str, Any]) -> None:
    metadata = ReplyMetadata(consumed=consumed, **event)
    start = ReplyMetadataStart.of(memoryview(metadata.SerializeToString()))
    assert (start.consumed, start.is_finish) == (consumed, metadata.HasField("finish"))


@pytest.mark.parametrize("invented", [b"", b"\x08", b"\x08" + b"\xff" * 100, b"\xff" * 100, b"\x08\x01"])
def test_bytes_of_a_worker_that_are_no_metadata_are_no_finish(invented: bytes) -> None:
    start = ReplyMetadataStart.of(invented)
    assert start.consumed < 2**77
    assert not start.is_finish
