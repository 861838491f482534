# SPDX-License-Identifier: Apache-2.0
"""Distant pool, to which a connection takes longer to open."""

from __future__ import annotations

import socket
import threading
import time
from concurrent import futures

import grpc

from updraft.client.connection import CHANNEL_OPTIONS

_DELAY_SECONDS = 0.3


class _Answers(grpc.GenericRpcHandler):  # type: ignore[misc]
    def service(self, _details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(lambda request, _context: request)


def test_a_slow_handshake_is_awaited() -> None:
    with futures.ThreadPoolExecutor(2) as threads, socket.create_server(("127.0.0.1", 0)) as listener:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers((_Answers(),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        accepted: list[socket.socket] = []

        def accept() -> None:
            client, _ = listener.accept()
            accepted.append(client)
            time.sleep(_DELAY_SECONDS)
            service = socket.create_connection(("127.0.0.1", port))
            accepted.append(service)
            for ends in ((client, service), (service, client)):
                threading.Thread(target=_copy, args=ends, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with grpc.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
            assert channel.unary_unary("/any/method")(b"hello", timeout=10) == b"hello"
        for end in accepted:
            end.close()
        server.stop(None)


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        return
