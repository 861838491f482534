# SPDX-License-Identifier: Apache-2.0
"""Encoded bytes in reused blocks, and how much memory free blocks may use."""

import os

import pytest

from updraft_writer.encoders.encoder import EncodedBytes
from updraft_writer.file_factory import blocks_within
from updraft_writer.pieces import BLOCK_BYTES, PIECE_BYTES, Blocks
from updraft_writer.quota import Quota, QuotaLimits

DATA = memoryview(os.urandom(2 * BLOCK_BYTES + PIECE_BYTES + 5))


@pytest.mark.parametrize("step", [1000, 70_000, len(DATA)])
def test_bytes_arrive_in_their_order_in_pieces_of_one_size(step: int) -> None:
    output = EncodedBytes()
    reused = bytearray(step)
    for start in range(0, len(DATA), step):
        part = DATA[start : start + step]
        reused[: len(part)] = part
        output.write(memoryview(reused)[: len(part)])
    pieces = output.take()
    assert b"".join(pieces) == DATA
    assert [len(piece) for piece in pieces] == 9 * [PIECE_BYTES] + [5]
    assert (output.tell(), output.take()) == (len(DATA), [])


def test_a_block_is_used_again_once_none_of_its_pieces_is() -> None:
    blocks = Blocks()
    output = EncodedBytes(blocks)
    output.write(DATA[:BLOCK_BYTES])
    pieces = output.take()
    kept = bytes(pieces[-1])
    del pieces[:-1]
    output.write(DATA[BLOCK_BYTES : 2 * BLOCK_BYTES])
    following = output.take()
    assert (bytes(pieces[0]), blocks.idle_bytes) == (kept, 0)
    pieces.clear()
    assert blocks.idle_bytes == BLOCK_BYTES
    following.clear()
    output.write(DATA[:BLOCK_BYTES])
    assert blocks.idle_bytes == BLOCK_BYTES
    assert b"".join(output.take()) == DATA[:BLOCK_BYTES]


def test_few_bytes_take_no_block_once_they_are_taken() -> None:
    blocks = Blocks()
    output = EncodedBytes(blocks)
    output.write(b"footer")
    pieces = output.take()
    assert (pieces, blocks.idle_bytes) == ([b"footer"], BLOCK_BYTES)


def test_free_blocks_take_no_more_than_the_room_for_them() -> None:
    room = [2 * BLOCK_BYTES]
    blocks = Blocks(lambda: room[0])
    taken = [blocks.take() for _ in range(4)]
    taken.clear()
    assert blocks.idle_bytes == 2 * BLOCK_BYTES
    room[0] = BLOCK_BYTES
    blocks.trim()
    assert blocks.idle_bytes == BLOCK_BYTES
    room[0] = -1
    blocks.trim()
    assert blocks.idle_bytes == 0


async def test_free_blocks_give_way_to_bytes_that_are_held() -> None:
    quota = Quota(QuotaLimits(quota_bytes=4 * BLOCK_BYTES))
    blocks = blocks_within(quota)
    [blocks.take() for _ in range(3)].clear()
    assert blocks.idle_bytes == 3 * BLOCK_BYTES
    with await quota.acquire("t", 2 * BLOCK_BYTES):
        assert blocks.idle_bytes == 2 * BLOCK_BYTES
