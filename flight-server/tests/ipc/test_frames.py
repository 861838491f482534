# SPDX-License-Identifier: Apache-2.0
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from updraft_server.ipc.frames import (
    HEADER_BYTES,
    MAX_BODY_BYTES,
    MAX_METADATA_BYTES,
    FrameError,
    FrameKind,
    decode_header,
    encode,
    encode_header,
)

kinds = st.sampled_from(FrameKind)


@settings(deadline=None)
@given(kinds, st.binary(), st.binary(), st.binary())
def test_a_frame_comes_out_as_it_went_in(kind: FrameKind, metadata: bytes, data_header: bytes, body: bytes) -> None:
    data = b"".join(bytes(piece) for piece in encode(kind, metadata, data_header, body))
    header = decode_header(data[:HEADER_BYTES])
    assert header == (kind, len(metadata), len(data_header), len(body))
    assert data[HEADER_BYTES:] == metadata + data_header + body
    assert header.payload_bytes == len(data) - HEADER_BYTES


@given(st.binary(max_size=3 * HEADER_BYTES))
def test_bytes_that_are_no_header_are_refused_and_never_believed(data: bytes) -> None:
    try:
        header = decode_header(data)
    except FrameError:
        return
    assert len(data) == HEADER_BYTES
    assert max(header.metadata_bytes, header.header_bytes) <= MAX_METADATA_BYTES
    assert header.body_bytes <= MAX_BODY_BYTES


@given(kinds, st.integers(MAX_METADATA_BYTES + 1, 2**32 - 1))
def test_a_field_beyond_any_limit_is_refused_on_both_sides(kind: FrameKind, size: int) -> None:
    with pytest.raises(FrameError):
        encode_header(kind, size)
    with pytest.raises(FrameError):
        decode_header(struct.pack("<BIIQ", kind, 0, size, 0))


def test_large_fields_are_not_copied() -> None:
    body = bytearray(1000)
    pieces = encode(FrameKind.BATCH, b"m", b"h", body)
    assert memoryview(pieces[-1]).obj is body
