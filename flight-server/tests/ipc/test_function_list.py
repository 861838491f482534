# SPDX-License-Identifier: Apache-2.0
"""Any number of functions reach a front, in packets of bounded size."""

import pytest

from updraft.v1.control_pb2 import FunctionDescription
from updraft_server.ipc.function_list import (
    MAX_DESCRIPTION_BYTES,
    MOST_FUNCTIONS,
    decode_functions,
    encode_functions,
    in_packets,
    joined,
)
from updraft_server.ipc.packet_codec import PacketError
from updraft_server.ipc.zygote_packets import MAX_PACKET_BYTES, Hello, MoreFunctions, decode, encode


def functions(count: int, doc_bytes: int) -> list[FunctionDescription]:
    return [FunctionDescription(name=f"f{number}", doc="x" * doc_bytes) for number in range(count)]


@pytest.mark.parametrize(
    ("count", "doc_bytes"), [(0, 0), (1, 10), (1, MAX_DESCRIPTION_BYTES - 16), (7, 20_000), (900, 100)]
)
def test_functions_arrive_as_they_were_sent(count: int, doc_bytes: int) -> None:
    sent = functions(count, doc_bytes)
    packets = [encode(packet) for packet in in_packets(Hello(1, "3.11", "", encode_functions(sent)))]
    assert max(map(len, packets)) <= MAX_PACKET_BYTES
    hello, *others = map(decode, packets)
    assert isinstance(hello, Hello)
    for packet in others:
        assert hello.more
        assert isinstance(packet, MoreFunctions)
        hello = joined(hello, packet)
    assert hello.more == 0
    assert decode_functions(hello.functions) == sent


def test_more_functions_than_were_announced_are_refused() -> None:
    with pytest.raises(PacketError, match="1 are missing"):
        joined(Hello(1, "3.11", "", [], more=1), MoreFunctions(["", ""]))


def test_a_greeting_without_an_end_is_refused() -> None:
    with pytest.raises(PacketError, match="more than"):
        joined(Hello(1, "3.11", "", [], more=10**9), MoreFunctions([""] * (MOST_FUNCTIONS + 1)))
    with pytest.raises(PacketError, match="0 more functions"):
        joined(Hello(1, "3.11", "", [], more=10**9), MoreFunctions([]))


@pytest.mark.parametrize("garbage", ["???", "/////w=="])
def test_what_is_no_description_is_refused(garbage: str) -> None:
    with pytest.raises(PacketError, match="not the description"):
        decode_functions([garbage])
