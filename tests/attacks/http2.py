# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 frames that no library sends, and a function that sends them until the service stops receiving."""

from __future__ import annotations

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return one frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


HELLO = PREFACE + frame(SETTINGS, 0, 0)


def request_headers(path: str, token: str) -> bytes:
    """Return the header block of a gRPC call, in HPACK without tables or Huffman codes."""
    fields = {
        ":method": "POST",
        ":scheme": "https",
        ":path": path,
        ":authority": "pool",
        "te": "trailers",
        "content-type": "application/grpc",
        "authorization": f"Bearer {token}",
    }
    return b"".join(b"\x10" + _text(name) + _text(value) for name, value in fields.items())


def _text(text: str) -> bytes:
    assert len(text) < 127
    return bytes([len(text)]) + text.encode()


def flood(connection: socket.socket, piece: bytes, times: int) -> None:
    """Send the same bytes repeatedly without reading, until the service stops receiving."""
    connection.settimeout(5)
    try:
        for _ in range(times):
            connection.sendall(piece)
    except OSError:
        # The service hung up or stopped reading; the tests allow both.
        return
