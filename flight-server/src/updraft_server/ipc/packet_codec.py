# SPDX-License-Identifier: Apache-2.0
"""Codec of packets: a packet is the JSON of its class's name and its fields. Each protocol lists its own classes."""

import dataclasses
import json
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Packet = TypeVar("Packet", bound="DataclassInstance")


class PacketError(Exception):
    """Raised when a packet cannot be read, because it is hostile or comes from another installation."""


class PacketCodec(Generic[Packet]):
    """Codec of one protocol, whose packets are frozen dataclasses."""

    def __init__(self, *packets: type[Packet]) -> None:
        self._packets = {packet.__name__: packet for packet in packets}

    def encode(self, packet: Packet) -> bytes:
        """Return the packet as bytes."""
        return json.dumps([type(packet).__name__, dataclasses.asdict(packet)]).encode()

    def decode(self, data: bytes) -> Packet:
        """Return the packet in `data`; raises PacketError."""
        try:
            name, fields = json.loads(data)
            return self._packets[name](**fields)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise PacketError(f"not a packet: {error}") from None
