# SPDX-License-Identifier: Apache-2.0
"""Encoding of a zygote's registered functions for the front: any number of functions, in packets of bounded size."""

import base64
import dataclasses
from collections.abc import Iterable, Sequence

from google.protobuf.message import DecodeError

from updraft.v1.control_pb2 import FunctionDescription
from updraft_server.ipc.packet_codec import PacketError
from updraft_server.ipc.zygote_packets import Hello, MoreFunctions

MAX_DESCRIPTION_BYTES = 24 * 1024
"""Largest description of one function. It fits into one packet together with the rest of a Hello."""
MOST_FUNCTIONS = 10_000
"""Most functions that a pool may have. The limit bounds the size of the pool's reports about its functions."""
UNLISTED = frozenset({"builtin_echo", "builtin_healthy"})
"""Functions that Databend calls by name. They run like other functions, but lists do not show them."""
DEATHS_IN_A_ROW = 3
"""Number of deaths of a function's processes, without a success in between, that make the function unhealthy.

After fewer deaths, the function may be innocent, because the kernel may have killed the processes.
"""
_PACKET_BYTES = 40 * 1024


def encode_functions(functions: Iterable[FunctionDescription]) -> Sequence[str]:
    """Return the descriptions in the form in which packets carry them."""
    return [base64.b64encode(function.SerializeToString()).decode() for function in functions]


def decode_functions(functions: Iterable[str]) -> Sequence[FunctionDescription]:
    """Return the descriptions that `encode_functions` has written; raises PacketError."""
    try:
        return [FunctionDescription.FromString(base64.b64decode(function, validate=True)) for function in functions]
    except (ValueError, DecodeError) as error:
        raise PacketError(f"not the description of a function: {error}") from None


def in_packets(hello: Hello) -> Sequence[Hello | MoreFunctions]:
    """Return a greeting of any size as packets that can be sent."""
    parts: list[list[str]] = [[]]
    size_bytes = 0
    for function in hello.functions:
        size_bytes += len(function)
        if size_bytes > _PACKET_BYTES and parts[-1]:
            parts.append([])
            size_bytes = len(function)
        parts[-1].append(function)
    first, *others = parts
    more = len(hello.functions) - len(first)
    return [dataclasses.replace(hello, functions=first, more=more), *map(MoreFunctions, others)]


def joined(hello: Hello, packet: MoreFunctions) -> Hello:
    """Return the greeting with the packet's functions added. The result is complete once `more` is 0.

    Raises:
        PacketError: The packet contains no functions or more than are missing, or the total exceeds MOST_FUNCTIONS.
    """
    if not 0 < len(packet.functions) <= hello.more:
        raise PacketError(f"{len(packet.functions)} more functions came, and {hello.more} are missing")
    functions = [*hello.functions, *packet.functions]
    if len(functions) > MOST_FUNCTIONS:
        raise PacketError(f"more than {MOST_FUNCTIONS} functions")
    return dataclasses.replace(hello, functions=functions, more=hello.more - len(packet.functions))
